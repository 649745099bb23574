"""Tell the sandboxes that stay without pods why: the condition of a waiter is written by the pool's full pass.

In: what the deal left (`osb.decide.allocate`). Out: one status patch for each waiter whose reason is news; a long line
costs nothing while nothing but positions moves (spec/additions.md 2.2). The fast pass never comes here: a sandbox
that is served within a moment is never told that it waits.
"""

from __future__ import annotations

from osb.api import batchsandbox, claims, names
from osb.api.key import BATCHSANDBOX, Key
from osb.apply.hand import in_parallel
from osb.apply.status import write_status
from osb.decide.pause import acknowledged
from osb.decide.status import allocation_deadline, box_status
from osb.decide.waittext import waiting_message
from osb.errors import ApiError, Conflict, NotFound
from osb.facts.adds import Add
from osb.facts.boxview import Waiting
from osb.reconcile import boxview, deliver, gather
from osb.reconcile.gather import Box, Obj
from osb.reconcile.poolload import Load
from osb.reconcile.serve import Served
from osb.reconcile.world import Pass

REFRESH_SECONDS = 10.0  # how often moved positions alone may be written
SOON, LATER = 0.1, 5.0  # seconds until a write is made again: the mirror was behind, the server refused


def tell(p: Pass, now: Load, served: Served) -> float | None:
    """Write what is news. Seconds until a refused write must be made again, None when all is told."""
    dealt = served.dealt
    waiters = {box.spec.uid: box for box in now.waiters}
    for one in served.settled:  # those that got a part of what they miss look different now
        if one.stored is not None and one.claim.box.uid in waiters:
            waiters[one.claim.box.uid] = Box(one.stored, batchsandbox.parse(one.stored))
    late = [waiters[uid].spec for uid in dealt.timed_out if uid in waiters]
    p.store.queue.add(Add(key=Key(BATCHSANDBOX, b.namespace, b.name), reason="allocation timeout") for b in late)
    short = [(waiters[uid], waiting) for uid, waiting in dealt.waiting.items() if uid in waiters]
    if not short:
        return None
    refresh = p.store.duty.hold(f"positions:{p.key.member}", p.token, REFRESH_SECONDS)
    news = [(box, _fresh(waiting, refresh)) for box, waiting in short if _is_news(box, _fresh(waiting, refresh))]
    results = in_parallel(p, lambda item: _write(p, *item), news)
    for (box, _), result in zip(news, results, strict=True):
        if isinstance(result, tuple):
            deliver.remark(p, box.raw, box.spec)
    written = [one for one in results if isinstance(one, tuple)]
    for decided in (True, False):
        if stored := [raw for raw, versioned in written if versioned == decided]:
            p.forward.put("batchsandbox", stored, own=p.key, versioned=decided)
    refused = [one for one in results if isinstance(one, ApiError) and not isinstance(one, NotFound)]
    return (SOON if any(isinstance(one, Conflict) for one in refused) else LATER) if refused else None


def _fresh(waiting: Waiting, refresh: bool) -> Waiting:
    """The same reason to wait; `refresh` allows to rewrite a position that moved."""
    return Waiting(
        code=waiting.code, missing=waiting.missing, position=waiting.position, line=waiting.line,
        detail=waiting.detail, cannot_grow=waiting.cannot_grow, refresh=refresh,
    )  # fmt: skip


def _is_news(box: Box, waiting: Waiting) -> bool:
    """A cheap look at the stored conditions, so that an unchanged line costs no reads."""
    spec = box.spec
    pending = spec.condition(names.POOL_ALLOCATION_PENDING) is not None
    stored = spec.condition(names.PROGRESSING)
    if stored is None or pending != waiting.cannot_grow or spec.status.get("observedGeneration") != spec.generation:
        return True
    prior = str(stored.get("message", ""))
    return waiting_message(waiting, missing=waiting.missing, of=spec.replicas, prior=prior) not in prior


def _write(p: Pass, box: Box, waiting: Waiting) -> tuple[Obj, bool] | None:
    """Write one waiter's whole status: (as stored, whether it was decided on what the mirror has).

    None when nothing differs. Done once more on a live read when the mirror is behind (a rebuild touches every
    waiter just before). Raises what the server answers.
    """
    try:
        stored = _written(p, box, waiting)
        return (stored, True) if stored is not None else None
    except Conflict:
        raw = gather.live(p, "batchsandbox", p.key.namespace, box.spec.name)
    if raw is None or raw["metadata"]["uid"] != box.spec.uid:
        return None
    stored = _written(p, Box(raw, batchsandbox.parse(raw)), waiting)
    return (stored or raw), False


def _written(p: Pass, box: Box, waiting: Waiting) -> Obj | None:
    if not claims.wants(box.spec):
        return None
    view = boxview.build(p, box.raw, waiting=waiting)
    left = allocation_deadline(view)
    if left is not None:
        p.store.queue.add([Add(key=Key(BATCHSANDBOX, p.key.namespace, box.spec.name), after=max(left, 0.0),
                               reason="allocation timeout")])  # fmt: skip
    stored, wrote = write_status(p, "batchsandbox", box.raw, box_status(view, acknowledged(view)))
    return stored if wrote else None
