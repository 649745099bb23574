"""Table and PartialObjectMetadata answers: what `kubectl get` and metadata clients ask for by Accept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web

from osb.sim.jsonpath import find
from osb.sim.kinds import Resource

Obj = dict[str, Any]
Row = list[Any]

TABLE, PARTIAL, PARTIAL_LIST = "Table", "PartialObjectMetadata", "PartialObjectMetadataList"


def form_of(request: web.BaseRequest) -> tuple[str, str] | None:
    """(form, meta version) of the first form in the Accept header that we make; None: plain objects."""
    accept = request.headers.get("Accept", "")
    if "as=" not in accept:
        return None
    for choice in accept.split(","):
        parts = dict(part.strip().partition("=")[::2] for part in choice.split(";")[1:])
        if "json" not in choice:
            continue
        if parts.get("as") in (TABLE, PARTIAL, PARTIAL_LIST):
            return str(parts["as"]), f"meta.k8s.io/{parts.get('v', 'v1')}"
        return None
    return None


def one(form: tuple[str, str], res: Resource, obj: Obj, include: str) -> Obj:
    kind, version = form
    if kind != TABLE:
        return _partial(obj, version)
    return _table(version, res, [obj], {"resourceVersion": obj["metadata"].get("resourceVersion", "")}, include)


def many(form: tuple[str, str], res: Resource, objects: list[Obj], meta: Obj, include: str) -> Obj:
    kind, version = form
    if kind != TABLE:
        items = [_partial(obj, version) for obj in objects]
        return {"kind": PARTIAL_LIST, "apiVersion": version, "metadata": meta, "items": items}
    return _table(version, res, objects, meta, include)


def event_encoder(form: tuple[str, str], res: Resource, include: str) -> Callable[[str, Obj], bytes]:
    """Watch events in that form; only the first Table of a stream carries the column definitions."""
    first = True

    def encode(kind: str, obj: Obj) -> bytes:
        nonlocal first
        shown = one(form, res, obj, include)
        if form[0] == TABLE and not first:
            shown["columnDefinitions"] = None
        first = False
        return orjson.dumps({"type": kind, "object": shown}) + b"\n"

    return encode


def _partial(obj: Obj, version: str) -> Obj:
    return {"kind": PARTIAL, "apiVersion": version, "metadata": obj["metadata"]}


def _table(version: str, res: Resource, objects: list[Obj], meta: Obj, include: str) -> Obj:
    columns = _columns(res)
    definitions = [
        {"name": c["name"], "type": c.get("type", "string"), "format": c.get("format", ""),
         "description": c.get("description", ""), "priority": c.get("priority", 0)}
        for c in columns
    ]  # fmt: skip
    rows = [{"cells": [_cell(c, obj) for c in columns], "object": _included(obj, version, include)} for obj in objects]
    return {
        "kind": TABLE,
        "apiVersion": version,
        "metadata": meta,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def _included(obj: Obj, version: str, include: str) -> Obj | None:
    if include == "None":
        return None
    return obj if include == "Object" else _partial(obj, version)


_NAME: Obj = {"name": "Name", "type": "string", "format": "name", "jsonPath": ".metadata.name"}
_AGE: Obj = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def _columns(res: Resource) -> list[Obj]:
    if res.custom:
        return [_NAME, *(res.columns or (_AGE,))]
    return [_NAME, *_CORE.get(res.kind, [_AGE])]


def _cell(column: Obj, obj: Obj) -> Any:
    if "call" in column:
        return column["call"](obj)
    values = find(column.get("jsonPath", ""), obj)
    if not values:
        return None
    value = values[0]
    if column.get("type") == "date":
        return age(value) if isinstance(value, str) else "<unknown>"
    if column.get("type") == "string":
        return value if isinstance(value, str) else orjson.dumps(value).decode()
    return value


def age(text: str) -> str:
    """How long ago, as kubectl prints it; also of a time to come ("<invalid>", as the real server says)."""
    try:
        seconds = int((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds())
    except (ValueError, TypeError):
        return "<unknown>"
    if seconds < -2:
        return "<invalid>"
    seconds = max(0, seconds)
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


# -- columns of core kinds -----------------------------------------------------------------------------------


def _pod_ready(pod: Obj) -> str:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return f"{sum(1 for item in statuses if item.get('ready'))}/{len(pod['spec'].get('containers') or ())}"


def _pod_status(pod: Obj) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    status = pod.get("status", {})
    for item in status.get("containerStatuses") or ():
        for state in ("waiting", "terminated"):
            if reason := (item.get("state", {}).get(state) or {}).get("reason"):
                return str(reason)
    return str(status.get("reason") or status.get("phase") or "Unknown")


def _restarts(pod: Obj) -> int:
    return sum(int(item.get("restartCount", 0)) for item in pod.get("status", {}).get("containerStatuses") or ())


def _job_done(job: Obj) -> str:
    return f"{job.get('status', {}).get('succeeded', 0)}/{job.get('spec', {}).get('completions', 1)}"


def _node_status(node: Obj) -> str:
    ready = find('.status.conditions[?(@.type=="Ready")].status', node)
    text = "Ready" if ready and ready[0] == "True" else "NotReady"
    return text + (",SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else "")


def _col(name: str, path: str, *, kind: str = "string", priority: int = 0) -> Obj:
    return {"name": name, "type": kind, "jsonPath": path, "priority": priority}


def _call(name: str, call: Callable[[Obj], Any], *, kind: str = "string") -> Obj:
    return {"name": name, "type": kind, "call": call}


_CORE: dict[str, list[Obj]] = {
    "Pod": [_call("Ready", _pod_ready), _call("Status", _pod_status), _call("Restarts", _restarts,
    kind="integer"), _AGE,
            _col("IP", ".status.podIP", priority=1), _col("Node", ".spec.nodeName", priority=1)],
    "Node": [_call("Status", _node_status), _AGE, _col("Version", ".status.nodeInfo.kubeletVersion")],
    "Namespace": [_col("Status", ".status.phase"), _AGE],
    "Job": [_call("Completions", _job_done), _AGE],
    "Lease": [_col("Holder", ".spec.holderIdentity"), _AGE],
    "Event": [_col("Last Seen", ".lastTimestamp", kind="date"), _col("Type", ".type"), _col("Reason",
    ".reason"),
              _col("Object", ".involvedObject.name"), _col("Message", ".message")],
    "CustomResourceDefinition": [_col("Created At", ".metadata.creationTimestamp")],
    "ConfigMap": [_call("Data", lambda obj: len(obj.get("data") or {}), kind="integer"), _AGE],
    "Secret": [_col("Type", ".type"), _call("Data", lambda obj: len(obj.get("data") or {}), kind="integer"),
    _AGE],
}  # fmt: skip
