"""Which idle pods must leave the stock: evict label, cordoned or draining node, ended, stuck (spec/pool.md 10).

Ended pods go at once. Evictions are paced by the scale budget. A stuck pod (not ready, no transition for
two minutes) is replaced one at a time, the pause doubling until some pod becomes Ready; unschedulable pods
are held, because another one would not fit either. Held pods are never evicted; they are looked at again
after their release.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from osb.facts.pod import PodFact
from osb.facts.poolview import NodeFact

GRACE_MS = 120_000  # since the last transition of a pod that does not get ready
LONGEST_PAUSE_MS = 1_800_000


def eviction_cause(pod: PodFact, nodes: Mapping[str, NodeFact] | None) -> str:
    """Why this idle pod should leave, "" when it may stay. Nodes count only when they are watched."""
    if pod.evict:
        return "evict label"
    node = nodes.get(pod.node) if nodes and pod.node else None
    if node is None:
        return ""
    if node.draining:
        return f"node {node.name} is drained"
    return f"node {node.name} is cordoned" if node.unschedulable else ""


def must_leave(idle: Iterable[PodFact], nodes: Mapping[str, NodeFact] | None, *, evicts: bool) -> dict[str, str]:
    """Idle pods with a cause to leave, by name. Nothing under an unknown eviction handler."""
    if not evicts:
        return {}
    causes = ((pod, eviction_cause(pod, nodes)) for pod in idle if pod.live)
    return {pod.name: cause for pod, cause in causes if cause}


def pods_to_evict(leaving: Iterable[PodFact], *, budget: int, in_flight: int) -> list[PodFact]:
    """The next ones to go: not ready first, then oldest, as many as the budget has left."""
    order = sorted(leaving, key=lambda p: (p.ready, p.created, p.name))
    return order[: max(0, budget - in_flight)]


@dataclass(frozen=True, slots=True)
class Stuck:
    """What is to be done about stuck pods.

    `replace`: the pod whose time has come, None when none is due.
    `count`, `last_ms`: what to remember: replacements in a row, and the time of the last.
    `stuck`: how many pods are stuck.
    `again`: seconds until the next look, None when nothing is stuck or starting.
    """

    replace: PodFact | None
    count: int
    last_ms: int
    stuck: int = 0
    again: float | None = None


def stuck_pods(idle: Iterable[PodFact], now_ms: int) -> list[PodFact]:
    """Idle pods, live, not ready, not unschedulable, that have not moved for the grace time; oldest first."""
    waiting = (p for p in idle if p.live and not p.ready and not p.unschedulable)
    found = [p for p in waiting if now_ms - moved_at(p) >= GRACE_MS]
    return sorted(found, key=lambda p: (moved_at(p), p.name))


def moved_at(pod: PodFact) -> int:
    """When the pod last changed its state."""
    return max(pod.last_transition, pod.created)


def pause_ms(replaced: int) -> int:
    """How long to wait after so many replacements in a row: 2, 4, 8, 16, at most 30 minutes."""
    if replaced <= 0:
        return 0
    return int(min(GRACE_MS * 2 ** min(replaced - 1, 10), LONGEST_PAUSE_MS))


def stuck_replacement(
    pods: Iterable[PodFact], idle: Iterable[PodFact], *, replaced: int, last_ms: int, now_ms: int
) -> Stuck:
    """At most one replacement a pass.

    `pods` are all pods of the pool: one that became Ready since the last replacement resets the pause.
    """
    idle = list(idle)
    if replaced and any(p.ready and p.ready_since > last_ms for p in pods):
        replaced = 0
    stuck = stuck_pods(idle, now_ms)
    ready_at = last_ms + pause_ms(replaced)
    if stuck and now_ms >= ready_at:
        next_pause = pause_ms(replaced + 1) / 1000
        return Stuck(stuck[0], replaced + 1, now_ms, len(stuck), next_pause)
    return Stuck(None, replaced, last_ms, len(stuck), _look_again(idle, stuck, ready_at, now_ms))


def _look_again(idle: list[PodFact], stuck: list[PodFact], ready_at: int, now_ms: int) -> float | None:
    if stuck:
        return max(1.0, (ready_at - now_ms) / 1000)
    starting = [moved_at(p) for p in idle if p.live and not p.ready and not p.unschedulable]
    return max(1.0, (min(starting) + GRACE_MS - now_ms) / 1000) if starting else None
