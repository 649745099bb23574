"""Passes that nobody but the queue asks for: what watchers, workers and beat do, without their waiting.

`follow` carries news into the mirror and runs what that made dirty, timers of the next moments included, until nothing
asks any more. `undone` tells what a pass that nobody asked for would do then: at rest that must be nothing.
"""

from __future__ import annotations

from osb.api import batchsandbox, claims, pool
from osb.api.key import BATCHSANDBOX, KINDS, POOL, Key
from osb.cli.context import Reach
from osb.cli.look import look, status_changes, words
from osb.decide.plan import EmitEvent, Remember
from osb.reconcile.handle import handle
from osb.store import keys
from osb.store.queue import Listed
from tests.doubles.passworld import Passes

NEAR_MS = 4_000  # what is due sooner belongs to what is under way
ROUNDS = 150
TOLD = (EmitEvent, Remember)  # said as long as it is so; the recorder sends it once


def rest(passes: Passes, *, times: int = 30) -> list[str]:
    """`follow`, with the kubelet at work in between: pods become ready, terminating ones go. What ran."""
    ran = follow(passes)
    for _ in range(times):
        _kubelet(passes)
        if not (more := follow(passes)):
            return ran
        ran += more
    told = "\n".join(ran[-12:])
    raise AssertionError(f"no rest; the last passes:\n{told}")


def _kubelet(passes: Passes) -> None:
    passes.ready()
    for raw in passes.pods():
        meta = raw["metadata"]
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            passes.delete("pod", meta["name"], grace=0)


def follow(passes: Passes, *, rounds: int = ROUNDS) -> list[str]:
    """What ran, as `key: reason -> summary`, until the queue is empty and no timer is near."""
    ran: list[str] = []
    for _ in range(rounds):
        passes.sync()
        due = _timers_come(passes)
        asked = dirty(passes)
        if not asked and not due:
            return ran
        ran += [f"{one.key.text}: {one.reason} -> {handle(passes.world, one.key)}" for one in asked]
    told = "\n".join(ran[-12:])
    raise AssertionError(f"no rest; the last passes:\n{told}")


def dirty(passes: Passes) -> list[Listed]:
    """Keys that ask for a pass now."""
    return [one for kind in KINDS for one in passes.store.queue.listing(kind, "dirty")]


def _timers_come(passes: Passes) -> int:
    """Timers of the next moments come now, and the passes' clock with them."""
    redis, now, furthest = passes.store.redis, passes.store.queue.now_ms(), 0.0
    came = 0
    for kind in KINDS:
        for member, at in redis.zrangebyscore(keys.queue(kind, "due"), "-inf", now + NEAR_MS, withscores=True):
            redis.zadd(keys.queue(kind, "due"), {member: now})
            furthest, came = max(furthest, at - now), came + 1
        passes.store.queue.due(kind)
    passes.turned += furthest / 1000
    return came


def undone(passes: Passes) -> list[str]:
    """What the next pass of any pool or sandbox would do, as `osbctl explain` shows it."""
    passes.sync()
    reach = Reach(passes.settings)
    reach.world, reach.store, reach.kube = passes.world, passes.store, passes.kube
    boxes = [batchsandbox.parse(raw) for raw in passes.kube.all("batchsandbox", passes.ns)[0]]
    pools = [pool.parse(raw) for raw in passes.kube.all("pool", passes.ns)[0]]
    found = [Key(POOL, passes.ns, p.name) for p in pools] + [Key(BATCHSANDBOX, passes.ns, b.name) for b in boxes]
    left: list[str] = []
    for key in found:
        seen = look(reach, key)
        todo = words(tuple(a for a in seen.plan.actions if not isinstance(a, TOLD)))
        todo += status_changes(seen.raw, seen.plan)
        todo += [f"hands {len(g.pods)} pods to {g.box}" for g in (seen.dealt.grants if seen.dealt else ())]
        left += [f"{key.text}: {one}" for one in todo]
    held = {p.name for p in pools if p.hold}  # nothing of a held pool is recycled, so nobody can leave it
    left += [
        f"{b.name} is going and stays"
        for b in boxes
        if b.deleting is not None and claims.effective_pool(b)[0] not in held
    ]
    return left
