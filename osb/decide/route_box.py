"""The sandbox rows of the routing table: what an edit of a sandbox concerns, the marks we keep on it included.

In: an old and a new BatchSandbox and the `Context`. Out: `Add`s for its pools and for itself. Our own writes concern
nobody, by their values: a record that says what the ledger says, endpoints that are those of the pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from osb.api import key as keys
from osb.api import names
from osb.api.batchsandbox import MAX_TIMEOUT, most_replicas
from osb.api.key import Key
from osb.decide import route_pods
from osb.decide.route_pods import FULL_PASS_DELAY, Adds
from osb.decide.route_raw import Context, Obj, deleting_now, key_of, meta, replaced, sub

LINE_FIELDS = ("priority", "allocationPolicy", "allocationTimeoutSeconds", "lostPodPolicy")
OWN_ANNOTATIONS = (names.RESUMED_FROM, names.ASSIGN_PROFILE, names.TASK_RESULTS)


def route(old: Obj | None, new: Obj | None, adds: Adds, ctx: Context) -> None:
    here = new or old
    assert here is not None
    key = key_of(keys.BATCHSANDBOX, here)
    if replaced(old, new):
        assert old is not None
        _wake_pools(adds, old, f"sandbox {key.name} replaced", full=True)
        adds.now(key, "replaced by another of its name", deletion=True)
        old = None
    if new is None:
        adds.now(key, "deleted", deletion=True)
        _wake_pools(adds, here, f"sandbox {key.name} deleted", full=True)
    elif deleting_now(old, new):
        adds.now(key, "is being deleted", deletion=True)
        _wake_pools(adds, new, f"sandbox {key.name} is being deleted", full=True)
    elif old is None:
        _added(key, new, adds, ctx)
    else:
        _changed(key, old, new, adds, ctx)


def _added(key: Key, new: Obj, adds: Adds, ctx: Context) -> None:
    spec = sub(new, "spec")
    _wake_pools(adds, new, f"sandbox {key.name} added")
    waits_only = _waits_for_pods(spec, pools_of(new)) and not any(spec.get(f) for f in ("taskTemplate", "pause"))
    if not waits_only or _record(new) is not None or not ctx.endpoints_agree:
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


def _changed(key: Key, old: Obj, new: Obj, adds: Adds, ctx: Context) -> None:
    before, after = sub(old, "spec"), sub(new, "spec")
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
    before, after = sub(old, "spec"), sub(new, "spec")
    if before.get("poolRef") != after.get("poolRef"):
        return "poolRef changed", True
    if (before.get("template") is None) != (after.get("template") is None):
        return "template added or removed", True
    if before.get("replicas") != after.get("replicas"):
        return "replicas changed", True
    if any(before.get(field) != after.get(field) for field in LINE_FIELDS):
        return "its place in the line changed", False
    if meta(old, "labels") != meta(new, "labels"):  # a label may name its tenant (fair share)
        return "its labels changed", False
    was, now = meta(old, "annotations"), meta(new, "annotations")
    if was.get(names.ALLOC_RELEASE) != now.get(names.ALLOC_RELEASE):
        return "pods given back", True
    if was.get(names.PRIORITY) != now.get(names.PRIORITY):
        return "its place in the line changed", False
    lost = set(old["metadata"].get("finalizers") or ()) - set(new["metadata"].get("finalizers") or ())
    if names.FINALIZER_TASKS in lost:
        return "its tasks are gone", True
    if names.FINALIZER_POOL in lost and not ctx.ledger_agrees:
        return "its pool finalizer was taken", True
    return _record_reason(old, new, ctx)


def _record_reason(old: Obj, new: Obj, ctx: Context) -> tuple[str, bool]:
    """The same for its record, and for the states in its status that kept it out of the line."""
    was, now = meta(old, "annotations"), meta(new, "annotations")
    if any(was.get(name) != now.get(name) for name in (names.ALLOC_STATUS, names.ALLOC_RELEASED)):
        if not ctx.ledger_agrees or _serving_pool(old) != _serving_pool(new):
            return "its record changed", True
        if _was_quarantined(old):
            return "its record can be read again", True
    if _stands_aside(old) and not _stands_aside(new):
        return "it is back in the line", False
    return "", False


def _serving_pool(obj: Obj) -> object:
    """The recorded pool, else the one it names (`claims.effective_pool`): a record that goes may leave another one."""
    return (_record(obj) or {}).get("poolRef") or sub(obj, "spec").get("poolRef")


def _stands_aside(obj: Obj) -> bool:
    """Whether its status keeps it out of the line (`claims.in_line`)."""
    status = sub(obj, "status")
    if status.get("phase") in (names.PAUSING, names.PAUSED):
        return True
    seen, generation = status.get("observedGeneration"), obj["metadata"].get("generation") or 0
    return (
        isinstance(seen, int)
        and seen >= generation
        and any(
            c.get("type") == names.POD_FAILED and c.get("reason") == names.REASON_ALLOCATION_TIMEOUT
            for c in _conditions(obj)
        )
    )


def _own_reason(old: Obj, new: Obj, ctx: Context) -> str:
    """Why the sandbox's own reconcile must run although its spec did not change."""
    was, now = meta(old, "annotations"), meta(new, "annotations")
    for name in OWN_ANNOTATIONS:
        if was.get(name) != now.get(name):
            return f"annotation {name.rpartition('/')[2]} changed"
    if was.get(names.ALLOC_RELEASED) != now.get(names.ALLOC_RELEASED):
        return "pods recycled"
    if was.get(names.ALLOC_RELEASE) != now.get(names.ALLOC_RELEASE):
        return "pods given back"
    if was.get(names.ALLOC_STATUS) != now.get(names.ALLOC_STATUS):
        spec = sub(new, "spec")
        if not ctx.ledger_agrees or _was_quarantined(old) or _slots_recorded(new) < _slots_recorded(old):
            return "its record changed"
        if spec.get("taskTemplate") or spec.get("pause"):
            return "pods allocated"
    if was.get(names.ENDPOINTS) != now.get(names.ENDPOINTS) and not ctx.endpoints_agree:
        return "its endpoints are not those of its pods"
    if new["metadata"].get("deletionTimestamp"):
        gone = set(old["metadata"].get("finalizers") or ()) - set(new["metadata"].get("finalizers") or ())
        if gone:
            return "a finalizer is gone"
    return ""


def _conditions(obj: Obj) -> list[Mapping[str, Any]]:
    found = sub(obj, "status").get("conditions")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _was_quarantined(old: Obj) -> bool:
    """A record that was unreadable or forged may just have been put right: that it now agrees is the news."""
    told = any(c.get("type") == names.QUARANTINED and c.get("status") == "True" for c in _conditions(old))
    return told or _record(old) == {}


def _record(obj: Obj) -> Mapping[str, Any] | None:
    """The record as far as routing needs it; None when there is none or it cannot be read."""
    text = meta(obj, "annotations").get(names.ALLOC_STATUS)
    if not isinstance(text, str) or not text:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _slots_recorded(obj: Obj) -> int:
    pods = (_record(obj) or {}).get("pods")
    return len(pods) if isinstance(pods, list) else 0


def pools_of(obj: Obj) -> tuple[str, ...]:
    """The pools that concern this sandbox: the one it names and the one its record names. Never "" or "*"."""
    ref = sub(obj, "spec").get("poolRef")
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
    spec, before = sub(new, "spec"), sub(old, "spec") if old is not None else {}
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
