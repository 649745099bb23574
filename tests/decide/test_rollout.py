"""Rolling an old template out: budgets, and what never counts against them."""

from __future__ import annotations

from typing import Any

from osb.api.intorstring import IntOrPercent, parse
from osb.decide.rollout import Rollout, rollout
from osb.facts.pod import PodFact

QUARTER = IntOrPercent(25, percent=True)


def pod(name: str, rev: str = "v1", *, ready: bool = True, created: int = 1) -> PodFact:
    phase = "Running" if ready else "Pending"
    return PodFact("ns", name, f"uid-{name}", "1", phase=phase, ready=ready, scheduled=1, created=created, revision=rev)


def roll(idle: list[PodFact], *, held: list[PodFact] | None = None, unavailable: Any = "25%", **kw: int) -> Rollout:
    return rollout(
        idle,
        held or [],
        revision="v2",
        unavailable=parse(unavailable, field="x"),
        gone_soon=kw.get("gone_soon", 0),
        may_remove_pending=kw.get("may_remove_pending", 99),
    )


def replaced(found: Rollout) -> list[str]:
    return [p.name for p in found.replace]


def test_a_quarter_of_four_ready_pods_is_replaced_newest_first() -> None:
    found = roll([pod(f"pod-{i}", created=i) for i in range(1, 5)])
    assert replaced(found) == ["pod-4"]
    assert (found.old, found.updated) == (4, 0)


def test_a_pod_that_is_not_ready_uses_no_budget_but_leaves_none_for_ready_ones() -> None:
    assert replaced(roll([pod("pod-1", ready=False), *(pod(f"pod-{i}") for i in range(2, 5))])) == ["pod-1"]


def test_crashed_pods_of_tenants_do_not_use_up_the_budget() -> None:
    # Given two held pods that are not ready and two ready idle ones, half of four may be unavailable
    held = [pod("h1", ready=False), pod("h2", ready=False)]
    # Then both idle pods are replaced
    assert replaced(roll([pod("a"), pod("b")], held=held, unavailable="50%")) == ["a", "b"]


def test_current_pods_stay() -> None:
    found = roll([pod("a"), pod("b", "v2"), pod("c")], unavailable="100%")
    assert replaced(found) == ["a", "c"]
    assert (found.old, found.updated) == (2, 1)


def test_held_pods_are_never_rolled_out() -> None:
    found = roll([], held=[pod("h1"), pod("h2")], unavailable="100%")
    assert (replaced(found), found.old) == ([], 2)


def test_pods_on_their_way_out_count_as_unavailable_so_batches_do_not_overlap() -> None:
    assert replaced(roll([pod(f"p{i}") for i in range(8)], gone_soon=2)) == []


def test_old_pods_that_are_still_starting_are_replaced_within_the_scale_budget() -> None:
    idle = [pod(f"p{i}", ready=False) for i in range(6)]
    assert len(replaced(roll(idle, may_remove_pending=2))) == 2
