"""Automatic pool choice: the checks, the score, and what is said when nothing fits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from osb.api import names
from osb.api.batchsandbox import BoxSpec
from osb.api.pool import PoolSpec, parse
from osb.decide import assign_match as match
from osb.decide.assign import Choice, assignable, choose, waiting
from osb.decide.assign_profiles import BUILT_IN, MOST, Profile
from osb.decide.assign_requests import pod_requests, quantity
from osb.decide.waittext import lasting

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def template(*images: str, **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": f"c{i}", "image": image} for i, image in enumerate(images)], **spec}}


def box(tmpl: dict[str, Any] | None = None, **kw: Any) -> BoxSpec:
    return BoxSpec(namespace="ns", name="s", pool_ref="*", template=tmpl, **kw)


def pool(
    name: str = "warm", tmpl: dict[str, Any] | None = None, *, allocated: int = 0, total: int = 0, **kw: Any
) -> PoolSpec:
    return PoolSpec(
        namespace="ns",
        name=name,
        template=tmpl if tmpl is not None else template("busybox"),
        status={"allocated": allocated, "total": total},
        **{"pool_max": 10, **kw},
    )


def chosen(*pools: PoolSpec, profile: Profile = BUILT_IN, sandbox: BoxSpec | None = None, **kw: Any) -> Choice:
    return choose(sandbox or box(), pools, profile=profile, **kw)


# -- the choice ----------------------------------------------------------------------------------------------


def test_the_pool_with_most_room_wins_and_equal_ones_go_by_name() -> None:
    assert chosen(pool("b", allocated=5, total=10), pool("a", allocated=1, total=10)).pool == "a"
    assert chosen(pool("b", allocated=1, total=10), pool("a", allocated=1, total=10)).pool == "a"
    assert chosen(pool("b"), pool("a", allocated=1, total=10)).pool == "a"


def test_most_allocated_packs() -> None:
    profile = Profile(name="pack", strategy=MOST)
    assert chosen(pool("b", allocated=5, total=10), pool("a", allocated=1, total=10), profile=profile).pool == "b"


def test_pods_promised_a_moment_ago_count_as_used() -> None:
    pools = (pool("a", allocated=1, total=10), pool("b", allocated=2, total=10))
    assert chosen(*pools, promised={"a": 3}).pool == "b"
    assert chosen(*pools, sandbox=box(replicas=3), promised={"a": 7, "b": 6}).cannot_grow


def test_full_terminating_and_held_pools_are_not_eligible() -> None:
    found = chosen(
        pool("full", allocated=10, total=10),
        pool("going", deleting=NOW),
        pool("held", hold=True),
        sandbox=box(replicas=2),
    )
    assert found.pool == ""
    assert found.rejected == {
        "full": "poolMax 10 leaves 0 of the 2 asked for",
        "going": "it is being deleted",
        "held": "it is on hold",
    }
    assert found.full == ("full",)


def test_a_pool_that_can_make_no_pods_is_chosen_only_for_those_it_has() -> None:
    broken = parse(
        {
            "metadata": {"namespace": "ns", "name": "a"},
            "spec": {"template": {"spec": {"containers": "x"}}, "capacitySpec": {"poolMax": 9}},
        }
    )
    assert chosen(broken, pool("z")).pool == "z"
    assert chosen(broken).rejected == {"a": "it can make no pods, and too few are ready"}
    assert chosen(replace(broken, status={"available": 1})).pool == "a"


def test_pools_that_are_too_small_are_not_full() -> None:
    found = chosen(pool("a", pool_max=20), pool("b", pool_max=9), sandbox=box(replicas=30))
    told = waiting(found, box(replicas=30))
    assert told.detail == (
        "no pool is large enough; pool a: poolMax 20 is less than the 30 asked for; "
        "pool b: poolMax 9 is less than the 30 asked for"
    )
    assert not told.cannot_grow


def test_a_long_list_of_reasons_is_cut_at_the_same_clause_whatever_room_is_left() -> None:
    def told(allocated: int) -> str:
        pools = (pool(f"p{i:03}", pool_max=1000, allocated=allocated) for i in range(200))
        return waiting(chosen(*pools, sandbox=box(replicas=1000)), box(replicas=1000)).detail

    assert told(1) != told(999)
    assert lasting(told(1)) == lasting(told(999))


def test_a_pool_that_starts_from_zero_is_eligible() -> None:
    assert chosen(pool("zero")).pool == "zero"


def test_nothing_fits_is_explained_pool_by_pool() -> None:
    found = chosen(pool("a", template("alpine")), pool("b", template("nginx")), sandbox=box(template("python:3.12")))
    told = waiting(found, box(replicas=2))
    assert told.code == names.WAIT_NO_POOL_FITS
    assert told.detail == (
        "pool a: image python:3.12 is not in its template; pool b: image python:3.12 is not in its template"
    )
    assert (told.missing, told.cannot_grow) == (2, False)
    assert waiting(chosen(), box()).detail == "the namespace has no pool"


def test_the_list_of_reasons_is_bounded() -> None:
    found = chosen(*(pool(f"p{i:03}", template("x")) for i in range(200)), sandbox=box(template("y")))
    assert len(waiting(found, box()).detail) <= 600


def test_pools_that_only_lack_room_are_told_first() -> None:
    found = chosen(pool("a", template("alpine")), pool("z", allocated=10), sandbox=box(template("busybox")))
    told = waiting(found, box()).detail
    assert told.startswith("pool z: poolMax 10 leaves 0") and "; pool a: image busybox is not in" in told


def test_every_pool_that_fits_is_full_means_the_sandbox_must_wait_for_room() -> None:
    found = chosen(pool("a", allocated=10), pool("b", template("alpine")), sandbox=box(template("busybox")))
    assert found.cannot_grow
    assert not chosen(pool("b", template("alpine")), sandbox=box(template("busybox"))).cannot_grow


@pytest.mark.parametrize(
    ("sandbox", "expected"),
    [
        (box(), True),
        (box(deleting=NOW), False),
        (box(expire=NOW - timedelta(seconds=1)), False),
        (box(expire=NOW + timedelta(seconds=1)), True),
        (BoxSpec(namespace="ns", name="s", pool_ref="warm"), False),
    ],
    ids=["plain", "terminating", "expired", "not yet expired", "has a pool"],
)
def test_only_living_undecided_sandboxes_are_assigned(sandbox: BoxSpec, expected: bool) -> None:
    assert assignable(sandbox, NOW) is expected


# -- images --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1.27", "docker.io/library/nginx:1.27"),
        ("me/app", "docker.io/me/app:latest"),
        ("index.docker.io/library/nginx", "docker.io/library/nginx:latest"),
        ("localhost/app", "localhost/app:latest"),
        ("reg:5000/app", "reg:5000/app:latest"),
        ("reg.io/a/b:v1", "reg.io/a/b:v1"),
        ("nginx:1.27@sha256:ab", "docker.io/library/nginx@sha256:ab"),
    ],
)
def test_image_references_are_completed(image: str, full: str) -> None:
    assert match.normalised(image) == full


def test_every_named_image_must_be_in_the_pool_a_shared_sidecar_is_not_enough() -> None:
    offered = pool("a", template("docker.io/library/python:3.12", "proxy"))
    assert match.image(box(template("python:3.12")), offered) == ""
    assert match.image(box(template("node:22", "proxy")), offered) == "image node:22 is not in its template"
    assert match.image(box(), offered) == ""
    assert match.image(box({"spec": {"containers": [{"name": "c"}]}}), offered) == ""
    assert match.image(box(template("node")), PoolSpec(namespace="ns", name="p")) != ""


# -- resources -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", Fraction(1, 2)), ("1Gi", 2**30), ("1e3", 1000), (2, 2), ("0.5", Fraction(1, 2)), ("2k", 2000),
     ("1E", 10**18), ("abc", None), ("", None), (True, None), ("-1", -1)],
)  # fmt: skip
def test_quantities_are_exact(text: object, value: object) -> None:
    assert quantity(text) == value


def container(cpu: str, **kw: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **kw}


def test_requests_are_what_the_scheduler_counts() -> None:
    assert pod_requests({"spec": {"containers": [container("1"), container("500m")]}}) == {"cpu": Fraction(3, 2)}
    peak = {"spec": {"containers": [container("1")], "initContainers": [container("4"), container("2")]}}
    assert pod_requests(peak) == {"cpu": 4}
    sidecar = {"spec": {"containers": [container("1")], "initContainers": [container("2", restartPolicy="Always")]}}
    assert pod_requests(sidecar) == {"cpu": 3}
    overhead = {"spec": {"containers": [container("1")], "overhead": {"cpu": "250m"}}}
    assert pod_requests(overhead) == {"cpu": Fraction(5, 4)}
    whole = {"spec": {"containers": [container("1")], "resources": {"requests": {"cpu": "8"}}}}
    assert pod_requests(whole) == {"cpu": 8}
    limited = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "1Gi"}}}]}}
    assert pod_requests(limited) == {"memory": 2**30}
    assert pod_requests(None) == {}


def test_the_pool_must_request_at_least_as_much() -> None:
    small = pool("a", {"spec": {"containers": [container("500m")]}})
    assert match.resource(box({"spec": {"containers": [container("250m"), container("250m")]}}), small) == ""
    reason = match.resource(box({"spec": {"containers": [container("1")]}}), small)
    assert reason == "its pods have cpu 500m, 1 is asked for"


# -- nodes and labels ----------------------------------------------------------------------------------------


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("term", "fits"),
    [
        (expression("zone", "In", "a", "b"), True),
        (expression("zone", "In", "c"), False),
        (expression("zone", "NotIn", "c"), True),
        (expression("other", "NotIn", "c"), True),
        (expression("zone", "Exists"), True),
        (expression("other", "DoesNotExist"), True),
        (expression("cores", "Gt", "7"), True),
        (expression("cores", "Lt", "7"), False),
        (expression("zone", "Gt", "7"), False),
        (expression("zone", "Near", "a"), False),
        ({}, False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, False),
    ],
)
def test_affinity_terms_follow_kubernetes(term: dict[str, Any], fits: bool) -> None:
    there = pool("a", labels={"zone": "a", "cores": "8"})
    assert (match.nodeselector(box(template(**affinity(term))), there) == "") is fits


def test_the_terms_are_alternatives_and_the_selector_pairs_are_not() -> None:
    there = pool("a", template("x", nodeSelector={"disk": "ssd"}), labels={"zone": "a"})
    either = affinity(expression("zone", "In", "z"), expression("zone", "In", "a"))
    assert match.nodeselector(box(template(**either)), there) == ""
    assert match.nodeselector(box(template(nodeSelector={"disk": "ssd", "zone": "a"})), there) == ""
    assert match.nodeselector(box(template(nodeSelector={"disk": "hdd"})), there) != ""


def test_what_the_pools_own_affinity_fixes_is_known_of_its_nodes() -> None:
    there = pool("a", template("x", **affinity(expression("zone", "In", "a"))))
    assert match.nodeselector(box(template(nodeSelector={"zone": "a"})), there) == ""


def test_labelselector_compares_the_named_labels() -> None:
    profile = Profile(name="p", predicates=("labelselector",), label_keys=("team",))
    pools = (pool("a", labels={"team": "red"}), pool("b", labels={"team": "blue"}))
    assert chosen(*pools, profile=profile, sandbox=box(labels={"team": "blue"})).pool == "b"
    assert chosen(*pools, profile=profile).rejected["a"] == "the sandbox has no label team"
