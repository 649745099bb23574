"""/_sim: the tests' own door to the simulated cluster. Faults, request counts, history that is cut on demand.

GET, POST, DELETE /_sim/faults[/id]   list, add (members: `osb.sim.faults.Fault`), remove one or all
GET, DELETE /_sim/stats               requests by "verb resource" (those of the fake kubelet
                                      begin with "kubelet"); DELETE starts counting anew
POST /_sim/compact                    forget the log: watches from older versions get 410; running ones go on
POST /_sim/expire                     continue tokens handed out so far get 410
POST /_sim/disconnect                 end every running watch
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from osb.sim import faults, refusals
from osb.sim.answers import send
from osb.sim.bodies import decode
from osb.sim.storage import Bucket, Storage

if TYPE_CHECKING:
    from osb.sim.server import ApiServer


async def answer(server: ApiServer, request: web.BaseRequest) -> web.StreamResponse:
    """404 for a door that does not exist."""
    parts = [part for part in request.path.split("/") if part][1:]
    what = (request.method, parts[0] if parts else "")
    if what == ("GET", "faults"):
        return send(orjson.dumps({"faults": [fault.describe() for fault in server.faults.all()]}))
    if what == ("POST", "faults"):
        return send(orjson.dumps(add_fault(server, decode(await request.read())).describe()), 201)
    if what == ("DELETE", "faults"):
        return send(orjson.dumps({"removed": server.faults.remove(parts[1] if len(parts) > 1 else "")}))
    if what == ("GET", "stats"):
        return send(orjson.dumps(dict(server.stats)))
    if what == ("DELETE", "stats"):
        server.stats.clear()
    elif what == ("POST", "compact"):
        server.storage.compact()
    elif what == ("POST", "expire"):
        server.pages.expire()
    elif what == ("POST", "disconnect"):
        for watcher in list(server.watchers):
            watcher.stop()
    else:
        raise refusals.no_such_path()
    return send(b"{}")


def add_fault(server: ApiServer, body: object) -> faults.Fault:
    """Put a fault in force; takes the snapshot of `stale`, ends running watches for `gone`."""
    fault = faults.parse(body)
    if fault.stale:
        fault.snapshot = snapshot(server.storage)
    server.faults.add(fault)
    if fault.gone:
        for watcher, (path, agent) in list(server.watchers.items()):
            if fault.matches("GET", path, "watch", agent):
                fault.hits += 1
                watcher.expire(server.storage.revision)
    return fault


def snapshot(storage: Storage) -> Storage:
    """The objects as they are now; later writes do not show in it."""
    frozen = Storage()
    frozen.revision = storage.revision
    for key, bucket in storage.buckets.items():
        kept = Bucket(0)
        kept.items = {space: copy.copy(held) for space, held in bucket.items.items()}
        frozen.buckets[key] = kept
    return frozen
