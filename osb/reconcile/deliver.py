"""What the ledger has reserved becomes what the client sees: claims, ledger, statuses, mirror, and who is told.

In: a deal whose pods the ledger has taken (`osb.reconcile.serve`), or reservations of an earlier pass
(`osb.reconcile.poolpass`). Out: every sandbox with its record and endpoints, the ledger settled, then every status,
then all of it in the mirror with one put, the journal, metrics and Events. API calls: `osb.apply.allocation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from osb.api import claims, names
from osb.api.batchsandbox import BoxSpec
from osb.api.key import BATCHSANDBOX, Key
from osb.api.pool import PoolSpec
from osb.apply.allocation import Claim, Settled, show, take
from osb.apply.hand import in_parallel
from osb.decide import boxevents
from osb.decide.allocate import Dealt
from osb.decide.plan import names_text
from osb.facts.adds import Add
from osb.facts.pod import PodFact
from osb.obs import metrics
from osb.obs.log import get_logger
from osb.reconcile import gather
from osb.reconcile.gather import Box, Obj
from osb.reconcile.world import Pass
from osb.store.ledger_types import Proof

log = get_logger("reconcile")


def claims_of(
    p: Pass, dealt: Dealt, *, boxes: Mapping[str, Box], pods: Mapping[str, PodFact], pool: PoolSpec
) -> list[Claim]:
    """One claim for each sandbox of the deal."""
    todo = []
    for grant in dealt.grants:
        box = boxes[grant.uid]
        given = {slot: pods[name] for slot, name, _ in grant.pods}
        kept = claims.slots(box.spec) if box.spec.record is not None else {}
        held = gather.matching(kept, gather.pods_named(p, "poolpod", [n for n, _ in kept.values()])) if kept else {}
        todo.append(Claim(pool=pool.name, pool_uid=pool.uid, box=box.spec, raw=box.raw, pods=given, held=held))
    return todo


def take_all(p: Pass, proof: Proof, todo: Sequence[Claim]) -> list[Settled]:
    """The claim patches, then what follows from their answers into the ledger."""
    results = in_parallel(p, lambda claim: take(p, claim), todo, urgent=True)
    settled = [one for one in results if isinstance(one, Settled)]
    settle(p, proof, settled)
    return settled


def settle(p: Pass, proof: Proof, results: Sequence[Settled]) -> None:
    """All ledger moves in one script."""
    moves = [move for one in results for move in one.moves]
    p.step("delivered")
    if moves:
        p.store.ledger(p.key.namespace, p.key.name).move(proof, moves)
    p.step("settled")


def publish(p: Pass, settled: Sequence[Settled]) -> list[Settled]:
    """The statuses, then the mirror with one put, then everybody who is told."""
    if not settled:
        return []
    answers = in_parallel(p, lambda one: show(p, one), settled, urgent=True)
    results = [old if not isinstance(new, Settled) else new for old, new in zip(settled, answers, strict=True)]
    conclude(p, results)
    return results


def conclude(p: Pass, results: Sequence[Settled]) -> None:
    """What was stored into the mirror, then journal, metrics and Events."""
    for read in (False, True):  # what was read may contain somebody else's change: its news must reach this key too
        stored = [one.stored for one in results if one.stored is not None and one.read is read]
        if stored:
            p.forward.put("batchsandbox", stored, own=p.key, versioned=not read)
    hand_over(p, results)
    for one in results:
        if one.told:
            remark(p, one.claim.raw, one.claim.box)
    delivered = [one for one in results if one.delivered]
    if delivered:
        _tell(p, delivered)
    for one in results:
        if not one.delivered or one.cause:
            log.info("a claim was not simply accepted", pool=p.key.member, sandbox=one.claim.box.name,
                     cause=one.cause, moves=[m.what for m in one.moves])  # fmt: skip


def hand_over(p: Pass, results: Sequence[Settled]) -> None:
    """Delivered sandboxes whose status was not written: their own passes write it."""
    untold = [Key(BATCHSANDBOX, p.key.namespace, one.claim.box.name) for one in results
              if one.delivered and not one.told]  # fmt: skip
    if untold:
        p.store.queue.add(Add(key=key, reason="its pods are recorded, its status is not") for key in untold)


def remark(p: Pass, raw: Obj, box: BoxSpec) -> None:
    """Say what a status cannot show of the spec, for the pool's pass that writes the first status of it."""
    for said in boxevents.once_per_generation(box):
        p.events.emit(raw, said.type, said.reason, said.message)


def _tell(p: Pass, delivered: Sequence[Settled]) -> None:
    now = p.now()
    entries = []
    for one in delivered:
        box, claim = one.claim.box, one.claim
        names_ = [pod.name for _, pod in sorted(claim.pods.items())]
        entries.append({
            "what": "allocated", "pool": p.key.member, "box": box.member, "pods": names_,
            "slots": sorted(claim.pods), "pass": p.token[:8], "why": _why(p.reason, box.name),
        })  # fmt: skip
        full = len(claim.pods) + len(claim.held) >= box.replicas
        if full:
            waited = max(0.0, (now - box.created).total_seconds())
            metrics.observe("opensandbox_pool_allocation_seconds", waited, namespace=p.key.namespace, pool=p.key.name)
        if p.world.told.take(0.0) > 0:  # under load an Event for each would be every third API write
            metrics.inc("opensandbox_events_total", result="dropped")
            continue
        p.events.emit(one.claim.raw, "Normal", names.EVENT_SCHEDULED, _scheduled(p.key.name, names_),
                      component=names.COMPONENT_POOL)  # fmt: skip
    p.store.journal.append(*entries)
    _tell_pool(p, delivered)


def _why(reason: str, box: str) -> str:
    """The pass's reason, unless it tells of another sandbox of the same line."""
    about = reason.removeprefix("sandbox ")
    if about != reason and about.partition(" ")[0].rstrip(":") != box:
        return "it was in the line too"
    return reason or "it was in the line"


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
