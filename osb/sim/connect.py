"""Subresources that are no objects: binding, eviction, tokens; exec and log, relayed to the kubelet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
from aiohttp import web

from osb.sim import refusals
from osb.sim.answers import raw_as, send
from osb.sim.bodies import body_of
from osb.sim.kinds import NAMESPACE, NODE, PDB, POD
from osb.sim.patches import clone
from osb.sim.selectors import matches_selector
from osb.sim.target import Target
from osb.sim.writes import DeleteOptions, timestamp

if TYPE_CHECKING:
    from osb.sim.server import ApiServer

Obj = dict[str, Any]

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io")


async def answer(server: ApiServer, request: web.BaseRequest, target: Target) -> web.StreamResponse:
    if target.sub == "exec" and request.method in ("GET", "POST"):
        return await _exec(server, request, target)
    if target.sub == "log" and request.method == "GET":
        return await _log(server, request, target)
    if target.sub == "finalize" and request.method == "PUT":
        return _finalize(server, target, await body_of(request))
    if request.method != "POST":
        raise refusals.not_allowed()
    body = await body_of(request)
    if target.sub == "binding":
        return bind(server, target, body)
    if target.sub == "eviction":
        return evict(server, target, body)
    status = {"token": f"sim-{target.name}", "expirationTimestamp": timestamp()}
    return send(orjson.dumps({**body, "kind": "TokenRequest", "status": status}), 201)


def bind(server: ApiServer, target: Target, body: Obj) -> web.Response:
    """Sets spec.nodeName once, with the condition PodScheduled."""
    node = (body.get("target") or {}).get("name")
    record = server.writes.get(POD, target.space, target.name)
    meta = record.obj["metadata"]
    wanted = (body.get("metadata") or {}).get("uid")
    if wanted and wanted != meta["uid"]:
        raise refusals.conflict(
            POD,
            target.name,
            f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {meta['uid']}",
        )
    if "deletionTimestamp" in meta:
        raise refusals.conflict(POD, target.name, f"pod {target.name} is being deleted, cannot be assigned to a host")
    if record.obj["spec"].get("nodeName"):
        raise refusals.conflict(
            POD,
            target.name,
            f'pod {target.name} is already assigned to node "{record.obj["spec"]["nodeName"]}"',
        )
    if not node:
        raise refusals.bad_request("target.name is required")
    new = clone(record.obj)
    new["spec"]["nodeName"] = node
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(),
    }
    kept = [item for item in new["status"].get("conditions") or () if item.get("type") != "PodScheduled"]
    new["status"]["conditions"] = [*kept, condition]
    server.storage.put(POD, new)
    return send(
        orjson.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
        201,
    )


def evict(server: ApiServer, target: Target, body: Obj) -> web.Response:
    """Deletes the pod unless a PodDisruptionBudget that selects it allows no disruption (429)."""
    record = server.writes.get(POD, target.space, target.name)
    labels = record.obj["metadata"].get("labels") or {}
    for budget in server.storage.bucket(PDB.bucket).records(target.space):
        selected = matches_selector(budget.obj.get("spec", {}).get("selector"), labels)
        if selected and (budget.obj.get("status") or {}).get("disruptionsAllowed", 1) <= 0:
            raise refusals.too_many("Cannot evict pod as it would violate the pod's disruption budget.", 0)
    options = body.get("deleteOptions") or {}
    grace = options.get("gracePeriodSeconds")
    uid = (options.get("preconditions") or {}).get("uid") or ""
    server.writes.delete(POD, target.space, target.name, DeleteOptions(grace=grace, uid=uid))
    return send(
        orjson.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
        201,
    )


def _finalize(server: ApiServer, target: Target, body: Obj) -> web.Response:
    """A namespace gives up the finalizers of its spec."""
    record = server.writes.get(NAMESPACE, "", target.name)
    new = clone(record.obj)
    new["spec"] = body.get("spec") or {}
    gone = not new["spec"].get("finalizers") and "deletionTimestamp" in new["metadata"]
    stored = server.storage.remove(NAMESPACE, new) if gone else server.storage.put(NAMESPACE, new)
    return send(raw_as(NAMESPACE, stored))


# -- to the kubelet ------------------------------------------------------------------------------------------


def kubelet_url(server: ApiServer, target: Target) -> tuple[str, Obj]:
    """Base URL of the kubelet that runs the pod, and the pod.

    409/500 in the server's words when there is none.
    """
    pod = server.writes.get(POD, target.space, target.name).obj
    name = pod["spec"].get("nodeName")
    if not name:
        raise refusals.Refusal(400, "BadRequest", f"pod {target.name} does not have a host assigned")
    status = server.writes.get(NODE, "", name).obj.get("status") or {}
    address = next((a["address"] for a in status.get("addresses") or () if a.get("type") == "InternalIP"), "")
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    if not address or not port:
        raise refusals.Refusal(500, "InternalError", f"no preferred addresses found for node {name}")
    annotations = server.writes.get(NODE, "", name).obj["metadata"].get("annotations") or {}
    return f"{annotations.get('sim.osb/kubelet-scheme', 'https')}://{address}:{port}", pod


def container_of(request: web.BaseRequest, pod: Obj) -> str:
    """The named container, or the only one."""
    names, target_name = [item["name"] for item in pod["spec"]["containers"]], pod["metadata"]["name"]
    chosen = request.query.get("container", "")
    if not chosen:
        if len(names) > 1:
            raise refusals.bad_request(
                f"a container name must be specified for pod {target_name}, choose one of: {names}"
            )
        return str(names[0])
    if chosen not in names:
        raise refusals.bad_request(f"container {chosen} is not valid for pod {pod['metadata']['name']}")
    return chosen


async def _log(server: ApiServer, request: web.BaseRequest, target: Target) -> web.StreamResponse:
    base, pod = kubelet_url(server, target)
    path = f"/containerLogs/{target.space}/{target.name}/{container_of(request, pod)}"
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(base + path, params=request.query, ssl=False) as got,
        ):
            return web.Response(body=await got.read(), status=got.status, content_type="text/plain")
    except aiohttp.ClientError as error:
        raise refusals.Refusal(500, "InternalError", f"error dialing the kubelet: {error}") from error


async def _exec(server: ApiServer, request: web.BaseRequest, target: Target) -> web.StreamResponse:
    """A WebSocket to the client, one to the kubelet, frames relayed both ways."""
    base, pod = kubelet_url(server, target)
    path = f"/exec/{target.space}/{target.name}/{container_of(request, pod)}"
    if request.headers.get("Upgrade", "").lower() != "websocket":
        raise refusals.bad_request("Upgrade request required")
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        raise refusals.bad_request(
            f"cannot exec into a container in a completed pod; current phase is {pod['status']['phase']}"
        )
    query = request.query_string.replace("stdin=", "input=").replace("stdout=", "output=").replace("stderr=", "error=")
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{base}{path}?{query}", protocols=PROTOCOLS, ssl=False) as inner,
        ):
            outer = web.WebSocketResponse(protocols=PROTOCOLS)
            await outer.prepare(request)
            await _relay(outer, inner)
            return outer
    except aiohttp.ClientError as error:
        raise refusals.Refusal(500, "InternalError", f"error dialing the kubelet: {error}") from error


async def _relay(outer: web.WebSocketResponse, inner: aiohttp.ClientWebSocketResponse) -> None:
    async def upstream() -> None:
        async for message in outer:
            if message.type == aiohttp.WSMsgType.BINARY:
                await inner.send_bytes(message.data)
        await inner.close()

    forward = asyncio.create_task(upstream())
    try:
        async for message in inner:
            if message.type == aiohttp.WSMsgType.BINARY:
                await outer.send_bytes(message.data)
        await outer.close()
    finally:
        forward.cancel()
