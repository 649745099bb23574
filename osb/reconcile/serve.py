"""The hot path: all waiters of one pool in one pass (design.md 5).

In: the line and the ready idle pods, read from Redis; no API reads. `osb.decide.allocate` deals for all waiters at
once, one script takes exactly those pods, then two patches per sandbox go out in parallel. The pass costs what its
waiters cost, whatever the size of the pool: the rest of a pool's work is the full pass (`osb.reconcile.pool`).

If the ledger refuses (a pod was taken, a slot has one already), nothing was changed: what it named is left out and
the deal is made again.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from osb.api import claims, names, times
from osb.api.key import BATCHSANDBOX, Key
from osb.api.pool import PoolSpec
from osb.apply.allocation import Claim, Settled, deliver
from osb.apply.hand import in_parallel
from osb.decide import allocate
from osb.decide.allocate import Dealt
from osb.decide.plan import names_text
from osb.facts.adds import Add
from osb.facts.pod import PodFact
from osb.facts.poolview import Memory, ServeView, WaitingBox
from osb.obs import metrics, trace
from osb.obs.log import get_logger
from osb.reconcile import gather, memory
from osb.reconcile.gather import Box
from osb.reconcile.world import Pass
from osb.store.ledger_types import Grant, Proof

log = get_logger("reconcile")

TRIES = 3


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

    @property
    def pods(self) -> int:
        return sum(len(one.claim.pods) for one in self.settled if one.delivered)


def serve(p: Pass, proof: Proof, stock: Stock) -> Served:
    """Deal, reserve, deliver. Raises Fenced and LedgerNotReady."""
    ledger = p.store.ledger(p.key.namespace, p.key.name)
    boxes = {box.spec.uid: box for box in stock.waiters}
    pods = {pod.name: pod for pod in stock.available}
    barred: set[tuple[str, int]] = set()
    known = _known(p, stock)
    for _ in range(TRIES):
        waiting = [_waiting(box, stock.pool.uid, barred) for box in boxes.values()]
        dealt = allocate.grants(_view(p, stock, known, waiting=waiting, available=list(pods.values())))
        if not dealt.grants:
            return Served(dealt)
        p.step("dealt")
        if trace.on:
            _mark(p, "dealt", dealt)
        taken = ledger.allocate(proof, uuid.uuid4().hex, _grants(dealt))
        p.step("reserved")
        if trace.on:
            trace.mark("reserved", p.key.text, p.token[:8])
        if taken.ok:
            return _deliver(p, proof, dealt, boxes=boxes, pods=pods, pool=stock.pool)
        metrics.inc("opensandbox_ledger_conflicts_total", cause="pod_taken")
        for name in taken.pods:
            pods.pop(name, None)
        barred.update(taken.slots)
    return Served(Dealt(unmet=dealt.unmet, demand=dealt.demand), again=0.05)


def look(p: Pass, stock: Stock) -> Dealt:
    """What `serve` would deal now; takes nothing (`osbctl explain`)."""
    waiting = [_waiting(box, stock.pool.uid, set()) for box in stock.waiters]
    return allocate.grants(_view(p, stock, _known(p, stock), waiting=waiting, available=stock.available))


def _waiting(box: Box, pool_uid: str, barred: set[tuple[str, int]]) -> WaitingBox:
    spec = box.spec
    slots = tuple(slot for slot in claims.wants(spec, pool_uid) if (spec.uid, slot) not in barred)
    return WaitingBox(box=spec, slots=slots, holds=len(claims.claims(spec)), waits_since=_since(box))


def _since(box: Box) -> datetime | None:
    condition = box.spec.condition(names.PROGRESSING)
    return times.parse_or_none(condition.get("lastTransitionTime")) if condition else None


def _known(p: Pass, stock: Stock) -> Memory:
    """What the full pass knows of all sandboxes, needed only for fair share and when pods are scarce."""
    wanted = sum(box.spec.replicas for box in stock.waiters)
    scarce = wanted > len(stock.available) and len(stock.waiters) > 1
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


def _deliver(
    p: Pass,
    proof: Proof,
    dealt: Dealt,
    *,
    boxes: Mapping[str, Box],
    pods: Mapping[str, PodFact],
    pool: PoolSpec,
) -> Served:
    todo = []
    for grant in dealt.grants:
        box = boxes[grant.uid]
        given = {slot: pods[name] for slot, name, _ in grant.pods}
        kept = claims.slots(box.spec) if box.spec.record is not None else {}
        held = gather.matching(kept, gather.pods_named(p, "poolpod", [n for n, _ in kept.values()])) if kept else {}
        todo.append(Claim(pool=pool.name, pool_uid=pool.uid, box=box.spec, raw=box.raw, pods=given, held=held))
    results = [one for one in in_parallel(p, lambda claim: deliver(p, claim), todo) if isinstance(one, Settled)]
    conclude(p, proof, results)
    served = Served(dealt, results)
    waits = [one.again for one in results if one.again is not None]
    served.again = min(waits) if waits else None
    return served


def conclude(p: Pass, proof: Proof, results: Sequence[Settled]) -> None:
    """Ledger moves in one script, then everything stored into the mirror, then journal, metrics and events."""
    moves = [move for one in results for move in one.moves]
    p.step("delivered")
    if moves:
        p.store.ledger(p.key.namespace, p.key.name).move(proof, moves)
    p.step("settled")
    stored = [one.stored for one in results if one.stored is not None]
    if stored:
        p.forward.put("batchsandbox", stored, own=p.key, versioned=True)
    delivered = [one for one in results if one.delivered]
    untold = [Key(BATCHSANDBOX, p.key.namespace, one.claim.box.name) for one in delivered if not one.told]
    if untold:
        p.store.queue.add(Add(key=key, reason="its pods are recorded, its status is not") for key in untold)
    if delivered:
        _tell(p, delivered)
    for one in results:
        if not one.delivered or one.cause:
            log.info("a claim was not simply accepted", pool=p.key.member, sandbox=one.claim.box.name,
                     cause=one.cause, moves=[m.what for m in one.moves])  # fmt: skip


def _tell(p: Pass, delivered: Sequence[Settled]) -> None:
    now = p.now()
    entries = []
    for one in delivered:
        box, claim = one.claim.box, one.claim
        names_ = [pod.name for _, pod in sorted(claim.pods.items())]
        entries.append({
            "what": "allocated", "pool": p.key.member, "box": box.member, "pods": names_,
            "slots": sorted(claim.pods), "pass": p.token[:8], "why": p.reason or "waiting",
        })  # fmt: skip
        full = len(claim.pods) + len(claim.held) >= box.replicas
        if full:
            waited = max(0.0, (now - box.created).total_seconds())
            metrics.observe("opensandbox_pool_allocation_seconds", waited, namespace=p.key.namespace, pool=p.key.name)
        p.events.emit(one.claim.raw, "Normal", names.EVENT_SCHEDULED, _scheduled(p.key.name, names_),
                      component=names.COMPONENT_POOL)  # fmt: skip
    p.store.journal.append(*entries)
    _tell_pool(p, delivered)


def _tell_pool(p: Pass, delivered: Sequence[Settled]) -> None:
    """One event on the Pool a pass, of the claims that the API server has accepted."""
    meta = {"namespace": p.key.namespace, "name": p.key.name, "uid": delivered[0].claim.pool_uid}
    pool = {"apiVersion": names.API_VERSION, "kind": names.KIND_POOL, "metadata": meta}
    if len(delivered) == 1:
        box, given = delivered[0].claim.box.name, [pod.name for pod in delivered[0].claim.pods.values()]
        text = f"Allocated {len(given)} pod(s) to sandbox {box}: {names_text(given)}"
    else:
        count = sum(len(one.claim.pods) for one in delivered)
        boxes = names_text([one.claim.box.name for one in delivered])
        text = f"Allocated {count} pod(s) to {len(delivered)} sandboxes: {boxes}"
    p.events.emit(pool, "Normal", names.EVENT_ALLOCATION_SUCCEEDED, text, component=names.COMPONENT_POOL)


def _scheduled(pool: str, pods: Sequence[str]) -> str:
    return f"Successfully assigned {len(pods)} pod(s) from pool {pool}: {names_text(list(pods))}"
