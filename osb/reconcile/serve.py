"""The hot path: all waiters of one pool in one pass (design.md 5).

In: the line and the ready idle pods, read from Redis; no API reads. `osb.decide.allocate` deals for all waiters at
once, one script takes exactly those pods, then two patches per sandbox go out in parallel
(`osb.reconcile.deliver`). The pass costs what its waiters cost, whatever the size of the pool: the rest of a
pool's work is the full pass (`osb.reconcile.pool`).

If the ledger refuses (a pod was taken, a slot has one already), nothing was changed: what it named is left out and
the deal is made again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from osb.api import claims, names, times
from osb.api.pool import PoolSpec
from osb.apply.allocation import Settled
from osb.decide import allocate
from osb.decide.allocate import Dealt
from osb.decide.poolsort import taken_slots
from osb.errors import OsbError
from osb.facts.pod import PodFact
from osb.facts.poolview import Memory, ServeView, WaitingBox
from osb.obs import metrics, trace
from osb.reconcile import deliver, memory
from osb.reconcile.gather import Box
from osb.reconcile.world import Pass
from osb.store.ledger_types import Grant, Proof

TRIES = 3

Newcomers = Callable[[Collection[str]], "Stock | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What one deal is made from. `line` is the length of the whole line, `waiters` its head."""

    pool: PoolSpec
    revision: str
    waiters: Sequence[Box]
    available: Sequence[PodFact]
    counts: Mapping[str, int]
    line: int = 0
    create_failing: str = ""


@dataclass(slots=True)
class Served:
    """Result of serving. `again`: seconds until a reservation must be looked at, None when all is known."""

    dealt: Dealt = field(default_factory=Dealt)
    settled: list[Settled] = field(default_factory=list)
    again: float | None = None

    def add(self, dealt: Dealt, settled: Sequence[Settled] = (), *, again: float | None = None) -> None:
        """Add one more round of the same pass."""
        was = self.dealt
        self.dealt = Dealt(
            grants=was.grants + dealt.grants, unmet=was.unmet + dealt.unmet, demand=was.demand + dealt.demand,
            reserved=was.reserved + dealt.reserved, waiting={**was.waiting, **dealt.waiting},
            timed_out=was.timed_out + dealt.timed_out, reasons=was.reasons + dealt.reasons,
        )  # fmt: skip
        self.settled += settled
        waits = [w for w in (self.again, again, *(one.again for one in settled)) if w is not None]
        self.again = min(waits, default=None)

    def late(self, others: Sequence[Served]) -> None:
        """Add what was served beside the rest of the same pass.

        Who was served late had not waited for this deal, so the deal stays as it is.
        """
        for one in others:
            self.settled += one.settled
            self.again = min((w for w in (self.again, one.again) if w is not None), default=None)

    @property
    def pods(self) -> int:
        return sum(len(one.claim.pods) for one in self.settled if one.delivered)


def serve(p: Pass, proof: Proof, stock: Stock, *, more: Newcomers | None = None) -> Served:
    """Deal, reserve, claim; again for whoever came in meanwhile; then all statuses. Raises Fenced and LedgerNotReady.

    Endpoints come before statuses: a client can start when it has the endpoints, so the next newcomer's claim goes out
    before the last one's status. `more` is given the names that were looked at and returns a stock with others, None
    when there are none; it is asked after every claim that landed, which is an event and no timer.
    """
    served = Served()
    known: set[str] = set()
    round_: Stock | None = stock
    try:
        while round_ is not None:
            settled = _round(p, proof, round_, served)
            known.update(box.spec.name for box in round_.waiters)
            round_ = more(known) if more is not None and settled else None
    except OsbError:
        deliver.hand_over(p, served.settled)
        raise
    served.settled = deliver.publish(p, served.settled)
    return served


def _round(p: Pass, proof: Proof, stock: Stock, served: Served) -> bool:
    """One deal up to the settled ledger, added to `served`; True when a sandbox got pods."""
    ledger = p.store.ledger(p.key.namespace, p.key.name)
    boxes = {box.spec.uid: box for box in stock.waiters}
    pods = {pod.name: pod for pod in stock.available}
    barred: set[tuple[str, int]] = set()
    known = _known(p, stock)
    for _ in range(TRIES):
        waiting = [waiting_box(box, stock.pool.uid, barred) for box in boxes.values()]
        dealt = allocate.grants(_view(p, stock, known, waiting=waiting, available=list(pods.values())))
        if not dealt.grants:
            served.add(dealt)
            return False
        p.step("dealt")
        if trace.on:
            _mark(p, "dealt", dealt)
        taken = ledger.allocate(proof, uuid.uuid4().hex, _grants(dealt))
        p.step("reserved")
        if trace.on:
            trace.mark("reserved", p.key.text, p.token[:8])
        if taken.ok:
            todo = deliver.claims_of(p, dealt, boxes=boxes, pods=pods, pool=stock.pool)
            served.add(dealt, deliver.take_all(p, proof, todo))
            return True
        metrics.inc("opensandbox_ledger_conflicts_total", cause="pod_taken")
        for name in taken.pods:
            pods.pop(name, None)
        barred.update(taken.slots)
    served.add(Dealt(unmet=dealt.unmet, demand=dealt.demand), again=0.05)
    return False


def look(p: Pass, stock: Stock) -> Dealt:
    """What `serve` would deal now; takes nothing (`osbctl explain`)."""
    entries = p.store.ledger(p.key.namespace, p.key.name).state(entries=True).entries
    barred = {(uid, slot) for uid, slots in taken_slots(entries).items() for slot in slots}
    waiting = [waiting_box(box, stock.pool.uid, barred) for box in stock.waiters]
    return allocate.grants(_view(p, stock, _known(p, stock), waiting=waiting, available=stock.available))


def waiting_box(box: Box, pool_uid: str, barred: Collection[tuple[str, int]] = ()) -> WaitingBox:
    """The sandbox as the line sees it. `barred`: (sandbox UID, slot) of what the ledger has already."""
    spec = box.spec
    slots = tuple(slot for slot in claims.wants(spec, pool_uid) if (spec.uid, slot) not in barred)
    return WaitingBox(box=spec, slots=slots, holds=len(claims.claims(spec)), waits_since=_since(box))


def _since(box: Box) -> datetime | None:
    condition = box.spec.condition(names.PROGRESSING)
    return times.parse_or_none(condition.get("lastTransitionTime")) if condition else None


def _known(p: Pass, stock: Stock) -> Memory:
    """What the full pass knows of all sandboxes, needed only for fair share and when pods are scarce."""
    wanted = sum(box.spec.replicas for box in stock.waiters)
    scarce = wanted > len(stock.available)  # for one waiter too: it must be told why
    return memory.recall(p, stock.pool) if stock.pool.fairness or scarce else Memory()


def _view(
    p: Pass, stock: Stock, known: Memory, *, waiting: list[WaitingBox], available: Sequence[PodFact]
) -> ServeView:
    return ServeView(
        now=p.now(), pool=stock.pool, revision=stock.revision, waiting=waiting, available=available,
        counts=stock.counts, line=stock.line, create_failing=stock.create_failing,
        held_for_ever=known.held_for_ever, held_by_tenant=known.held_by_tenant,
    )  # fmt: skip


def _mark(p: Pass, stage: str, dealt: Dealt) -> None:
    for grant in dealt.grants:
        trace.mark(stage, f"{p.key.namespace}/{grant.box}", p.token[:8])


def _grants(dealt: Dealt) -> list[Grant]:
    return [
        Grant(pod=pod, pod_uid=uid, box_uid=grant.uid, box=grant.box, slot=slot)
        for grant in dealt.grants
        for slot, pod, uid in grant.pods
    ]
