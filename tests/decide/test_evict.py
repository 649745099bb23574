"""Idle pods that must leave: who, how fast, and what a stuck pod costs."""

from __future__ import annotations

from typing import Any

import msgspec

from osb.decide.evict import must_leave, pause_ms, pods_to_evict, stuck_replacement
from osb.facts.pod import PodFact
from osb.facts.poolview import NodeFact

MINUTE = 60_000


def pod(name: str, **kw: Any) -> PodFact:
    return PodFact("ns", name, f"uid-{name}", "1", **{"phase": "Running", "ready": True, **kw})


def test_labelled_pods_and_pods_on_leaving_nodes_must_go_with_a_reason() -> None:
    nodes = {"n1": NodeFact(name="n1", unschedulable=True), "n2": NodeFact(name="n2", draining=True)}
    idle = [pod("a", evict="true"), pod("b", node="n1"), pod("c", node="n2"), pod("d", node="n3"), pod("e")]
    assert must_leave(idle, nodes, evicts=True) == {
        "a": "evict label",
        "b": "node n1 is cordoned",
        "c": "node n2 is drained",
    }


def test_nodes_do_not_matter_when_they_are_not_watched() -> None:
    assert must_leave([pod("b", node="n1")], None, evicts=True) == {}


def test_an_unknown_handler_evicts_nothing() -> None:
    assert must_leave([pod("a", evict="true")], None, evicts=False) == {}


def test_a_terminating_pod_is_not_evicted_again() -> None:
    assert must_leave([pod("a", evict="true", deleting=5)], None, evicts=True) == {}


def test_evictions_are_paced_and_wait_for_those_in_flight() -> None:
    leaving = [pod(f"p{i}", evict="true") for i in range(10)]
    assert len(pods_to_evict(leaving, budget=3, in_flight=0)) == 3
    assert len(pods_to_evict(leaving, budget=3, in_flight=2)) == 1
    assert pods_to_evict(leaving, budget=3, in_flight=5) == []


def test_the_pause_between_replacements_doubles_up_to_half_an_hour() -> None:
    assert [pause_ms(n) // MINUTE for n in range(7)] == [0, 2, 4, 8, 16, 30, 30]


def run_stuck(minutes: int, count: int) -> list[int]:
    """Pods that never get ready, one pass every ten seconds: the minutes at which one was replaced."""
    pods = [pod(f"p{i}", ready=False, phase="Pending", created=0, last_transition=0) for i in range(count)]
    replaced, last, at = 0, 0, []
    for now in range(0, minutes * MINUTE, 10_000):
        found = stuck_replacement(pods, pods, replaced=replaced, last_ms=last, now_ms=now)
        replaced, last = found.count, found.last_ms
        if found.replace is not None:
            at.append(now // MINUTE)
            pods = [p for p in pods if p.name != found.replace.name]
            pods.append(pod(f"n{now}", ready=False, phase="Pending", created=now, last_transition=now))
    return at


def test_an_image_that_never_pulls_costs_four_replacements_in_half_an_hour() -> None:
    assert run_stuck(30, 1) == [2, 4, 8, 16]
    assert len(run_stuck(30, 10)) == 4


def test_a_pod_that_became_ready_ends_the_back_off() -> None:
    stuck = pod("s", ready=False, created=0)
    ready = pod("r", ready_since=11 * MINUTE)
    waiting = stuck_replacement([stuck], [stuck], replaced=3, last_ms=10 * MINUTE, now_ms=12 * MINUTE)
    assert waiting.replace is None
    assert waiting.again == 6 * 60
    found = stuck_replacement([stuck, ready], [stuck], replaced=3, last_ms=10 * MINUTE, now_ms=12 * MINUTE)
    assert found.replace == stuck
    assert found.count == 1


def test_unschedulable_pods_are_held() -> None:
    held = pod("s", ready=False, phase="Pending", unschedulable=True)
    assert stuck_replacement([held], [held], replaced=0, last_ms=0, now_ms=99 * MINUTE).replace is None


def test_a_pod_that_still_moves_is_not_stuck_and_is_looked_at_again() -> None:
    moving = pod("s", ready=False, last_transition=9 * MINUTE)
    found = stuck_replacement([moving], [moving], replaced=0, last_ms=0, now_ms=10 * MINUTE)
    assert found.replace is None
    assert found.again == 60
    later = msgspec.structs.replace(moving, last_transition=8 * MINUTE)
    assert stuck_replacement([later], [later], replaced=0, last_ms=0, now_ms=10 * MINUTE).replace == later
