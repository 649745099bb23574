"""Who gets which pod, and why the others wait."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osb.api import names
from osb.api.batchsandbox import BoxSpec
from osb.api.pool import PoolSpec
from osb.api.record import Record
from osb.api.sizing import Fairness
from osb.decide.allocate import Dealt, grants
from osb.facts.pod import PodFact
from osb.facts.poolview import ServeView, WaitingBox

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}


def pod(name: str, *, revision: str = "r1", since: int = 1000) -> PodFact:
    return PodFact("ns", name, f"uid-{name}", "7", phase="Running", ready=True, ready_since=since, revision=revision)


def wants(name: str, count: int, *, age: float = 1, holds: int = 0, **kw: Any) -> WaitingBox:
    box = BoxSpec(
        namespace="ns",
        name=name,
        uid=f"uid-{name}",
        version="5",
        replicas=count + holds,
        created=NOW - timedelta(seconds=age),
        **kw,
    )
    return WaitingBox(box=box, slots=tuple(range(holds, holds + count)), holds=holds)


def deal(pods: list[PodFact], waiting: list[WaitingBox], *, pool: dict[str, Any] | None = None, **kw: Any) -> Dealt:
    fields = {"pool_max": 100, "template": TEMPLATE, **(pool or {})}
    spec = PoolSpec(namespace="ns", name="warm", uid="pool-uid", **fields)
    counts = kw.pop("counts", {"free": len(pods)})
    return grants(ServeView(now=NOW, pool=spec, revision="r1", available=pods, waiting=waiting, counts=counts, **kw))


def got(dealt: Dealt) -> dict[str, list[str]]:
    return {grant.box: [name for _, name, _ in grant.pods] for grant in dealt.grants}


def codes(dealt: Dealt) -> dict[str, str]:
    return {uid.removeprefix("uid-"): waiting.code for uid, waiting in dealt.waiting.items()}


def test_current_revision_first_then_longest_ready_then_name() -> None:
    # Given stock in random order, one pod of an old revision that is ready for longest
    stock = [pod("c", since=20), pod("old", revision="r0", since=1), pod("b", since=10), pod("a", since=20)]
    # When a sandbox asks for all of it
    dealt = deal(stock, [wants("s", 4)])
    # Then
    assert got(dealt) == {"s": ["b", "a", "c", "old"]}


def test_slots_are_filled_from_the_front_with_pod_uids_and_the_version_seen() -> None:
    (grant,) = deal([pod("a"), pod("b")], [wants("s", 2, holds=1)]).grants
    assert grant.pods == ((1, "a", "uid-a"), (2, "b", "uid-b"))
    assert (grant.uid, grant.version) == ("uid-s", "5")


def test_while_an_earlier_waiter_is_short_later_ones_get_nothing() -> None:
    dealt = deal([pod("a")], [wants("big", 2, age=9), wants("small", 1, age=5)])
    assert got(dealt) == {"big": ["a"]}
    assert dealt.unmet == 2
    assert codes(dealt) == {"big": names.WAIT_NO_READY_POD, "small": names.WAIT_NO_READY_POD}


def test_a_lower_rank_does_not_get_what_a_higher_one_misses_under_spread_either() -> None:
    dealt = deal(
        [pod("a"), pod("b"), pod("c")],
        [wants("x", 2, priority=5), wants("y", 2, priority=5), wants("low", 1)],
        pool={"placement": names.PLACEMENT_SPREAD},
    )
    assert {name: len(pods) for name, pods in got(dealt).items()} == {"x": 2, "y": 1}


def test_a_waiter_that_pool_max_can_never_satisfy_holds_nobody_back() -> None:
    dealt = deal(
        [pod("a")],
        [wants("huge", 9, age=50), wants("small", 1)],
        pool={"pool_max": 10},
        held_for_ever=2,
    )
    assert got(dealt) == {"small": ["a"]}
    assert codes(dealt) == {"huge": names.WAIT_REQUEST_EXCEEDS_POOL}
    assert (dealt.unmet, dealt.demand) == (9, 0)


@pytest.mark.parametrize(
    ("change", "detail", "at_max"),
    [
        (
            {"held_for_ever": 4, "counts": {"held": 4, "free": 1}},
            "of poolMax 6 only 2 can ever be free for it while other sandboxes keep 4 "
            "(they have no expireTime, so until somebody deletes them)",
            False,
        ),
        (
            {"held_for_ever": 5, "counts": {"held": 5, "free": 1}},
            "of poolMax 6 only 1 can ever be free for it while other sandboxes keep 5 "
            "(they have no expireTime, so until somebody deletes them)",
            True,
        ),
        ({"pool": {"pool_max": 2}, "counts": {"held": 1}}, "3 pods are more than poolMax 2 can ever provide", False),
        ({"pool": {"pool_max": 0}, "counts": {}}, "3 pods are more than poolMax 0 can ever provide", True),
    ],
    ids=["held-for-ever", "and-at-max", "too-big", "no-pods-at-all"],
)
def test_who_is_passed_over_is_told_what_stands_in_the_way(change: dict[str, Any], detail: str, at_max: bool) -> None:
    dealt = deal([], [wants("s", 3)], **{"pool": {"pool_max": 6}, **change})
    told = dealt.waiting["uid-s"]
    assert (told.code, told.detail) == (names.WAIT_REQUEST_EXCEEDS_POOL, detail)
    assert told.cannot_grow == at_max


def test_alone_in_the_line_one_that_can_never_be_complete_gets_what_is_there_beside_others_nothing() -> None:
    never = {"pool": {"pool_max": 10}, "held_for_ever": 6}
    assert got(deal([pod("a"), pod("b")], [wants("big", 6)], **never)) == {"big": ["a", "b"]}
    whole = wants("big", 6, allocation_policy=names.ALLOCATE_ALL)
    assert got(deal([pod("a"), pod("b")], [whole], **never)) == {}
    assert got(deal([pod("a"), pod("b")], [wants("big", 6, age=9), wants("small", 1)], **never)) == {"small": ["a"]}


def test_what_a_sandbox_itself_holds_does_not_make_its_request_too_big() -> None:
    dealt = deal([pod("a")], [wants("s", 1, holds=9)], pool={"pool_max": 10}, held_for_ever=9)
    assert got(dealt) == {"s": ["a"]}


def test_all_or_nothing_takes_no_part_and_is_passed_over_for_thirty_seconds() -> None:
    whole = {"allocation_policy": names.ALLOCATE_ALL}
    dealt = deal([pod("a")], [wants("whole", 2, age=29, **whole), wants("small", 1)])
    assert got(dealt) == {"small": ["a"]}
    assert dealt.demand == 2


def test_all_or_nothing_holds_back_what_would_fit_it_after_thirty_seconds() -> None:
    whole = {"allocation_policy": names.ALLOCATE_ALL}
    dealt = deal([pod("a")], [wants("whole", 2, age=30, **whole), wants("small", 1)])
    assert got(dealt) == {}
    assert codes(dealt)["small"] == names.WAIT_FOR_OTHERS
    assert (dealt.demand, dealt.reserved) == (2, 1)


def test_two_all_or_nothing_sandboxes_never_end_half_served() -> None:
    whole = {"allocation_policy": names.ALLOCATE_ALL}
    stock = [pod(n) for n in "abcd"]
    dealt = deal(stock, [wants("x", 3, age=2, **whole), wants("y", 3, age=1, **whole)], pool={"pool_max": 4})
    assert {name: len(pods) for name, pods in got(dealt).items()} == {"x": 3}


def test_a_sandbox_never_gets_a_pod_it_already_had() -> None:
    record = Record(pods=("a",), uids=("uid-a",))
    dealt = deal([pod("a"), pod("b")], [wants("s", 1, holds=1, record=record, age=9), wants("t", 1)])
    assert got(dealt) == {"s": ["b"], "t": ["a"]}


def test_a_pod_that_its_waiter_had_before_counts_as_demand_for_another_one() -> None:
    record = Record(pods=("a",), uids=("uid-a",))
    dealt = deal([pod("a")], [wants("s", 1, holds=1, record=record)])
    assert (got(dealt), dealt.demand, dealt.reserved) == ({}, 1, 0)


def test_fair_share_serves_the_tenant_that_has_least_for_its_weight() -> None:
    fair = Fairness("team", {"blue": 2})
    waiting = [
        wants("r1", 2, age=9, labels={"team": "red"}),
        wants("r2", 2, age=8, labels={"team": "red"}),
        wants("b1", 2, age=7, labels={"team": "blue"}),
        wants("b2", 2, age=6, labels={"team": "blue"}),
    ]
    dealt = deal(
        [pod(f"p{i}") for i in range(6)],
        waiting,
        pool={"fairness": fair},
        held_by_tenant={"red": 1, "blue": 1},
    )
    assert set(got(dealt)) == {"b1", "r1", "b2"}


@pytest.mark.parametrize(
    ("why", "told", "counts", "rest"),
    [
        ("true", "", {"free": 1}, ""),
        ("new image", " (new image)", {"free": 1}, ""),
        ("true", "", {"held": 3}, "; all 3 pods of poolMax are taken"),
    ],
    ids=["plain", "with a reason", "and full"],
)
def test_on_hold_a_waiter_is_told_of_the_hold_first(why: str, told: str, counts: dict[str, int], rest: str) -> None:
    held = {"pool_max": 3, "hold": True, "annotations": {names.HOLD: why}}
    dealt = deal([pod("a")], [wants("s", 1)], pool=held, counts=counts)
    assert dealt.waiting["uid-s"].detail == f"the pool is on hold{told}, nothing is handed out{rest}"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ledger_ready": False}, names.WAIT_LEDGER_REBUILDING),
        ({"pool": {"deleting": NOW}}, names.WAIT_POOL_DELETING),
        ({"pool": {"template": None}}, names.WAIT_POOL_SPEC_INVALID),
        ({"create_failing": "exceeded quota"}, names.WAIT_CANNOT_CREATE),
        ({"pool": {"pool_max": 3}, "counts": {"held": 3}}, names.WAIT_CAPACITY),
        ({"pool": {"pool_max": 3}, "counts": {"held": 2, "doom": 1}}, names.WAIT_NO_READY_POD),
        ({}, names.WAIT_NO_READY_POD),
    ],
    ids=["rebuilding", "deleting", "no-template", "quota", "at-max", "at-max-but-one-leaves", "starting"],
)
def test_each_cause_of_waiting_has_its_own_code(change: dict[str, Any], code: str) -> None:
    dealt = deal([], [wants("s", 1)], **change)
    assert codes(dealt) == {"s": code}
    assert dealt.waiting["uid-s"].cannot_grow == (code == names.WAIT_CAPACITY)


def test_nothing_is_granted_while_the_pool_is_held() -> None:
    assert got(deal([pod("a")], [wants("s", 1)], pool={"hold": True})) == {}


def test_the_place_in_the_line_counts_those_beyond_the_head_that_was_read() -> None:
    dealt = deal([], [wants("a", 1, age=9), wants("b", 2)], line=180)
    found = dealt.waiting["uid-b"]
    assert (found.missing, found.position, found.line) == (2, 2, 180)


@given(
    stock=st.integers(0, 12),
    asked=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 90), st.integers(-5, 5), st.booleans()), max_size=7),
    spread=st.booleans(),
)
def test_no_pod_goes_to_two_and_the_total_is_kept(stock, asked, spread) -> None:  # type: ignore[no-untyped-def]
    waiting = [
        wants(
            f"s{i}",
            count,
            age=age,
            priority=priority,
            allocation_policy=names.ALLOCATE_ALL if whole else names.ALLOCATE_PARTIAL,
        )
        for i, (count, age, priority, whole) in enumerate(asked)
    ]
    placement = names.PLACEMENT_SPREAD if spread else names.PLACEMENT_PACKED
    dealt = deal([pod(f"p{i}") for i in range(stock)], waiting, pool={"placement": placement})
    given_out = [name for pods in got(dealt).values() for name in pods]
    assert len(given_out) == len(set(given_out)) <= stock
    assert dealt.unmet == sum(count for count, *_ in asked) - len(given_out)
    for i, (count, _, _, whole) in enumerate(asked):
        assert not whole or len(got(dealt).get(f"s{i}", [])) in (0, count)
