"""What the steps of a full pass hand on (`Work`), and who leaves the stock in it.

Ended and tainted pods go at once, evicted ones paced, old ones within the rollout's budget, a stuck one after its
pause (spec/pool.md 8, 10; spec/pitfalls.md 23). In and out: `Work`. Next: `osb.decide.pool` sizes what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from osb.api import names
from osb.api.times import to_ms
from osb.decide import evict
from osb.decide.plan import Doom
from osb.decide.poolsort import Sorted
from osb.decide.rollout import Rollout, rollout
from osb.facts import ledger
from osb.facts.pod import PodFact
from osb.facts.poolview import PoolView

LOOK_AGAIN = 1.0  # seconds, while something is open that no event may announce


@dataclass(slots=True)
class Work:
    """What the steps hand on. `stock`: idle pods that may be given away or removed now."""

    view: PoolView
    found: Sorted
    stock: dict[str, PodFact]
    budget: int
    dooms: list[Doom] = field(default_factory=list)
    again: float | None = None
    reasons: list[str] = field(default_factory=list)
    remember: dict[str, object] = field(default_factory=dict)

    def look_in(self, seconds: float | None) -> None:
        if seconds is not None:
            self.again = seconds if self.again is None else min(self.again, seconds)

    def doom(self, pods: Iterable[PodFact], why: str, reason: str = "") -> None:
        for pod in pods:
            self.stock.pop(pod.name, None)
            state = self.view.entries[pod.name].state
            self.dooms.append(Doom(pod.name, pod.uid, pod.version, state, why, reason))


def leave(work: Work) -> Rollout:
    """Ended and tainted pods at once, evictions paced, then old ones within their budget, then a stuck one."""
    found, view = work.found, work.view
    work.doom(found.ended, "ended")
    work.doom(found.tainted, "unknown history")
    for pod in found.doomed:
        if not pod.deleting:
            work.dooms.append(Doom(pod.name, pod.uid, pod.version, ledger.DOOM, "removal repeated"))
            work.look_in(LOOK_AGAIN)
    leaving = [pod for pod in found.idle if pod.name in found.evicting]
    gone = evict.pods_to_evict(leaving, budget=work.budget, in_flight=len(found.doomed))
    for pod in gone:
        work.doom([pod], found.evicting[pod.name], names.EVENT_POD_EVICTED)
    if leaving:
        work.reasons.append(f"{len(leaving)} idle pods must leave; {len(gone)} go now")
    rolled = rolled_out(work, evicted=len(leaving))
    work.doom(rolled.replace, "rolling update", names.EVENT_POD_UPDATED)
    work.reasons.extend(rolled.reasons)
    if not view.mirror_fresh:
        return rolled
    _replace_stuck(work)
    return rolled


def rolled_out(work: Work, *, evicted: int = 0) -> Rollout:
    """Old pods; none is replaced while creates are refused or not possible, since nothing would take its place."""
    view, found = work.view, work.found
    able = view.pool.creatable and not view.memory.create_failures and not view.pool.hold and view.mirror_fresh
    rolled = rollout(
        work.stock.values(),
        found.held,
        revision=view.revision,
        unavailable=view.pool.update_unavailable,
        gone_soon=len(found.doomed) + len(found.unseen) + evicted,
        may_remove_pending=work.budget - len(found.doomed),
    )
    return rolled if able else replace(rolled, replace=(), reasons=())


def _replace_stuck(work: Work) -> None:
    memory = work.view.memory
    stuck = evict.stuck_replacement(
        work.view.pods.values(),
        work.stock.values(),
        replaced=memory.stuck_replaced,
        last_ms=memory.stuck_last_ms,
        now_ms=to_ms(work.view.now),
    )
    work.look_in(stuck.again)
    if stuck.replace is not None:
        work.doom([stuck.replace], "stuck")
        work.reasons.append(f"pod {stuck.replace.name} did not get ready and is replaced ({cause(stuck.replace)})")
    if (stuck.count, stuck.last_ms) != (memory.stuck_replaced, memory.stuck_last_ms):
        work.remember |= {"stuck_replaced": stuck.count, "stuck_last_ms": stuck.last_ms}


def cause(pod: PodFact) -> str:
    """What an idle pod that is not ready waits for, in a word."""
    if pod.unschedulable:
        return "unschedulable"
    reasons = [reason for _, reason in pod.waiting if reason]
    return reasons[0] if reasons else (f"phase {pod.phase}" if pod.phase != "Running" else "not ready")
