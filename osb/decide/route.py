"""`route`: an old and a new object to the keys that the change concerns, or to nothing (spec/pool.md 4).

Comes in: one move of the mirror. Goes out: `Add`s, which `osb.store.queue` marks dirty in the same script
that moves the mirror. Next stop: `osb.reconcile.handle`.

Only values count: equal values at other addresses are no news, and neither are our own writes (status,
endpoints, a record that says what the ledger says). Pods arrive as `PodFact`, everything else as the plain
object. It runs for each event, so it looks at the members it needs and parses nothing else.
"""

from __future__ import annotations

from osb.api import key as keys
from osb.api import names
from osb.api.key import Key
from osb.decide import route_box, route_pods
from osb.decide.route_pods import Adds
from osb.decide.route_raw import (
    Context,
    Obj,
    controller,
    deleting_now,
    generation_changed,
    key_of,
    meta,
    replaced,
    sub,
)
from osb.facts.adds import EVERY_POOL, EVERY_STAR, Add
from osb.facts.pod import PodFact

NO_CONTEXT = Context()


def route(
    kind: str, old: Obj | PodFact | None, new: Obj | PodFact | None, ctx: Context = NO_CONTEXT
) -> tuple[Add, ...]:
    """The keys that this change concerns. `kind` is a mirror kind; an unknown one concerns nobody."""
    adds = Adds()
    if kind in ("poolpod", "boxpod"):
        assert old is None or isinstance(old, PodFact)
        assert new is None or isinstance(new, PodFact)
        route_pods.route(kind, old, new, adds=adds, holders=ctx.holders)
        return adds.result()
    assert not isinstance(old, PodFact) and not isinstance(new, PodFact)
    if kind == "node":
        return _node(old, new)
    if kind == "configmap":
        return _profiles(old, new)
    if kind == "pool":
        _pool(old, new, adds, ctx)
    elif kind == "batchsandbox":
        route_box.route(old, new, adds, ctx)
    elif kind == "snapshot":
        _snapshot(old, new, adds)
    elif kind == "job":
        _job(old, new, adds)
    return adds.result()


# -- Pool ----------------------------------------------------------------------------------------------------

POOL_LABELS = (names.LABEL_EVICTION_HANDLER,)
POOL_ANNOTATIONS = (names.RESTART_CONFIG, names.HOLD, names.ADOPTED_REVISION)


def _pool(old: Obj | None, new: Obj | None, adds: Adds, ctx: Context) -> None:
    here = new or old
    assert here is not None
    key = key_of(keys.POOL, here)
    name = key.name
    if new is None or deleting_now(old, new):
        what = "deleted" if new is None else "is being deleted"
        adds.now(key, f"pool {what}", deep=True, deletion=True)
    elif old is None or replaced(old, new):
        adds.now(key, "pool added", deep=True)
        _wake_star(adds, ctx, here, f"pool {name} added")
    else:
        if _pool_changed(old, new):
            adds.now(key, "pool changed", deep=True)
        if _fits_more(old, new):
            _wake_star(adds, ctx, here, f"pool {name} changed")


def _pool_changed(old: Obj, new: Obj) -> bool:
    if generation_changed(old, new):
        return True
    was, now = meta(old, "labels"), meta(new, "labels")
    if any(was.get(label) != now.get(label) for label in POOL_LABELS):
        return True
    was, now = meta(old, "annotations"), meta(new, "annotations")
    return any(was.get(name) != now.get(name) for name in POOL_ANNOTATIONS)


def _fits_more(old: Obj, new: Obj) -> bool:
    """Could a sandbox that found no pool find this one now? Other spec or labels, or more room."""
    if old.get("spec") != new.get("spec") or meta(old, "labels") != meta(new, "labels"):
        return True
    was, now = sub(old, "status").get("allocated"), sub(new, "status").get("allocated")
    return (now if isinstance(now, int) else 0) < (was if isinstance(was, int) else 0)


def _wake_star(adds: Adds, ctx: Context, pool: Obj, reason: str) -> None:
    namespace = pool["metadata"].get("namespace") or ""
    for member in ctx.star:
        adds.now(Key(keys.BATCHSANDBOX, namespace, member.rpartition("/")[2]), reason)


# -- SandboxSnapshot and Job ---------------------------------------------------------------------------------


def _snapshot(old: Obj | None, new: Obj | None, adds: Adds) -> None:
    here = new or old
    assert here is not None
    key = key_of(keys.SNAPSHOT, here)
    gone = new is None or deleting_now(old, new) or replaced(old, new)
    status_changed = old is None or new is None or old.get("status") != new.get("status")
    if gone:
        adds.now(key, "deleted" if new is None else "is being deleted", deletion=True)
    elif old is None:
        adds.now(key, "added")
    elif new is not None and (generation_changed(old, new) or _meta_changed(old, new)):
        adds.now(key, "changed")
    owner_kind, owner = controller(here)
    if owner_kind == "BatchSandbox" and (gone or status_changed):
        adds.now(Key(keys.BATCHSANDBOX, key.namespace, owner), f"snapshot {key.name} changed")


def _meta_changed(old: Obj, new: Obj) -> bool:
    before, after = old["metadata"], new["metadata"]
    return any(before.get(m) != after.get(m) for m in ("finalizers", "annotations", "ownerReferences"))


def _job(old: Obj | None, new: Obj | None, adds: Adds) -> None:
    here = new or old
    assert here is not None
    if old is not None and new is not None and not replaced(old, new):
        same_life = bool(old["metadata"].get("deletionTimestamp")) == bool(new["metadata"].get("deletionTimestamp"))
        if old.get("status") == new.get("status") and same_life:
            return
    namespace = here["metadata"].get("namespace") or ""
    owner_kind, owner = controller(here)
    what = "gone" if new is None else "changed"
    if owner_kind == "SandboxSnapshot":
        adds.now(Key(keys.SNAPSHOT, namespace, owner), f"job {here['metadata']['name']} {what}")
    elif owner_kind == "BatchSandbox":
        adds.now(Key(keys.BATCHSANDBOX, namespace, owner), f"job {here['metadata']['name']} {what}")


# -- Node ----------------------------------------------------------------------------------------------------


def _node(old: Obj | None, new: Obj | None) -> tuple[Add, ...]:
    """Only cordoned nodes are watched, so one that comes was cordoned and one that goes is so no longer. Which pools
    have pods there is not known here: each looks."""
    here = new or old
    if here is None or (old is not None and new is not None):
        return ()
    state = "cordoned" if new is not None else "no longer cordoned"
    return (Add(key=EVERY_POOL, deep=True, reason=f"node {here['metadata']['name']} is {state}"),)


# -- assign profiles -----------------------------------------------------------------------------------------


def _profiles(old: Obj | None, new: Obj | None) -> tuple[Add, ...]:
    """The one ConfigMap that is watched: who waits for the choice of a pool may find one by other profiles."""
    if old is not None and new is not None and not replaced(old, new) and old.get("data") == new.get("data"):
        return ()
    return (Add(key=EVERY_STAR, reason="the assign profiles changed"),) if old is not None or new is not None else ()
