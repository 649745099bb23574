"""`route`: an old and a new object to the keys that the change concerns, or to nothing (spec/pool.md 4).

Comes in: one move of the mirror. Goes out: `Add`s, which `osb.store.queue` marks dirty in the same script
that moves the mirror. Next stop: `osb.reconcile.handle`.

Only values count: equal values at other addresses are no news, and neither are our own writes (status,
endpoints, a record that says what the ledger says). Pods arrive as `PodFact`, everything else as the plain
object. It runs for each event, so it looks at the members it needs and parses nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from osb.api import key as keys
from osb.api import names
from osb.api.batchsandbox import MAX_TIMEOUT, most_replicas
from osb.api.key import Key
from osb.decide import route_pods
from osb.decide.route_pods import FULL_PASS_DELAY, Adds
from osb.facts.adds import EVERY_POOL, EVERY_STAR, Add
from osb.facts.pod import PodFact

Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the table needs beside the two objects.

    `holders`: members (`ns/name`) of the sandboxes whose record names this pod.
    `ledger_agrees`: what the record holds (named and not acknowledged) is exactly what the ledger attributes
      to that sandbox.
    `star`: members of the namespace's sandboxes that still wait for automatic assignment.
    """

    holders: tuple[str, ...] = ()
    ledger_agrees: bool = False
    star: tuple[str, ...] = ()


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
        _box(old, new, adds, ctx)
    elif kind == "snapshot":
        _snapshot(old, new, adds)
    elif kind == "job":
        _job(old, new, adds)
    return adds.result()


# -- shared looks at raw objects -----------------------------------------------------------------------------


def _key(kind: str, obj: Obj) -> Key:
    meta = obj["metadata"]
    return Key(kind, meta.get("namespace") or "", meta["name"])


def _sub(obj: Obj, member: str) -> Mapping[str, Any]:
    value = obj.get(member)
    return value if isinstance(value, dict) else {}


def _meta(obj: Obj, member: str) -> Mapping[str, Any]:
    value = obj["metadata"].get(member)
    return value if isinstance(value, dict) else {}


def _controller(obj: Obj) -> tuple[str, str]:
    """(kind, name) of the controller owner, or two empty texts."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner.get("kind") or "", owner.get("name") or ""
    return "", ""


def _replaced(old: Obj | None, new: Obj | None) -> bool:
    return old is not None and new is not None and old["metadata"].get("uid") != new["metadata"].get("uid")


# -- Pool ----------------------------------------------------------------------------------------------------

POOL_LABELS = (names.LABEL_EVICTION_HANDLER,)
POOL_ANNOTATIONS = (names.RESTART_CONFIG, names.HOLD, names.ADOPTED_REVISION)


def _pool(old: Obj | None, new: Obj | None, adds: Adds, ctx: Context) -> None:
    here = new or old
    assert here is not None
    key = _key(keys.POOL, here)
    name = key.name
    if new is None or _deleting_now(old, new):
        what = "deleted" if new is None else "is being deleted"
        adds.now(key, f"pool {what}", deep=True, deletion=True)
    elif old is None or _replaced(old, new):
        adds.now(key, "pool added", deep=True)
        _wake_star(adds, ctx, here, f"pool {name} added")
    else:
        if _pool_changed(old, new):
            adds.now(key, "pool changed", deep=True)
        if _fits_more(old, new):
            _wake_star(adds, ctx, here, f"pool {name} changed")


def _pool_changed(old: Obj, new: Obj) -> bool:
    if _generation_changed(old, new):
        return True
    was, now = _meta(old, "labels"), _meta(new, "labels")
    if any(was.get(label) != now.get(label) for label in POOL_LABELS):
        return True
    was, now = _meta(old, "annotations"), _meta(new, "annotations")
    return any(was.get(name) != now.get(name) for name in POOL_ANNOTATIONS)


def _fits_more(old: Obj, new: Obj) -> bool:
    """Could a sandbox that found no pool find this one now? Other spec or labels, or more room."""
    if old.get("spec") != new.get("spec") or _meta(old, "labels") != _meta(new, "labels"):
        return True
    was, now = _sub(old, "status").get("allocated"), _sub(new, "status").get("allocated")
    return (now if isinstance(now, int) else 0) < (was if isinstance(was, int) else 0)


def _wake_star(adds: Adds, ctx: Context, pool: Obj, reason: str) -> None:
    namespace = pool["metadata"].get("namespace") or ""
    for member in ctx.star:
        adds.now(Key(keys.BATCHSANDBOX, namespace, member.rpartition("/")[2]), reason)


def _generation_changed(old: Obj, new: Obj) -> bool:
    before, after = old["metadata"].get("generation"), new["metadata"].get("generation")
    return before != after or (after is None and old.get("spec") != new.get("spec"))


def _deleting_now(old: Obj | None, new: Obj) -> bool:
    """True when the deletion is news: the object we knew was not being deleted yet."""
    if not new["metadata"].get("deletionTimestamp"):
        return False
    return old is None or _replaced(old, new) or not old["metadata"].get("deletionTimestamp")


# -- BatchSandbox --------------------------------------------------------------------------------------------

LINE_FIELDS = ("priority", "allocationPolicy", "allocationTimeoutSeconds", "lostPodPolicy")
OWN_ANNOTATIONS = (names.RESUMED_FROM, names.ASSIGN_PROFILE, names.TASK_RESULTS)


def _box(old: Obj | None, new: Obj | None, adds: Adds, ctx: Context) -> None:
    here = new or old
    assert here is not None
    key = _key(keys.BATCHSANDBOX, here)
    if _replaced(old, new):
        assert old is not None
        _wake_pools(adds, old, f"sandbox {key.name} replaced", full=True)
        adds.now(key, "replaced by another of its name", deletion=True)
        old = None
    if new is None:
        adds.now(key, "deleted", deletion=True)
        _wake_pools(adds, here, f"sandbox {key.name} deleted", full=True)
    elif _deleting_now(old, new):
        adds.now(key, "is being deleted", deletion=True)
        _wake_pools(adds, new, f"sandbox {key.name} is being deleted", full=True)
    elif old is None:
        _box_added(key, new, adds)
    else:
        _box_changed(key, old, new, adds, ctx)


def _box_added(key: Key, new: Obj, adds: Adds) -> None:
    spec = _sub(new, "spec")
    _wake_pools(adds, new, f"sandbox {key.name} added")
    waits_only = _waits_for_pods(spec, pools_of(new)) and not any(spec.get(f) for f in ("taskTemplate", "pause"))
    if not waits_only or _record(new) is not None:
        adds.now(key, "added")
    _due_times(key, None, new, adds)


def _waits_for_pods(spec: Mapping[str, Any], pools: tuple[str, ...]) -> bool:
    """Whether a pool's pass will serve this sandbox and show its status.

    One that wants nothing, or whose spec cannot be served, stands in no line: only its own pass looks at it.
    """
    replicas = spec.get("replicas", 1)
    if not isinstance(replicas, int) or not pools:
        return False
    return all(keys.is_name(pool) and 1 <= replicas <= most_replicas(pool) for pool in pools)


def _box_changed(key: Key, old: Obj, new: Obj, adds: Adds, ctx: Context) -> None:
    before, after = _sub(old, "spec"), _sub(new, "spec")
    if before is not after and before != after:
        adds.now(key, "spec changed")
        _due_times(key, old, new, adds)
    reason, full = _pool_reason(old, new, ctx)
    if reason:
        text = f"sandbox {key.name}: {reason}"
        _wake_pools(adds, old, text, full=full)
        _wake_pools(adds, new, text, full=full)
    own = _own_reason(old, new, ctx)
    if own:
        adds.now(key, own)


def _pool_reason(old: Obj, new: Obj, ctx: Context) -> tuple[str, bool]:
    """Why the pools of this sandbox must look, and whether the fast pass is not enough."""
    before, after = _sub(old, "spec"), _sub(new, "spec")
    if before.get("poolRef") != after.get("poolRef"):
        return "poolRef changed", True
    if (before.get("template") is None) != (after.get("template") is None):
        return "template added or removed", True
    if before.get("replicas") != after.get("replicas"):
        return "replicas changed", True
    if any(before.get(field) != after.get(field) for field in LINE_FIELDS):
        return "its place in the line changed", False
    if _meta(old, "labels") != _meta(new, "labels"):  # a label may name its tenant (fair share)
        return "its labels changed", False
    was, now = _meta(old, "annotations"), _meta(new, "annotations")
    if was.get(names.ALLOC_RELEASE) != now.get(names.ALLOC_RELEASE):
        return "pods given back", True
    if was.get(names.PRIORITY) != now.get(names.PRIORITY):
        return "its place in the line changed", False
    lost = set(old["metadata"].get("finalizers") or ()) - set(new["metadata"].get("finalizers") or ())
    if names.FINALIZER_TASKS in lost:
        return "its tasks are gone", True
    if names.FINALIZER_POOL in lost and not ctx.ledger_agrees:
        return "its pool finalizer was taken", True
    if not ctx.ledger_agrees and any(
        was.get(name) != now.get(name) for name in (names.ALLOC_STATUS, names.ALLOC_RELEASED)
    ):
        return "its record changed", True
    return "", False


def _own_reason(old: Obj, new: Obj, ctx: Context) -> str:
    """Why the sandbox's own reconcile must run although its spec did not change."""
    was, now = _meta(old, "annotations"), _meta(new, "annotations")
    for name in OWN_ANNOTATIONS:
        if was.get(name) != now.get(name):
            return f"annotation {name.rpartition('/')[2]} changed"
    if was.get(names.ALLOC_RELEASED) != now.get(names.ALLOC_RELEASED):
        return "pods recycled"
    if was.get(names.ALLOC_RELEASE) != now.get(names.ALLOC_RELEASE):
        return "pods given back"
    if was.get(names.ALLOC_STATUS) != now.get(names.ALLOC_STATUS):
        spec = _sub(new, "spec")
        if not ctx.ledger_agrees or _was_quarantined(old):
            return "its record changed"
        if spec.get("taskTemplate") or spec.get("pause"):
            return "pods allocated"
    if new["metadata"].get("deletionTimestamp"):
        gone = set(old["metadata"].get("finalizers") or ()) - set(new["metadata"].get("finalizers") or ())
        if gone:
            return "a finalizer is gone"
    return ""


def _was_quarantined(old: Obj) -> bool:
    """A record that was unreadable or forged may just have been put right: that it now agrees is the news."""
    found = _sub(old, "status").get("conditions")
    stored = found if isinstance(found, list) else ()
    told = any(c.get("type") == names.QUARANTINED and c.get("status") == "True" for c in stored if isinstance(c, dict))
    return told or _record(old) == {}


def _record(obj: Obj) -> Mapping[str, Any] | None:
    """The record as far as routing needs it; None when there is none or it cannot be read."""
    text = _meta(obj, "annotations").get(names.ALLOC_STATUS)
    if not isinstance(text, str) or not text:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def pools_of(obj: Obj) -> tuple[str, ...]:
    """The pools that concern this sandbox: the one it names and the one its record names. Never "" or "*"."""
    ref = _sub(obj, "spec").get("poolRef")
    recorded = (_record(obj) or {}).get("poolRef")
    return tuple({name: None for name in (ref, recorded) if isinstance(name, str) and name not in ("", "*")})


def _wake_pools(adds: Adds, obj: Obj, reason: str, *, full: bool = False) -> None:
    namespace = obj["metadata"].get("namespace") or ""
    for name in pools_of(obj):
        key = Key(keys.POOL, namespace, name)
        adds.now(key, reason)
        if full:
            adds.after(key, FULL_PASS_DELAY, reason)


def _due_times(key: Key, old: Obj | None, new: Obj, adds: Adds) -> None:
    """Due times at expireTime and at the end of the wait for pods, when they are new or changed.

    An unreadable value is left to the reconcile, which reports it.
    """
    spec, before = _sub(new, "spec"), _sub(old, "spec") if old is not None else {}
    expires = spec.get("expireTime")
    if expires and before.get("expireTime") != expires:
        at_ms = route_pods.epoch_ms(expires)
        if at_ms is not None:
            adds.at(key, at_ms, "expires")
    patience = spec.get("allocationTimeoutSeconds")
    if isinstance(patience, int) and 0 < patience <= MAX_TIMEOUT and before.get("allocationTimeoutSeconds") != patience:
        since = route_pods.epoch_ms(new["metadata"].get("creationTimestamp"))
        if since is not None:
            adds.at(key, since + patience * 1000 + 1000, "its wait for pods may be over")


# -- SandboxSnapshot and Job ---------------------------------------------------------------------------------


def _snapshot(old: Obj | None, new: Obj | None, adds: Adds) -> None:
    here = new or old
    assert here is not None
    key = _key(keys.SNAPSHOT, here)
    gone = new is None or _deleting_now(old, new) or _replaced(old, new)
    status_changed = old is None or new is None or old.get("status") != new.get("status")
    if gone:
        adds.now(key, "deleted" if new is None else "is being deleted", deletion=True)
    elif old is None:
        adds.now(key, "added")
    elif new is not None and (_generation_changed(old, new) or _meta_changed(old, new)):
        adds.now(key, "changed")
    owner_kind, owner = _controller(here)
    if owner_kind == "BatchSandbox" and (gone or status_changed):
        adds.now(Key(keys.BATCHSANDBOX, key.namespace, owner), f"snapshot {key.name} changed")


def _meta_changed(old: Obj, new: Obj) -> bool:
    before, after = old["metadata"], new["metadata"]
    return any(before.get(m) != after.get(m) for m in ("finalizers", "annotations", "ownerReferences"))


def _job(old: Obj | None, new: Obj | None, adds: Adds) -> None:
    here = new or old
    assert here is not None
    if old is not None and new is not None and not _replaced(old, new):
        same_life = bool(old["metadata"].get("deletionTimestamp")) == bool(new["metadata"].get("deletionTimestamp"))
        if old.get("status") == new.get("status") and same_life:
            return
    namespace = here["metadata"].get("namespace") or ""
    owner_kind, owner = _controller(here)
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
    if old is not None and new is not None and not _replaced(old, new) and old.get("data") == new.get("data"):
        return ()
    return (Add(key=EVERY_STAR, reason="the assign profiles changed"),) if old is not None or new is not None else ()
