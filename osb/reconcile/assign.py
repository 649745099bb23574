"""Choose a pool for a sandbox with poolRef `*` and write it (spec/pool.md 12). Next: the pool's own line.

In: the sandbox and every pool of its namespace. Pods that waiting sandboxes will take, and allocations that a pool's
status does not show yet, are counted as taken, so that a burst spreads instead of choosing one pool. The patch carries
the sandbox's version: a user's edit wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from osb.api import batchsandbox, claims, names
from osb.api.key import POOL, Key
from osb.api.pool import PoolSpec
from osb.decide import assign as decision
from osb.decide.assign_profiles import Table
from osb.decide.conditions import stored
from osb.decide.waittext import lasting
from osb.facts.adds import Add
from osb.facts.boxview import Waiting
from osb.facts.ledger import HELD, RESV
from osb.reconcile import gather, readable
from osb.reconcile.gather import Obj
from osb.reconcile.world import Pass

LINE_HEAD = 100  # waiters of each pool whose pods are counted as promised
AGAIN = 30.0
REFRESH_SECONDS = 10.0  # how often the room that pools have left may alone be written


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The outcome of a choice.

    `assigned`: poolRef was written.
    `waiting`: why no pool fits, when it was not.
    `again`: when to try once more, in seconds (a pool that appears or changes wakes the sandbox anyway).
    """

    assigned: bool = False
    summary: str = ""
    waiting: Waiting | None = None
    again: float = AGAIN


def look(p: Pass, raw: Obj) -> decision.Choice | None:
    """The choice without writing it; None for a sandbox that is going. What `osbctl explain` shows."""
    box = batchsandbox.parse(raw)
    if not decision.assignable(box, p.now()):
        return None
    wanted = box.annotations.get(names.ASSIGN_PROFILE, "")
    table = _profiles(p, wanted)
    if table.waits(wanted):
        return decision.Choice(note=table.problem(wanted))
    found = _pools(p)
    promised = {pool.name: _promised(p, pool) for pool in found}
    choice = decision.choose(box, found, profile=table.find(wanted), promised=promised)
    return replace(choice, note=table.problem(wanted))


def _profiles(p: Pass, wanted: str) -> Table:
    """The profiles; looked at live for a name that is not among them: it may have been added a moment ago."""
    table = p.world.profiles.table(p.store, p.kube, p.settings)
    return table if table.defines(wanted) else p.world.profiles.table(p.store, p.kube, p.settings, live=True)


def choose(p: Pass, raw: Obj) -> Chosen:
    """Choose and write. Raises Conflict when the sandbox changed meanwhile: it is decided again."""
    choice = look(p, raw)
    if choice is None:
        return Chosen(summary="going, or out of the line: no pool is chosen")
    box = batchsandbox.parse(raw)
    if not choice.pool:
        waiting = decision.waiting(choice, box)
        refresh = p.store.duty.hold(f"positions:{p.key.kind}/{p.key.member}", p.token, REFRESH_SECONDS)
        return Chosen(summary=f"no pool fits: {waiting.detail[:120]}", waiting=replace(waiting, refresh=refresh))
    meta = raw["metadata"]
    p.check()
    p.step("assign")
    body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "spec": {"poolRef": choice.pool}}
    assigned = p.kube.patch("batchsandbox", meta["namespace"], meta["name"], body)
    p.forward.put("batchsandbox", [assigned], own=p.key, versioned=True)
    p.store.queue.add([Add(key=Key(POOL, meta["namespace"], choice.pool), reason=f"sandbox {meta['name']} assigned")])
    note = f"; {choice.note}" if choice.note else ""
    p.events.emit(assigned, "Normal", names.EVENT_POOL_ASSIGNED, f"Assigned to pool {choice.pool}{note}")
    return Chosen(assigned=True, summary=f"assigned to pool {choice.pool}")


def tell(p: Pass, raw: Obj, waiting: Waiting, status: Mapping[str, Any]) -> None:
    """The Event that no pool fits: once for each cause, which the stored condition remembers."""
    before, after = stored(raw.get("status") or {}, now=p.now()), stored(status, now=p.now())
    cause = lasting(after.text(names.PROGRESSING))
    if cause and cause != lasting(before.text(names.PROGRESSING)):
        p.events.emit(raw, "Warning", names.EVENT_FAILED_ASSIGN, decision.failure(waiting.detail))


def _pools(p: Pass) -> list[PoolSpec]:
    """Every pool of the namespace."""
    prefix = f"{p.key.namespace}/"
    members = [member for member in p.store.mirror.names("pool") if member.startswith(prefix)]
    reading = p.store.mirror.read("pool", members)
    if gather.fresh(reading):
        found = (orjson.loads(entry.doc) for entry in reading.entries.values() if entry is not None)
        return list(readable.every_pool(found))
    raws, _ = p.kube.all("pool", p.key.namespace)
    return list(readable.every_pool(raws))


def _promised(p: Pass, pool: PoolSpec) -> int:
    """Pods that are spoken for and that the pool's status does not show as allocated."""
    counts = p.store.ledger(pool.namespace, pool.name).counts()
    unseen = counts.get(HELD, 0) + counts.get(RESV, 0) - pool.counted("allocated")
    reading = p.store.mirror.load("batchsandbox", "wait", pool.member, limit=LINE_HEAD)
    boxes = [readable.box(orjson.loads(e.doc)) for e in reading.entries.values() if e is not None]
    return max(0, unseen) + sum(box.replicas - len(claims.claims(box)) for box in boxes)
