"""What a request carries: JSON, YAML or protobuf objects, patches, delete options. Raises 400, 415 for nonsense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import yaml
from aiohttp import web

from osb.sim import patches, protobuf, refusals
from osb.sim.kinds import Resource
from osb.sim.strategic import strategic
from osb.sim.writes import DeleteOptions

Obj = dict[str, Any]

_ACCEPTED = f"application/json, application/yaml, {protobuf.CONTENT}"
_PATCHES = ", ".join((patches.JSON, patches.MERGE, patches.STRATEGIC, patches.APPLY))


def dry_run(request: web.BaseRequest) -> bool:
    return "All" in request.query.getall("dryRun", [])


async def body_of(request: web.BaseRequest) -> Obj:
    """The decoded object of a request."""
    content, raw = request.content_type, await request.read()
    if content in ("application/json", "application/octet-stream", ""):
        decoded = decode(raw)
    elif content in ("application/yaml", "application/x-yaml", "text/yaml"):
        decoded = yaml.safe_load(raw)
    elif content == protobuf.CONTENT:
        return protobuf.decode(raw)
    else:
        raise refusals.unsupported_media(content, _ACCEPTED)
    if not isinstance(decoded, dict):
        raise refusals.bad_request("the object provided is unrecognized (must be a JSON object)")
    return decoded


def decode(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise refusals.bad_request(f"error decoding the body: {error}") from error


async def delete_options(request: web.BaseRequest) -> DeleteOptions:
    """From the body (DeleteOptions), else from the query."""
    raw, query = await request.read(), request.query
    body = await body_of(request) if raw.strip() else {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    conditions = body.get("preconditions") or {}
    orphan = body.get("orphanDependents", query.get("orphanDependents"))
    return DeleteOptions(
        grace=None if grace is None else int(grace),
        uid=conditions.get("uid") or "", version=conditions.get("resourceVersion") or "",
        propagation=body.get("propagationPolicy") or query.get("propagationPolicy") or
        ("Orphan" if orphan in (True, "true") else ""),
        dry_run=dry_run(request) or "All" in (body.get("dryRun") or ()),
    )  # fmt: skip


def edit_of(content: str, raw: bytes, res: Resource) -> tuple[Callable[[Obj], Obj], bool]:
    """The patch as a function of the stored object, and whether it may create (server-side apply)."""
    if content == patches.APPLY:
        try:
            wanted = yaml.safe_load(raw)
        except yaml.YAMLError as error:
            raise refusals.bad_request(f"error decoding YAML: {error}") from error
        if not isinstance(wanted, dict):
            raise refusals.bad_request("an apply patch is an object")
        return (lambda old: strategic(old, wanted, res) if not res.custom else patches.merge(old, wanted)), True
    body = decode(raw)
    if content == patches.JSON:
        return (lambda old: patches.json_patch(old, body)), False
    if not isinstance(body, dict):
        raise refusals.bad_request("the patch must be an object")
    if content == patches.MERGE:
        return (lambda old: patches.merge(old, body)), False
    if content == patches.STRATEGIC and not res.custom:
        return (lambda old: strategic(old, body, res)), False
    raise refusals.unsupported_media(content, _PATCHES)
