"""Pools over time: rollout, eviction, hold, deletion, a second life under the same name, bad specs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from osb.api import names
from osb.errors import Refused
from tests.doubles.cluster import Obj, Space, capacity, condition, endpoints, note, ready, record, template
from tests.doubles.controller import HOME


def _uids(pods: list[Obj]) -> set[str]:
    return {p["metadata"]["uid"] for p in pods}


def _image(pod: Obj) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def test_a_new_template_replaces_idle_pods_and_leaves_held_ones(space: Space) -> None:
    old = space.warm("warm", 4, 6, 0, 10, updateStrategy={"maxUnavailable": "50%"})["status"]["revision"]
    space.box("box", 2)
    (box,) = space.served("box")
    held = {p["metadata"]["name"]: p["metadata"]["uid"] for p in space.pods_of("warm") if _name(p) in record(box)}
    # When the template changes
    space.patch("pool", "warm", {"spec": {"template": template("img:2")}})
    # Then every idle pod gets the new image
    pool = space.until_pool("warm", lambda p: p["status"]["revision"] != old and p["status"]["updated"] >= 4)
    space.until("old idle pods are gone", lambda: all(
        _image(p) == "img:2" for p in space.pods_of("warm") if _name(p) not in held))  # fmt: skip
    # And the sandbox keeps exactly the pods it had
    assert {_name(p): p["metadata"]["uid"] for p in space.pods_of("warm") if _name(p) in held} == held
    assert record(space.live("batchsandbox", "box")) == record(box)
    assert pool["status"]["allocated"] == 2


def _name(pod: Obj) -> str:
    return str(pod["metadata"]["name"])


def test_an_evicted_idle_pod_is_replaced_and_a_held_one_stays(space: Space) -> None:
    space.warm("warm", 2, 3, 0, 6)
    space.box("box")
    (box,) = space.served("box")
    (held,) = record(box)
    space.until_pool("warm", lambda p: p["status"]["available"] >= 2)
    idle = next(_name(p) for p in space.pods_of("warm") if _name(p) != held)
    for name in (held, idle):
        space.patch("pod", name, {"metadata": {"labels": {names.LABEL_EVICT: "true"}}})
    space.gone("pod", idle)
    space.until_pool("warm", lambda p: p["status"]["available"] >= 2)
    assert ready(space.live("pod", held))
    assert record(space.live("batchsandbox", "box")) == [held]


def test_a_pool_on_hold_hands_out_nothing_until_released(space: Space) -> None:
    space.warm("warm", 2, 3, 0, 6)
    space.annotate("pool", "warm", hold="maintenance")
    space.until_pool("warm", lambda p: condition(p, "Held"))
    space.box("box")
    waiting = space.until_box("box", lambda b: condition(b, "Progressing"))
    assert "hold" in str(condition(waiting, "Progressing"))
    assert record(waiting) == []
    space.annotate("pool", "warm", hold=None)
    space.served("box")
    space.until_pool("warm", lambda p: not condition(p, "Held"))


def test_deleting_a_pool_frees_terminating_sandboxes_and_fails_live_ones(space: Space) -> None:
    # Given a pool whose pods take their time, a live sandbox and one that is being deleted
    space.warm("warm", 3, 3, 0, 5, template=template(marks={"stop-after": "1s"}))
    space.box("live")
    space.box("going", 2)
    space.served("live", "going")
    space.delete("batchsandbox", "going")
    # When the pool goes
    space.delete("pool", "warm")
    # Then the terminating sandbox is not held back, and the live one says what happened
    space.gone("batchsandbox", "going")
    space.gone("pool")
    box = space.until_box("live", lambda b: b["status"]["phase"] == "Failed")
    found = condition(box, "PodFailed")
    assert found is not None and found["reason"] == "PoolDeleted"
    space.delete("batchsandbox", "live")
    space.gone("batchsandbox")


def test_a_recreated_pool_serves_with_new_pods_only(space: Space) -> None:
    space.warm("warm", 2, 3, 0, 6)
    space.box("before")
    space.served("before")
    old = _uids(space.pods_of("warm"))
    space.delete("pool", "warm")
    space.gone("pool")
    space.warm("warm", 2, 3, 0, 6)
    space.box("after")
    (after,) = space.served("after")
    got = [p for p in space.pods_of("warm") if _name(p) in record(after)]
    assert len(got) == 1 and not _uids(got) & old
    # The old sandbox lost its pods with the old pool; it is served again by the new one or says that it failed
    space.delete("batchsandbox", "before")
    space.gone("batchsandbox", "before")


def test_a_pool_is_deleted_recreated_and_fills_ten_times(space: Space) -> None:
    for _ in range(10):
        space.warm("warm", 3, 4, 0, 6)
        space.delete("pool", "warm")
        space.gone("pool")
    space.warm("warm", 3, 4, 0, 6)


def test_excess_idle_pods_go_when_pool_max_falls_and_held_ones_never(space: Space) -> None:
    space.warm("warm", 4, 6, 0, 10)
    space.box("box", 3)
    (box,) = space.served("box")
    space.until_pool("warm", lambda p: p["status"]["available"] >= 4)
    space.patch("pool", "warm", {"spec": {"capacitySpec": {"poolMax": 4}}})
    space.until_pool("warm", lambda p: (p["status"]["total"], p["status"]["allocated"]) == (4, 3))
    assert record(space.live("batchsandbox", "box")) == record(box)
    assert all(ready(space.live("pod", name)) for name in record(box))


def test_idle_pods_that_fail_are_replaced(space: Space) -> None:
    space.warm("warm", 2, 3, 0, 6)
    victim = _name(space.pods_of("warm")[0])
    space.mark(victim, fail="true")
    space.gone("pod", victim)
    space.until_pool("warm", lambda p: p["status"]["available"] >= 2)


_CASES = {
    "a crossed buffer band is read the other way round": (
        {"capacitySpec": capacity(4, 2, 0, 10)},
        lambda p: p["status"]["available"] in (2, 3, 4),
    ),
    "poolMax wins over a larger poolMin": (
        {"capacitySpec": capacity(0, 1, 5, 3)},
        lambda p: p["status"]["total"] == 3,
    ),
    "maxUnavailable 0 acts as 25 %": (
        {"scaleStrategy": {"maxUnavailable": 0}},
        lambda p: p["status"]["available"] >= 2,
    ),
    "a negative maxUnavailable acts as 25 %": (
        {"scaleStrategy": {"maxUnavailable": -1}},
        lambda p: p["status"]["available"] >= 2,
    ),
    "a fractional percentage acts as 25 %": (
        {"scaleStrategy": {"maxUnavailable": "12.5%"}},
        lambda p: p["status"]["available"] >= 2,
    ),
}


@pytest.mark.parametrize("case", _CASES)
def test_a_broken_rule_is_reported_and_a_safe_reading_is_in_force(space: Space, case: str) -> None:
    spec, works = _CASES[case]
    spec = dict(spec)
    space.pool("odd", *_size(spec), **spec)
    pool = space.until_pool("odd", lambda p: condition(p, "SpecInvalid") and works(p))
    assert pool["status"]["observedGeneration"] == 1
    # When the spec is put right, the condition goes
    right = {"capacitySpec": capacity(2, 4, 0, 10), "scaleStrategy": {"maxUnavailable": "100%"}}
    space.patch("pool", "odd", {"spec": right})
    space.until_pool("odd", lambda p: not condition(p, "SpecInvalid") and condition(p, "Ready"))


def _size(spec: dict[str, Any]) -> tuple[int, ...]:
    found = spec.pop("capacitySpec", None)
    return (found["bufferMin"], found["bufferMax"], found["poolMin"], found["poolMax"]) if found else ()


def test_quoted_digits_count_as_a_number(space: Space) -> None:
    pool = space.warm("quoted", scaleStrategy={"maxUnavailable": "5"})
    assert condition(pool, "SpecInvalid") is None


def test_a_pool_deleted_without_its_pods_says_that_they_run_on_and_takes_none_of_them(space: Space) -> None:
    space.warm()
    space.box("box")
    (box,) = space.served("box")
    (pod,) = record(box)
    space.delete("pool", "warm", propagation="Orphan")
    space.gone("pool", "warm")
    found = space.until_box("box", lambda b: pod in str((condition(b, "PodFailed") or {}).get("message")), seconds=40)
    assert found["status"]["phase"] == "Failed" and not condition(found, "Quarantined")
    assert "without its pods" in (condition(found, "PodFailed") or {})["message"]
    assert endpoints(found) in ([], [""])
    assert "deletionTimestamp" not in space.live("pod", pod)["metadata"]
    # The sandbox can go, its pod stays its owner's business
    space.delete("batchsandbox", "box")
    space.gone("batchsandbox", "box")
    assert "deletionTimestamp" not in space.live("pod", pod)["metadata"]


def test_a_pool_without_a_template_creates_nothing_and_says_so(space: Space) -> None:
    space.pool("empty", template=None)
    space.until_pool("empty", lambda p: condition(p, "SpecInvalid"))
    space.box("box", pool="empty")
    space.until_box("box", lambda b: _reason(b).startswith("PoolSpecInvalid"))
    assert space.pods_of("empty") == []


def _reason(box: Obj) -> str:
    return str((condition(box, "Progressing") or {}).get("message", ""))


def test_pool_max_zero_is_exhaustion_without_a_loop(space: Space) -> None:
    space.pool("none", 0, 0, 0, 0)
    space.box("box", pool="none")
    space.until_box("box", lambda b: condition(b, "PoolAllocationPending") or "RequestExceedsPool" in _reason(b))
    space.until_pool("none", lambda p: p["status"]["unmet"] == 1)
    assert space.pods_of("none") == []


def test_negative_numbers_and_names_too_long_for_a_label_are_refused_by_the_server(space: Space) -> None:
    with pytest.raises(Refused):
        space.pool("negative", -1, 4, 0, 10)
    with pytest.raises(Refused):
        space.pool("p" * 64)


@pytest.mark.parametrize("strategy", [{}, None])
def test_recycling_deletes_unless_told_otherwise(space: Space, strategy: dict[str, str] | None) -> None:
    extra = {} if strategy is None else {"recycleStrategy": strategy}
    space.warm("warm", 1, 2, 0, 4, **extra)
    space.box("box")
    (box,) = space.served("box")
    space.delete("batchsandbox", "box")
    space.gone("batchsandbox", "box")
    space.gone("pod", *record(box))


def test_an_unreadable_restart_config_is_reported_and_defaults_hold(space: Space) -> None:
    marks = {names.RESTART_CONFIG: "{not json"}
    space.warm("warm", recycleStrategy={"type": "Restart"}, meta={"annotations": marks})
    space.until("a warning", lambda: [e for e in space.all("event") if e["type"] == "Warning" and "warm" in str(e)])


def test_a_template_that_the_server_refuses_is_told_and_creating_resumes_when_it_is_corrected(space: Space) -> None:
    # Given a template that the server refuses
    broken = template()
    broken["spec"]["containers"][0]["image"] = ""
    broken["spec"]["containers"][0]["name"] = "Not A Name"
    space.pool("refused", template=broken)
    pool = space.until_pool("refused", lambda p: condition(p, "CreateFailing"))
    assert space.pods_of("refused") == []
    assert pool["status"]["total"] == 0
    space.box("box", pool="refused")
    space.until_box("box", lambda b: _reason(b).startswith("CannotCreatePods"))
    # When it is corrected
    space.patch("pool", "refused", {"spec": {"template": None}})
    space.patch("pool", "refused", {"spec": {"template": template()}})
    space.served("box")
    space.until_pool("refused", lambda p: not condition(p, "CreateFailing"))


def test_pods_inherit_the_template_and_carry_our_labels(space: Space) -> None:
    meta = {"labels": {"tier": "warm"}, "annotations": {"team": "blue"}}
    pool = space.warm("warm", 1, 1, 0, 2, template=template(**meta))
    (pod,) = space.pods_of("warm")
    labels = pod["metadata"]["labels"]
    assert labels["tier"] == "warm" and pod["metadata"]["annotations"]["team"] == "blue"
    assert labels[names.LABEL_POOL_NAME] == "warm"
    assert labels[names.LABEL_POOL_REVISION] == pool["status"]["revision"]
    assert _name(pod).startswith("warm-") and note(pod, names.RESTART_RECORD) is None


PROFILES = "pool-assign-profiles"


@pytest.fixture
def profiles(space: Space) -> Iterator[Any]:
    """Writes the text of the assign profiles; they are gone afterwards."""
    kube = space.cluster.kube
    kube.create("configmap", HOME, {"metadata": {"name": PROFILES}, "data": {"profiles": "{"}})
    yield lambda text: kube.patch("configmap", HOME, PROFILES, {"data": {"profiles": text}})
    kube.delete("configmap", HOME, PROFILES)


def test_a_profile_is_in_force_when_its_config_map_is_put_right_and_stays_so_when_it_breaks(
    space: Space, profiles: Any
) -> None:
    gold = {"name": "gold", "plugins": {"predicate": ["labelselector"]},
            "pluginConf": [{"name": "labelselector", "args": {"keys": ["team"]}}]}  # fmt: skip
    meta = {"labels": {"team": "red"}, "annotations": {names.ASSIGN_PROFILE: "gold"}}
    space.warm("a-blue", 1, 1, 0, 4, meta={"labels": {"team": "blue"}})
    space.warm("red", 1, 4, 0, 9, meta={"labels": {"team": "red"}})
    # Given a sandbox that names a profile of a ConfigMap that nobody can read
    space.box("first", pool="*", meta=meta)
    space.until_box("first", lambda b: "what profile gold means is not known" in _reason(b))
    # When it is put right
    profiles(json.dumps([gold]))
    # Then the sandbox is placed by it, before it would have looked again by itself
    space.until_box("first", lambda b: b["spec"]["poolRef"] == "red", seconds=5)
    # And after it broke again every worker still knows it
    profiles("{")
    for number in range(6):
        space.box(f"later-{number}", pool="*", meta=meta)
    for number in range(6):
        placed = space.until_box(f"later-{number}", lambda b: b["spec"]["poolRef"] != "*")
        assert placed["spec"]["poolRef"] == "red"
    said = [e["reason"] for e in space.all("event") if e["involvedObject"]["name"].startswith("later-")]
    assert "FailedPoolAssign" not in said


def test_pods_are_spread_evenly_however_they_become_ready(space: Space) -> None:
    space.warm("warm", 2, 2, 0, 6, placement="Spread")
    for name in ("s1", "s2", "s3"):
        space.box(name, 3)
    space.until_pool("warm", lambda p: p["status"]["allocated"] == 6)
    space.until("two for each", lambda: [len(record(b)) for b in space.all("batchsandbox")] == [2, 2, 2])


def test_who_gave_up_waiting_no_longer_says_that_the_pool_is_full(space: Space) -> None:
    space.warm("warm", 1, 2, 0, 2)
    space.box("holder", 2)
    space.served("holder")
    space.box("all", 2, allocationPolicy="AllOrNothing", allocationTimeoutSeconds=8)
    space.until_box("all", lambda b: condition(b, names.POOL_ALLOCATION_PENDING))
    gave_up = space.until_box("all", lambda b: condition(b, names.POD_FAILED))
    assert condition(gave_up, names.POOL_ALLOCATION_PENDING) is None
    space.delete("batchsandbox", "holder")
    space.until_pool("warm", lambda p: p["status"]["available"] >= 1)
    assert condition(space.live("batchsandbox", "all"), names.POOL_ALLOCATION_PENDING) is None
