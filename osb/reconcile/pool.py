"""One Pool: serve the waiting (fast pass), and when a full pass is owed everything else.

gather → decide → apply. The fast pass (`osb.reconcile.serve`) costs what its waiters cost; the full pass reads all
pods, the whole ledger and every sandbox of the pool, lets `osb.decide.pool` compose the plan, has `osb.apply.poolplan`
carry it out, and writes the status last. A full pass follows a fast one after a short delay, so that a burst costs one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from osb.api import names
from osb.api import pool as pools
from osb.api.key import BATCHSANDBOX, Key
from osb.apply.hand import in_parallel
from osb.decide import claim as records
from osb.decide.plan import counted
from osb.errors import Conflict, LedgerNotReady, NotFound
from osb.facts.adds import Add
from osb.obs.log import get_logger
from osb.reconcile import gather, poolpass, rebuild, serve
from osb.reconcile.contract import After, Done, Outcome, Part
from osb.reconcile.poolload import Load, load, newcomers
from osb.reconcile.world import Pass
from osb.store.ledger_types import CONF, RESV, Proof

log = get_logger("reconcile")

Obj = dict[str, Any]

FULL_PASS_AFTER = 0.25
PODS_PER_SECOND = 5000  # the full pass of a large pool follows later, so that it never takes the cores


def reconcile(p: Pass) -> Outcome:
    """Serve; then, when owed, the full pass. Raises what `osb.reconcile.handle` turns into outcomes."""
    now = load(p)
    if now.pool is None or now.pool.deleting is not None:
        return _gone(p)
    survivors = rebuild.conflicts_over(p, now.pool.uid) if p.deep and now.ready and now.counts.get(CONF) else []
    if not now.ready or survivors:
        fresh = gather.live(p, "pool", p.key.namespace, p.key.name)
        if fresh is None or fresh["metadata"].get("deletionTimestamp"):
            return _gone(p)
        rebuild.rebuild(p, pools.parse(fresh))
        p.deep = True
        p.store.queue.add(
            Add(key=Key(BATCHSANDBOX, box.namespace, box.name), reason="nobody else claims its pod any more")
            for box in survivors
        )
        now = load(p)
        if not now.ready or now.pool is None:
            raise LedgerNotReady(f"the ledger of pool {p.key.member} was lost again while it was rebuilt")
    assert now.pool is not None
    proof = Proof(member=p.key.member, token=p.token, pool_uid=now.pool.uid)
    if now.counts.get(RESV, 0):
        poolpass.settle_leftovers(p, proof, now)
        now = load(p)
        if now.pool is None:
            return _gone(p)
    more = partial(newcomers, p)
    served = serve.serve(p, proof, now.stock(), more=more) if now.waiters else serve.Served()
    if served.settled and now.line > len(now.waiters):
        p.store.queue.add([Add(key=p.key, reason="the line is longer than one pass serves")])
    if not p.deep and not _grow_now(now, served):
        return _fast_outcome(p, now, served)
    p.deep = True
    if served.settled:
        now = load(p)
        if now.pool is None:
            return _gone(p)
    return poolpass.full(p, proof, now, served)


def _grow_now(now: Load, served: serve.Served) -> bool:
    """Waiters are short and the pool may create for them at once: no reason to wait for the debounced pass."""
    assert now.pool is not None
    missing = served.dealt.demand
    total = sum(now.counts.values())
    starting = now.counts.get("new", 0) + now.counts.get("free", 0) - now.ready_idle
    return missing > starting and total < now.pool.pool_max and not now.pool.hold


def _fast_outcome(p: Pass, now: Load, served: serve.Served) -> Outcome:
    """Ask for the full pass a moment later when this pass changed something or there is other work."""
    delay = FULL_PASS_AFTER + sum(now.counts.values()) / PODS_PER_SECOND
    if served.settled or served.dealt.unmet or now.busy or served.dealt.timed_out:
        p.store.queue.add([Add(key=p.key, after=delay, deep=True, reason="after the fast pass")])
    said = f"allocated {served.pods}" if served.pods else "nothing to allocate"
    if served.dealt.unmet:
        said += f", {served.dealt.unmet} missing"
    if served.again is not None:
        p.store.queue.add([Add(key=p.key, after=served.again, reason="settle an unclear write")])
    return Part(summary=said, progress=bool(served.settled), seconds=delay)


def _gone(p: Pass) -> Outcome:
    """The Pool is deleted or going (confirmed by a live read): its sandboxes must not hang (spec/pool.md 5.2).

    Terminating sandboxes lose the pool's finalizer, since their pods go with the pool; live ones are woken, so that
    their own pass shows `PoolDeleted`. Repeated until none is left.
    """
    fresh = gather.live(p, "pool", p.key.namespace, p.key.name)
    if fresh is not None and not fresh["metadata"].get("deletionTimestamp"):
        p.store.queue.add([Add(key=p.key, deep=True, reason="a pool of this name exists again")])
        return Done(summary="exists again")
    meta = p.store.ledger(p.key.namespace, p.key.name).meta()
    held = [box for box in gather.live_boxes(p, p.key.name) if names.FINALIZER_POOL in box.spec.finalizers]
    going = [box for box in held if box.spec.deleting is not None and names.FINALIZER_TASKS not in box.spec.finalizers]
    freed = [one for one in in_parallel(p, lambda box: _free(p, box), going) if one is True]
    waiting = [box for box in gather.live_boxes(p, p.key.name) if box.spec.deleting is None]
    p.store.queue.add(
        Add(key=Key(BATCHSANDBOX, p.key.namespace, box.spec.name), reason=f"pool {p.key.name} is gone")
        for box in waiting
    )
    if fresh is None and meta.uid:
        proof = Proof(member=p.key.member, token=p.token, pool_uid=meta.uid)
        p.store.ledger(p.key.namespace, p.key.name).drop(meta.uid, proof=proof)
    left = len(held) - len(freed)
    said = f"pool is gone, freed {counted(len(freed), 'sandbox')}"
    if left or fresh is not None:  # one that is not going yet asks by itself when it goes
        soon = len(going) > len(freed)
        return After(seconds=2.0 if soon else 10.0, summary=f"{said}, {left} left", progress=bool(freed))
    return Done(summary=said, progress=bool(freed))


def _free(p: Pass, box: gather.Box) -> bool:
    """Remove the pool's finalizer from one terminating sandbox, unless a pool of that name appeared meanwhile."""
    again = gather.live(p, "pool", p.key.namespace, p.key.name)
    if again is not None and not again["metadata"].get("deletionTimestamp"):
        return False
    meta = box.raw["metadata"]
    try:
        p.step("free-finalizer")
        p.kube.patch("batchsandbox", meta["namespace"], meta["name"],
                     records.freed(box.spec).patch(meta["resourceVersion"]))  # fmt: skip
    except NotFound:
        return True
    except Conflict:
        return False
    return True
