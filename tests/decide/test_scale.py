"""Scaling arithmetic: the required formula as a table, limits as properties, storms in simulated time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osb.api.intorstring import IntOrPercent
from osb.api.pool import PoolSpec, parse
from osb.decide.scale import Band, Numbers, scale, victims
from osb.decide.scale_target import target
from osb.facts.pod import PodFact

ALL = IntOrPercent(100, percent=True)
QUARTER = IntOrPercent(25, percent=True)


def band(low: int, high: int, floor: int, top: int, unavailable: IntOrPercent = QUARTER) -> Band:
    return Band(target=low, buffer_max=high, floor=floor, pool_max=top, unavailable=unavailable)


@pytest.mark.parametrize(
    ("limits", "numbers", "create", "delete"),
    [
        (band(1, 1, 0, 2), Numbers(), 1, 0),
        (band(10, 10, 0, 10), Numbers(), 3, 0),
        (band(10, 10, 0, 10), Numbers(pending=3), 0, 0),
        (band(10, 10, 0, 10, IntOrPercent(20, percent=True)), Numbers(), 2, 0),
        (band(5, 5, 0, 5, IntOrPercent(1)), Numbers(), 1, 0),
        (band(3, 3, 0, 2, ALL), Numbers(ready=1), 1, 0),
        (band(1, 4, 0, 10), Numbers(ready=6), 0, 2),
        (band(1, 4, 0, 10), Numbers(ready=3), 0, 0),
        (band(0, 0, 5, 10), Numbers(ready=5), 0, 0),
        (band(1, 2, 2, 3, ALL), Numbers(ready=5), 0, 3),
        (band(0, 4, 0, 10), Numbers(ready=5), 0, 1),
        (band(0, 10, 0, 3), Numbers(ready=5), 0, 2),
        (band(1, 1, 0, 10, ALL), Numbers(supply=2), 3, 0),
        (band(0, 10, 0, 100, ALL), Numbers(supply=3), 3, 0),
        (band(0, 10, 0, 100, ALL), Numbers(supply=3, pending=3), 0, 0),
        (band(2, 3, 3, 5), Numbers(leaving=3), 1, 0),
        (band(5, 10, 50, 70), Numbers(ready=50), 0, 0),
        (band(5, 10, 50, 70), Numbers(held=50), 5, 0),
        (band(2, 4, 0, 10), Numbers(ready=3, leaving=1, rolling=1), 1, 0),
        (band(2, 4, 0, 4), Numbers(ready=3, leaving=1, rolling=1), 0, 0),
        (band(2, 4, 0, 4), Numbers(held=1, leaving=3), 0, 0),
        (band(0, 0, 0, 0), Numbers(supply=9), 0, 0),
        (band(0, 2**31 - 1, 0, 2**31 - 1), Numbers(ready=5), 0, 0),
        (band(0, 3, 0, 1000), Numbers(ready=503), 0, 126),
        (band(0, 3, 0, 1000), Numbers(ready=403, leaving=126, doomed=126), 0, 0),
        (band(1, 2, 0, 4, ALL), Numbers(held=3, pending=0, supply=2), 1, 0),
        (band(4, 4, 0, 4), Numbers(leaving=4), 0, 0),
        (band(8, 8, 0, 20, ALL), Numbers(held=2, ready=5, leaving=3, rolling=3), 3, 0),
        (band(2, 4, 0, 20, ALL), Numbers(ready=9, leaving=3, rolling=3), 0, 5),
    ],
)
def test_the_required_formula(limits: Band, numbers: Numbers, create: int, delete: int) -> None:
    decision = scale(numbers, limits)
    assert (decision.create, decision.delete) == (create, delete)


def test_not_ready_held_pods_do_not_use_up_the_budget() -> None:
    # Given 8 held pods, some of them crashing: they appear in no other number
    decision = scale(Numbers(held=8, supply=4), band(0, 0, 0, 20))
    # Then a quarter of 12 may start at once
    assert decision.create == 3


def test_nothing_is_created_or_removed_while_a_create_is_unobserved() -> None:
    decision = scale(Numbers(ready=9, pending=1, unseen=1), band(0, 2, 0, 10))
    assert (decision.create, decision.delete) == (0, 0)
    assert decision.blocked == "1 create is not observed yet"


def test_a_cap_over_all_pools_limits_creates() -> None:
    limits = replace(band(5, 5, 0, 10, ALL), room=2)
    assert scale(Numbers(), limits).create == 2


numbers_strategy = st.builds(
    Numbers,
    held=st.integers(0, 30),
    ready=st.integers(0, 30),
    pending=st.integers(0, 30),
    leaving=st.integers(0, 10),
    suspect=st.integers(0, 5),
    supply=st.integers(0, 20),
)


@st.composite
def bands(draw: Any) -> Band:
    low, floor = draw(st.integers(0, 15)), draw(st.integers(0, 15))
    high, top = low + draw(st.integers(0, 15)), floor + draw(st.integers(0, 60))
    percent = draw(st.booleans())
    return band(low, high, floor, top, IntOrPercent(draw(st.integers(1, 120)), percent=percent))


@given(numbers_strategy, bands())
def test_never_above_max_never_both_and_never_more_idle_than_there_are(numbers: Numbers, limits: Band) -> None:
    decision = scale(numbers, limits)
    assert decision.create == 0 or numbers.all + decision.create <= limits.pool_max
    assert not (decision.create and decision.delete)
    assert decision.delete <= numbers.ready + numbers.pending
    if decision.delete and numbers.schedulable + numbers.suspect <= limits.pool_max:
        assert numbers.schedulable - decision.delete >= limits.floor


def settle(numbers: Numbers, limits: Band) -> list[tuple[int, int]]:
    """Carry out plan after plan; pods become Ready and removals finish between two of them."""
    history = []
    for _ in range(400):
        decision = scale(numbers, limits)
        if not decision.create and not decision.delete and not numbers.pending and not numbers.leaving:
            return history
        history.append((decision.create, decision.delete))
        ready_victims = max(0, decision.delete - min(numbers.pending, decision.spare_pending))
        pending = numbers.pending - (decision.delete - ready_victims)
        ready = numbers.ready - ready_victims
        ready, pending = ready + pending, decision.create  # what started is Ready by now
        served = min(ready, numbers.supply)
        numbers = replace(
            numbers,
            held=numbers.held + served,
            ready=ready - served,
            pending=pending,
            leaving=decision.delete,
            doomed=decision.delete,
            supply=numbers.supply - served,
        )
    raise AssertionError(f"no fixed point: {history[-6:]}")


@given(numbers_strategy, bands())
def test_repeated_plans_reach_a_fixed_point(numbers: Numbers, limits: Band) -> None:
    history = settle(replace(numbers, suspect=0), limits)
    directions = [1 if create else -1 for create, delete in history if create or delete]
    turns = sum(1 for a, b in pairwise(directions) if a != b)
    assert turns <= 1


# -- time: pods that need long to become Ready ---------------------------------------------------------------


@dataclass
class Storm:
    """A pool in simulated seconds: every second one pass, pods Ready `lead` seconds after their create."""

    limits: Band
    lead: int
    wants: int = 0
    held: int = 0
    created: int = 0
    deleted: int = 0

    def run(self, seconds: int, *, demand_at: dict[int, int]) -> None:
        births: list[int] = []
        for now in range(seconds):
            self.wants += demand_at.get(now, 0)
            ready = sum(1 for born in births if now - born >= self.lead)
            served = min(ready, self.wants)
            births = sorted(births)[served:]
            self.held, self.wants = self.held + served, self.wants - served
            ready -= served
            decision = scale(
                Numbers(held=self.held, ready=ready, pending=len(births) - ready, supply=self.wants),
                self.limits,
            )
            births += [now] * decision.create
            self.created += decision.create
            self.deleted += decision.delete


@pytest.mark.parametrize("unavailable", [QUARTER, ALL, IntOrPercent(7)], ids=str)
def test_slow_pods_are_created_once_and_none_is_removed_in_ten_minutes(unavailable: IntOrPercent) -> None:
    # Given bufferMin 5, bufferMax 10, pods that take 90 s to become Ready
    storm = Storm(band(5, 10, 0, 200, unavailable), lead=90)
    # When 30 are asked for while the buffer is still starting, and 3 more later
    storm.run(600 if unavailable == ALL else 1800, demand_at={0: 30, 120: 3})
    # Then what was needed was created, and nothing was thrown away
    need = 5 + 30 + 3
    assert need <= storm.created <= need * 1.15
    assert storm.deleted == 0
    assert storm.held == 33


def test_one_sandbox_that_wants_three_gets_three_and_the_pool_comes_to_rest() -> None:
    storm = Storm(band(0, 10, 0, 100, ALL), lead=40)
    storm.run(300, demand_at={0: 3})
    assert (storm.created, storm.deleted, storm.held) == (3, 0, 3)


# -- victims -------------------------------------------------------------------------------------------------


def pod(name: str, **kw: Any) -> PodFact:
    fields = {"phase": "Running", "ready": True, "scheduled": 1, "created": 100, "revision": "r1", **kw}
    return PodFact("ns", name, f"uid-{name}", "1", **fields)


def test_the_least_useful_pod_goes_first() -> None:
    in_order = [
        pod("ended", phase="Failed", ready=False),
        pod("unscheduled", phase="Pending", ready=False, scheduled=0),
        pod("starting", phase="Pending", ready=False),
        pod("old-template", revision="r0"),
        pod("restarted", restarts=3),
        pod("newest", created=900),
        pod("a"),
        pod("b"),
    ]
    chosen = victims(reversed(in_order), 8, revision="r1")
    assert [p.name for p in chosen] == [p.name for p in in_order]


def test_pending_pods_go_when_pool_max_is_lowered() -> None:
    # Given 10 ready and 5 pending idle pods and poolMax 10
    ready = [pod(f"r{i}") for i in range(10)]
    pending = [pod(f"p{i}", ready=False, phase="Pending") for i in range(5)]
    gone: set[str] = set()
    # When pass follows pass until nothing more is planned
    for _ in range(10):
        left = [p for p in (*ready, *pending) if p.name not in gone]
        numbers = Numbers(ready=sum(p.ready for p in left), pending=sum(not p.ready for p in left))
        decision = scale(numbers, band(0, 20, 0, 10))
        chosen = victims(left, decision.delete, revision="r1", pending_limit=decision.spare_pending)
        gone |= {p.name for p in chosen}
    # Then the pending ones are gone and nothing else
    assert gone == {p.name for p in pending}


def test_pending_pods_that_a_waiter_will_get_are_not_chosen_for_lack_of_demand() -> None:
    decision = scale(Numbers(ready=8, pending=2, supply=2), band(0, 5, 0, 100, ALL))
    stock = [pod(f"r{i}") for i in range(8)] + [pod(f"p{i}", ready=False) for i in range(2)]
    chosen = victims(stock, decision.delete, revision="r1", pending_limit=decision.spare_pending)
    assert decision.delete == 3
    assert all(p.ready for p in chosen)


# -- targets -------------------------------------------------------------------------------------------------

MONDAY = datetime(2026, 5, 4, 8, 30, tzinfo=UTC)


def pool(**spec: Any) -> PoolSpec:
    capacity = {"bufferMin": 2, "bufferMax": 20, "poolMin": 0, "poolMax": 50}
    return parse({"metadata": {"namespace": "ns", "name": "warm"}, "spec": {"capacitySpec": capacity, **spec}})


def test_without_sizing_the_target_is_buffer_min() -> None:
    found = target(pool(), MONDAY)
    assert (found.idle, found.reason, found.floor, found.again) == (2, "bufferMin", 0, None)


def test_demand_times_lead_time_raises_the_target_with_headroom() -> None:
    sizing = {"demand": {"windowSeconds": 300, "headroomPercent": 20}}
    found = target(pool(sizing=sizing), MONDAY, per_second=0.5, lead=20)
    assert (found.idle, found.reason) == (12, "demand")
    assert target(pool(sizing=sizing), MONDAY, per_second=0.1).idle == 4  # 30 s while unknown
    assert target(pool(sizing=sizing), MONDAY, per_second=9, lead=90).idle == 20  # never above bufferMax


def test_an_active_schedule_raises_target_and_floor_and_names_itself() -> None:
    sizing = {"schedules": [{"name": "morning", "start": "0 8 * * *", "durationMinutes": 60, "idle": 9, "total": 12}]}
    found = target(pool(sizing=sizing), MONDAY)
    assert (found.idle, found.reason, found.floor) == (9, "schedule morning", 12)
    later = target(pool(sizing=sizing), MONDAY + timedelta(hours=1))
    assert (later.idle, later.reason, later.floor) == (2, "bufferMin", 0)


def test_what_pool_max_leaves_bounds_the_target() -> None:
    found = target(pool(), MONDAY, held=49)
    assert (found.idle, found.reason) == (1, "poolMax")


def test_a_crossed_buffer_band_is_read_the_other_way_round() -> None:
    crossed = parse(
        {
            "metadata": {"namespace": "ns", "name": "warm"},
            "spec": {"capacitySpec": {"bufferMin": 6, "bufferMax": 2, "poolMin": 9, "poolMax": 4}},
        }
    )
    assert (crossed.buffer_min, crossed.buffer_max, crossed.pool_min) == (2, 6, 4)
    assert target(crossed, MONDAY).idle == 2
