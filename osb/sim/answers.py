"""Small answers of the HTTP face: bytes, refusals, the `Status` of a deletion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from aiohttp import web

from osb.sim.kinds import Resource
from osb.sim.refusals import Refusal
from osb.sim.storage import Record

Obj = dict[str, Any]


def send(raw: bytes, status: int = 200) -> web.Response:
    return web.Response(body=raw, status=status, content_type="application/json")


def refuse(refusal: Refusal) -> web.Response:
    headers = {"Retry-After": str(int(refusal.retry_after))} if refusal.retry_after else None
    return web.Response(
        body=orjson.dumps(refusal.body()),
        status=refusal.code,
        content_type="application/json",
        headers=headers,
    )


def raw_as(res: Resource, record: Record) -> bytes:
    """The stored encoding, or another when the object was stored under another version of its group."""
    if record.obj.get("apiVersion") == res.api_version:
        return record.raw
    return orjson.dumps({**record.obj, "apiVersion": res.api_version})


def version_encoder(res: Resource) -> Callable[[str, Obj], bytes] | None:
    """Kinds served under two versions cannot share one encoding."""
    if res.plural not in ("poddisruptionbudgets", "horizontalpodautoscalers"):
        return None
    return lambda kind, obj: orjson.dumps({"type": kind, "object": {**obj, "apiVersion": res.api_version}}) + b"\n"


def deleted(res: Resource, record: Record) -> Obj:
    meta = record.obj["metadata"]
    details = {"name": meta["name"], "group": res.group, "kind": res.plural, "uid": meta["uid"]}
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }  # fmt: skip
