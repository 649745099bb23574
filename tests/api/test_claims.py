"""Which pods a sandbox claims, wants and gives back: from its own content and facts that stay true."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osb.api import claims, names
from osb.api.batchsandbox import BoxSpec, parse
from tests.api import samples

POOL = {"poolRef": "warm", "poolUID": "pool-uid"}


def box(**fields: Any) -> BoxSpec:
    return parse(samples.box(**fields))


def recorded(*pods: str, **members: Any) -> dict[str, Any]:
    return {"pods": list(pods), **POOL, **members}


# -- effective pool ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool_ref", "record", "expected"),
    [
        ("", None, ("", "")),
        ("warm", None, ("warm", "")),
        ("*", None, ("*", "")),
        ("warm", {"pods": ["p1"]}, ("warm", "")),
        ("warm", recorded("p1"), ("warm", "pool-uid")),
        ("other", recorded("p1"), ("warm", "pool-uid")),
        ("*", recorded("p1"), ("warm", "pool-uid")),
        ("", recorded("p1"), ("", "")),
        ("", recorded("p1", detaching=True), ("warm", "pool-uid")),
    ],
    ids=[
        "not pooled",
        "not yet served",
        "undecided",
        "a record without a pool counts for poolRef",
        "recorded",
        "an edit is not acted on",
        "an edit to any is not acted on",
        "clearing poolRef ends the claim",
        "a pause keeps the pool until it has the pod back",
    ],
)
def test_effective_pool(pool_ref: str, record: dict[str, Any] | None, expected: tuple[str, str]) -> None:
    sandbox = box(spec={"poolRef": pool_ref}, record=record)
    assert claims.effective_pool(sandbox) == expected
    assert claims.pooled(sandbox) is (expected[0] != "")


def test_a_template_does_not_make_a_pooled_sandbox_unpooled() -> None:
    assert claims.effective_pool(box(spec={"template": {"spec": {}}})) == ("warm", "")
    assert claims.wants(box(spec={"template": {"spec": {}}})) == (0, 1, 2)


# -- claims and slots ----------------------------------------------------------------------------------------


def test_claims_are_recorded_pods_not_yet_acknowledged_as_released() -> None:
    sandbox = box(record=recorded("p0", "p1", "p2", uids=["u0", "u1", "u2"]), release=["p1", "p2"], released=["p2"])
    assert claims.claims(sandbox) == {0: ("p0", "u0"), 1: ("p1", "u1")}
    assert claims.slots(sandbox) == {0: ("p0", "u0")}
    assert claims.given_back(sandbox) == (1, 2)


def test_lost_slots_and_empty_names_claim_nothing() -> None:
    sandbox = box(record=recorded("p0", "", "p2", "p3", open=[2], failed=[3]), spec={"replicas": 4})
    assert claims.claims(sandbox) == {0: ("p0", "")}


def test_a_name_that_occurs_twice_counts_for_its_first_slot() -> None:
    sandbox = box(record=recorded("p0", "p0"))
    assert claims.claims(sandbox) == {0: ("p0", "")}
    assert claims.wants(sandbox) == (1, 2)


# -- wants ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (0, 1, 2)),
        ({"record": recorded("p0")}, (1, 2)),
        ({"record": recorded("p0", "p1", "p2")}, ()),
        ({"record": recorded("p0", "p1", "p2", open=[1])}, (1,)),
        ({"record": recorded("p0", "p1", "p2", failed=[1])}, ()),
        ({"record": recorded("p0", "p1", "p2"), "release": ["p1"]}, ()),
        ({"record": recorded("p0", "p1", "p2"), "release": ["p1"], "released": ["p1"]}, ()),
        ({"record": recorded("p0", "p1", "p2", open=[1]), "released": ["p1"]}, ()),
        ({"spec": {"replicas": 0}}, ()),
        ({"spec": {"replicas": 1}, "record": recorded("p0", "p1", "p2")}, ()),
        ({"spec": {"replicas": 5}, "record": recorded("p0", "p1", "p2")}, (3, 4)),
        ({"spec": {"poolRef": "*"}}, ()),
        ({"spec": {"poolRef": "", "template": {}}}, ()),
        ({"deletionTimestamp": samples.CREATED}, ()),
        ({"record": "{garbage"}, ()),
        ({"record": recorded("p0", detaching=True)}, ()),
        ({"status": {"phase": "Pausing"}}, ()),
        ({"status": {"phase": "Failed"}}, (0, 1, 2)),
    ],
    ids=[
        "nothing recorded",
        "filled from the front",
        "full",
        "an open slot waits for a substitute",
        "a slot given up stays empty",
        "a slot whose release was asked for is used up",
        "a released slot is not refilled",
        "a released slot is not refilled although its pod was lost too",
        "no replicas",
        "more than it needs",
        "scaled up",
        "no pool chosen yet",
        "not pooled",
        "terminating",
        "unreadable record",
        "detaching",
        "pausing",
        "failed pods do not end the wish",
    ],
)
def test_wants(fields: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert claims.wants(box(**fields)) == expected


def test_a_dead_pod_leaves_its_slot_wanted() -> None:
    sandbox = box(record=recorded("p0", "p1", "p2", uids=["a", "b", "c"]))
    assert claims.wants(sandbox, "pool-uid", dead={"p1"}) == (1,)


def test_under_fail_a_delivered_slot_stays_empty_and_an_undelivered_one_is_filled() -> None:
    spec = {"lostPodPolicy": "Fail"}
    ours = box(spec=spec, record=recorded("p0", "p1", "p2", uids=["a", "b", "c"]))
    assert claims.wants(ours, dead={"p1"}) == ()
    plain = box(spec=spec, record={"pods": ["p0", "p1", "p2"]}, endpoints=["10.0.0.1", "", "10.0.0.3"])
    assert claims.wants(plain, dead={"p0", "p1"}) == (1,), "slot 1 was never shown to anybody"


def test_another_pool_of_the_same_name_has_lost_all_pods() -> None:
    sandbox = box(record=recorded("p0", "p1", "p2"), released=["p2"])
    assert claims.wants(sandbox, "new-uid") == (0, 1)
    assert claims.wants(sandbox, "pool-uid") == ()
    assert claims.wants(sandbox) == (), "an unknown pool loses nothing"


def timed_out(observed: int) -> dict[str, Any]:
    failed = {"type": "PodFailed", "status": "True", "reason": "AllocationTimeout"}
    return {"phase": "Failed", "observedGeneration": observed, "conditions": [failed]}


def test_a_sandbox_that_gave_up_waiting_is_out_of_the_line_until_its_spec_changes() -> None:
    assert claims.wants(box(status=timed_out(4))) == ()
    assert claims.wants(box(status=timed_out(3))) == (0, 1, 2)
    assert claims.missing(box(status=timed_out(4))) == (0, 1, 2), "what it misses is still known"


POD_NAMES = [f"p{n}" for n in range(5)]


@settings(max_examples=200, deadline=None)
@given(
    pods=st.lists(st.sampled_from(POD_NAMES), max_size=5),
    replicas=st.integers(0, 5),
    opened=st.sets(st.integers(0, 4)),
    back=st.sets(st.sampled_from(POD_NAMES)),
    dead=st.sets(st.sampled_from(POD_NAMES)),
    more=st.sets(st.sampled_from(POD_NAMES)),
)
def test_facts_only_add_wishes_and_no_slot_is_both_claimed_and_wanted(
    pods: list[str], replicas: int, opened: set[int], back: set[str], dead: set[str], more: set[str]
) -> None:
    record = recorded(*pods, open=sorted(opened))
    sandbox = box(spec={"replicas": replicas}, record=record, released=sorted(back))
    few, many = claims.wants(sandbox, dead=dead), claims.wants(sandbox, dead=dead | more)
    assert set(few) <= set(many), "a wish never goes away while the sandbox stays the same"
    held = {slot for slot, (pod, _) in claims.claims(sandbox).items() if pod not in dead}
    assert not held & set(few)
    assert len({pod for pod, _ in claims.claims(sandbox).values()}) == len(claims.claims(sandbox))


# -- giving back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "pool"),
    [
        ({}, ""),
        ({"record": recorded("p0", "p1", "p2")}, ""),
        ({"record": recorded("p0", "p1", "p2"), "release": ["p1"]}, "warm"),
        ({"record": recorded("p0", "p1", "p2"), "release": ["p1"], "released": ["p1"]}, ""),
        ({"record": recorded("p0", "p1", "p2"), "spec": {"replicas": 2}}, "warm"),
        ({"record": recorded("p0", detaching=True), "spec": {"poolRef": "", "template": {}}}, "warm"),
        ({"record": recorded("p0"), "spec": {"poolRef": "", "template": {}}}, "warm"),
        ({"record": {"pods": ["p0"]}, "spec": {"poolRef": "", "template": {}}}, ""),
        ({"record": "{garbage"}, "warm"),
        ({"deletionTimestamp": samples.CREATED, "finalizers": [names.FINALIZER_POOL]}, "warm"),
        ({"deletionTimestamp": samples.CREATED, "finalizers": [names.FINALIZER_TASKS]}, ""),
        ({"record": recorded("p0"), "release": ["p0"], "spec": {"poolRef": "other"}}, "warm"),
        ({"spec": {"poolRef": "*"}, "release": ["p0"]}, ""),
    ],
    ids=[
        "nothing",
        "served",
        "release asked for",
        "release acknowledged",
        "slots beyond replicas",
        "detaching",
        "poolRef cleared by somebody",
        "a plain record of a paused sandbox names no pool",
        "unreadable",
        "terminating with the pool's finalizer",
        "terminating, nothing to do with the pool",
        "the recorded pool, not the edited poolRef",
        "no pool chosen",
    ],
)
def test_busy_pool(fields: dict[str, Any], pool: str) -> None:
    assert claims.busy_pool(box(**fields)) == pool


def test_surplus_slots_go_highest_first() -> None:
    sandbox = box(spec={"replicas": 1}, record=recorded("p0", "p1", "p2"))
    assert claims.surplus(sandbox) == (2, 1)
