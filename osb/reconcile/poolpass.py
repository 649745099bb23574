"""The full pass of a pool: everything that the fast pass leaves (spec/pool.md 5).

In: what the fast pass read, and what it served. Out: releases, recycling, scaling, rollout, eviction carried out, and
the status written last. The view is complete: all pods of the Pool's UID, the whole ledger, every sandbox that the
pool serves or that holds one of its pods. Next: `osb.decide.pool`, then `osb.apply.execute`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from osb.api import claims
from osb.api.batchsandbox import BoxSpec
from osb.api.key import BATCHSANDBOX, Key
from osb.apply import poolplan
from osb.apply.allocation import Claim, Settled, settle
from osb.apply.hand import in_parallel
from osb.apply.poolwork import RELEASED
from osb.apply.status import write_status
from osb.decide import pool as decision
from osb.errors import ApiError, Conflict
from osb.facts import pod as pods
from osb.facts.adds import Add
from osb.facts.ledger import RESV, LedgerEntry
from osb.facts.poolview import PoolView
from osb.obs.log import get_logger
from osb.reconcile import deliver, gather, memory, readable, rebuild, serve, waiters
from osb.reconcile.beside import beside
from osb.reconcile.contract import After, Done, Outcome
from osb.reconcile.gather import Box
from osb.reconcile.poolload import Load, revision_of
from osb.reconcile.serve import Served
from osb.reconcile.world import Pass
from osb.store.ledger_types import Move, Proof

log = get_logger("reconcile")

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
NAME_HEAD = 57
UNSHOWN = "its pods are recorded, its status is not"
UNTOLD_SECONDS = 2.0  # a sandbox that is served within a moment is never told that it waits
LATE_AGAIN = 0.25  # seconds: the Pool's status does not count what was served beside this pass


def pod_names(pool: str) -> Iterator[str]:
    """Endless new names: `<first 57 of the pool>-<5 characters>` (spec/additions.md 1.3)."""
    head = pool[:NAME_HEAD].rstrip("-.")
    while True:
        yield f"{head}-{''.join(random.choices(ALPHABET, k=5))}"


# -- reservations of an earlier pass -------------------------------------------------------------------------


def settle_leftovers(p: Pass, proof: Proof, now: Load) -> None:
    """Every reservation that is open at the start of a pass is rolled forward, or given up (spec/protocols.md 5)."""
    assert now.pool is not None
    ledger = p.store.ledger(p.key.namespace, p.key.name)
    state = ledger.state(entries=True)
    open_ = {name: entry for name, entry in state.entries.items() if entry.state == RESV}
    by_box: dict[tuple[str, str], dict[str, LedgerEntry]] = {}
    for name, entry in open_.items():
        by_box.setdefault((entry.box, entry.box_uid), {})[name] = entry

    def one(item: tuple[tuple[str, str], dict[str, LedgerEntry]]) -> Settled | list[Move]:
        (box, uid), entries = item
        return _settle_box(p, proof, box=box, uid=uid, entries=entries, pool_uid=proof.pool_uid)

    results = in_parallel(p, one, by_box.items())
    settled = [r for r in results if isinstance(r, Settled)]
    deliver.settle(p, proof, settled)
    deliver.conclude(p, settled)
    moves = [move for r in results if isinstance(r, list) for move in r]
    if moves:
        ledger.move(proof, moves)
    if any(isinstance(r, ApiError) for r in results):
        p.store.queue.add([Add(key=p.key, after=1.0, reason="settle an unclear write")])


def _settle_box(
    p: Pass, proof: Proof, *, box: str, uid: str, entries: dict[str, LedgerEntry], pool_uid: str
) -> Settled | list[Move]:
    raw = gather.live(p, "batchsandbox", p.key.namespace, box.rpartition("/")[2])
    dead: list[Move] = []
    alive: dict[int, Any] = {}
    for name, entry in entries.items():
        pod = gather.live(p, "pod", p.key.namespace, name)
        if pod is None or pod["metadata"]["uid"] != entry.pod_uid:
            dead.append(_move("gone", name, entry))
        else:
            alive[entry.slot] = pods.pod_fact(pod)
    if raw is None or raw["metadata"]["uid"] != uid:
        return dead + [_move("cancel", name, e, to="dirty") for name, e in entries.items() if e.slot in alive]
    spec = readable.box(raw)
    if not alive or readable.stands_in(spec):  # what cannot be read may name them: they stay reserved
        return dead
    kept = claims.slots(spec)
    held = gather.matching(kept, gather.pods_named(p, "poolpod", [n for n, _ in kept.values()])) if kept else {}
    claim = Claim(pool=p.key.name, pool_uid=pool_uid, box=spec, raw=raw, pods=alive, held=held, first=False)
    ledger = p.store.ledger(p.key.namespace, p.key.name)
    proofs = [(pod.name, pod.uid, RESV, uid) for pod in alive.values()]
    result = settle(p, claim, lambda: ledger.prove_all(proof, proofs))
    if dead:
        ledger.move(proof, dead)
    return result


def _move(what: str, name: str, entry: LedgerEntry, *, to: str = "", policy: str = "") -> Move:
    return Move(what=what, pod=name, pod_uid=entry.pod_uid, from_state=entry.state, box_uid=entry.box_uid,
                to=to, policy=policy)  # fmt: skip


# -- the full pass -------------------------------------------------------------------------------------------


def full(p: Pass, proof: Proof, now: Load, served: Served) -> Outcome:
    """Gather everything, decide, apply, write the status last; best effort at every step (spec/pool.md 5.2)."""
    assert now.pool is not None and now.raw is not None
    with beside(p, proof, now) as late:
        left = rebuild.adopt(p, proof)
        view, boxes = _view(p, now)
        late()
        plan = decision.plan(view)
        late()
        p.step("pool-planned")
        raws = {uid: box.raw for uid, box in boxes.items()}
        done = poolplan.pool_plan(p, proof, view, plan, raws=raws, pool=now.raw)
    served.late(late.served)
    if any(one.settled for one in late.served):
        done.retry(LATE_AGAIN)
    unshown = _unshown(p, now, boxes, spare=now.ready_idle - served.pods)
    memory.remember(p, now.pool.uid, done.memory)
    if done.memory.get("held_for_ever", view.memory.held_for_ever) != view.memory.held_for_ever:
        _look_anew(p, now, served)
    if left:
        done.retry(0.05)
    if done.counts.get(RELEASED) and p.store.mirror.count("batchsandbox", "wait", p.key.member):
        _serve_next(p, "pods or slots came free while sandboxes wait")
    status_again = _write_status(p, now, plan.status)
    untold = waiters.tell(p, now, served)
    said = _summary(served, done, plan.reasons)
    waits = [w for w in (plan.again, done.again, status_again, served.again, untold, unshown) if w is not None]
    _journal(p, plan.reasons, done)
    if waits:
        return After(seconds=max(0.05, min(waits)), summary=said, progress=done.writes > 0 or bool(served.settled))
    return Done(summary=said, progress=done.writes > 0 or bool(served.settled))


def _look_anew(p: Pass, now: Load, served: Served) -> None:
    """Say anew why the waiters wait: more or fewer pods are held without an end, and the deal knew an older number.

    Waiters are told by the new one, and another pass follows that serves by it.
    """
    anew = serve.look(p, now.stock()).waiting
    told = {uid: anew.get(uid, waiting) for uid, waiting in served.dealt.waiting.items()}
    served.dealt = replace(served.dealt, waiting=told)
    _serve_next(p, "more or fewer pods are held without an end: who waits for what may change")


def _serve_next(p: Pass, reason: str) -> None:
    """Ask for a fast pass: this one dealt before it knew that, and its own writes wake nobody."""
    p.store.queue.add([Add(key=p.key, reason=reason)])


def _unshown(p: Pass, now: Load, boxes: Mapping[str, Box], *, spare: int) -> float | None:
    """Sandboxes that say nothing of themselves get a pass of their own; seconds until that must be looked at again.

    A pass that was killed between a claim and its status left one that has pods and does not say so. One that waits
    is told by `waiters.tell` when it is among the first of the line; the others say at least that they wait, unless
    the ready pods (`spare`) are enough for all of them: then the next passes serve them, and a status would only
    stand in their way.
    """
    told_here = {box.spec.uid for box in now.waiters}
    adds: list[Add] = []
    silent: list[BoxSpec] = []
    for uid, box in boxes.items():
        spec = box.spec
        if spec.deleting is not None:
            continue
        if not spec.status.get("allocated") and claims.claims(spec):
            adds.append(Add(key=Key(BATCHSANDBOX, spec.namespace, spec.name), reason=UNSHOWN))
        elif not spec.phase and uid not in told_here:
            silent.append(spec)
    assert now.pool is not None
    served_soon = not now.pool.hold and sum(spec.replicas for spec in silent) <= spare
    old = [] if served_soon else [
        spec for spec in silent if (p.now() - spec.created).total_seconds() >= UNTOLD_SECONDS
    ]  # fmt: skip
    adds += [Add(key=Key(BATCHSANDBOX, spec.namespace, spec.name), reason="it waits and has no status") for spec in old]
    p.store.queue.add(adds)
    return UNTOLD_SECONDS if len(silent) > len(old) else None


def look(p: Pass, now: Load) -> PoolView:
    """What the full pass would decide on; reads only (`osbctl explain`, `osbctl plan`)."""
    return _view(p, now)[0]


def _view(p: Pass, now: Load) -> tuple[PoolView, dict[str, Box]]:
    assert now.pool is not None
    ledger = p.store.ledger(p.key.namespace, p.key.name)
    state = ledger.state(entries=True)
    found, known = gather.pods_of(p, "poolpod", now.pool.uid)
    boxes, boxes_known = gather.boxes_of_pool(p, p.key.name)
    by_uid = {box.spec.uid: box for box in boxes}
    by_uid |= _holders(p, state.entries, by_uid)
    waiting = [waiting_box for box in by_uid.values() if (waiting_box := serve.waiting_box(box, now.pool.uid)).slots]
    known_memory = memory.with_demand(
        p,
        now.pool,
        memory.recall(p, now.pool),
        seq=state.meta.seq,
        unmet=sum(len(one.slots) for one in waiting),
        pods=found,
    )
    view = PoolView(
        now=p.now(), pool=now.pool, revision=revision_of(now.pool), pods={pod.name: pod for pod in found},
        entries=state.entries, names=pod_names(p.key.name), since=state.todo,
        boxes={uid: box.spec for uid, box in by_uid.items()}, waiting=waiting, ledger_ready=True,
        epoch=state.meta.epoch, mirror_fresh=known and boxes_known, nodes=gather.cordoned(p),
        memory=known_memory, room=_room(p), expectation_timeout=p.settings.expectation_timeout,
    )  # fmt: skip
    return view, by_uid


def _room(p: Pass) -> int | None:
    """Pods that the cap over all pools (OSB_MAX_PODS) still allows; None without a cap."""
    if not p.settings.max_pods:
        return None
    return max(0, p.settings.max_pods - p.store.ledger_total())


def _holders(p: Pass, entries: Any, known: dict[str, Box]) -> dict[str, Box]:
    """Sandboxes that the ledger knows and the pool's index does not: gone, moved away, or their record was edited."""
    missing = {(e.box, e.box_uid) for e in entries.values() if e.box_uid and e.box_uid not in known}
    found: dict[str, Box] = {}
    for box, uid in missing:
        raw = gather.live(p, "batchsandbox", p.key.namespace, box.rpartition("/")[2])
        if raw is not None and raw["metadata"]["uid"] == uid:
            found[uid] = Box(raw, readable.box(raw))
    return found


def _write_status(p: Pass, now: Load, status: Any) -> float | None:
    """The Pool's status, once more on a fresh object when it moved on; seconds to try again, None when written."""
    if status is None:
        return None
    raw = now.raw
    for _ in range(3):
        assert raw is not None
        try:
            stored, wrote = write_status(p, "pool", raw, status)
        except Conflict:
            raw = gather.live(p, "pool", p.key.namespace, p.key.name)
            if raw is None or raw["metadata"]["uid"] != (now.pool.uid if now.pool else ""):
                return None
            continue
        if wrote:
            p.forward.put("pool", [stored], own=p.key, versioned=raw is now.raw)
        return None
    return 1.0


def _summary(served: Served, done: poolplan.Applied, reasons: tuple[str, ...]) -> str:
    parts = [f"allocated {served.pods}"] if served.pods else []
    parts += [f"{word} {count}" for word, count in done.counts.items() if count]
    return ", ".join(parts) or (reasons[0] if reasons else "in order")


def _journal(p: Pass, reasons: tuple[str, ...], done: poolplan.Applied) -> None:
    if done.writes:
        p.store.journal.append({
            "what": "pool pass", "pool": p.key.member, "did": done.counts, "pods": done.names[:50],
            "why": "; ".join(reasons)[:1000], "pass": p.token[:8],
        })  # fmt: skip
