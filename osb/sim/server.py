"""The HTTP face of the simulated API server: one request in, one answer out.

A request passes `osb.sim.target` (what is it about?), the faults in force, then its verb: reads here, writes
through `osb.sim.writes`, watches through `osb.sim.watching`, exec and logs through `osb.sim.connect`.
Everything that is no resource (discovery, health, OpenAPI) is `osb.sim.discovery`; /_sim is `osb.sim.admin`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from osb.sim import admin, connect, discovery, lists, refusals, tables
from osb.sim.answers import deleted, raw_as, refuse, send, version_encoder
from osb.sim.bodies import body_of, delete_options, dry_run, edit_of
from osb.sim.collect import Collector
from osb.sim.crd import Definitions
from osb.sim.effects import before, hang_up
from osb.sim.faults import KUBELET, Faults
from osb.sim.jobs import JobController
from osb.sim.kinds import NAMESPACE, Registry, Resource
from osb.sim.refusals import Refusal
from osb.sim.selectors import Predicate, both, field_selector, label_selector
from osb.sim.storage import Record, Storage
from osb.sim.target import Target, parse, verb
from osb.sim.watching import Watcher, WatchOptions
from osb.sim.writes import Writes

Obj = dict[str, Any]


class ApiServer:
    """State and handlers.

    `start` begins the controllers inside the server, `stop` ends them and every watch.
    """

    def __init__(self, *, window: int = 20_000, bookmark_every: float = 5.0, auto_namespaces: bool = True) -> None:
        self.storage = Storage(window=window)
        self.registry = Registry()
        self.writes = Writes(self.storage, auto_namespaces=auto_namespaces)
        self.pages = lists.Pages()
        self.faults = Faults()
        self.stats: Counter[str] = Counter()
        self.definitions = Definitions(self.registry, self.writes)
        self.collector = Collector(self.registry, self.writes)
        self.jobs = JobController(self.writes)
        self.watchers: dict[Watcher, tuple[str, str]] = {}  # path and user agent of each
        self._bookmark_every = bookmark_every
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.writes.create(NAMESPACE, "", {"metadata": {"name": name}})
        self._tasks = [asyncio.create_task(self.collector.run()), asyncio.create_task(self.jobs.run())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for watcher in list(self.watchers):
            watcher.stop()
        self.faults.remove()

    # -- one request -----------------------------------------------------------------------------------------

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if request.path.startswith("/_sim"):
                return await admin.answer(self, request)
            target = parse(self.registry, request.path)
            if target is None:
                return await discovery.answer(self, request)
            return await self._guarded(request, target)
        except Refusal as refusal:
            return refuse(refusal)

    async def _guarded(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Count, apply the faults in force, then serve."""
        watch = request.query.get("watch") in ("1", "true")
        what = verb(request.method, target, watch=watch)
        if not what:
            raise refusals.not_allowed()
        agent = request.headers.get("User-Agent", "")
        self._count(what, target, agent)
        if not self.faults:
            return await self._serve(request, target, what, None)
        hit = self.faults.take(request.method, request.path_qs, what, agent)
        await before(hit, request, target)
        stale = next((fault.snapshot for fault in hit if fault.stale and what == "list"), None)
        if what == "watch" and any(fault.gone for fault in hit):
            stale = "gone"
        response = await self._serve(request, target, what, stale)
        if pause := sum(fault.after for fault in hit):
            await asyncio.sleep(pause)
        if any(fault.drop for fault in hit):
            hang_up(request)
        return response

    def _count(self, what: str, target: Target, agent: str) -> None:
        """By "verb resource"; the kubelet's own requests under "kubelet verb resource"."""
        who = "kubelet " if agent.startswith(KUBELET) else ""
        self.stats[f"{who}{what} {target.res.plural}{'/' + target.sub if target.sub else ''}"] += 1

    async def _serve(self, request: web.BaseRequest, target: Target, what: str, stale: Any) -> web.StreamResponse:
        if target.sub in ("exec", "log", "binding", "eviction", "token", "finalize"):
            return await connect.answer(self, request, target)
        if what == "watch":
            return await self._watch(request, target, gone=stale == "gone")
        serve: dict[str, Callable[[web.BaseRequest, Target], Awaitable[web.StreamResponse]]] = {
            "get": self._get, "create": self._create, "update": self._update, "patch": self._patch,
            "delete": self._delete, "deletecollection": self._delete_all,
        }  # fmt: skip
        if what == "list":
            return self._list(request, target, stale)
        return await serve[what](request, target)

    # -- reads -----------------------------------------------------------------------------------------------

    async def _get(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        record = self.writes.get(target.res, target.space, target.name)
        if form := tables.form_of(request):
            return send(orjson.dumps(tables.one(form, target.res, record.obj, request.query.get("includeObject", ""))))
        return send(raw_as(target.res, record))

    def _list(self, request: web.BaseRequest, target: Target, stale: Any) -> web.StreamResponse:
        query, res = request.query, target.res
        limit = int(query.get("limit") or 0)
        predicate = self.predicate(request, target)
        if token := query.get("continue"):
            page, more, remaining, version = self.pages.after(token, limit)
        else:
            storage: Storage = stale or self.storage
            version = storage.revision
            found = lists.select(storage.bucket(res.bucket).records(target.namespace), predicate)
            page, more, remaining = self.pages.first(found, version, limit)
        meta = lists.list_meta(version, more, remaining, exact=predicate is None)
        if form := tables.form_of(request):
            objects = [record.obj for record in page]
            return send(orjson.dumps(tables.many(form, res, objects, meta, query.get("includeObject", ""))))
        return send(lists.encode(res, meta, (raw_as(res, record) for record in page)))

    def predicate(self, request: web.BaseRequest, target: Target) -> Predicate | None:
        """From labelSelector, fieldSelector and a name in the path."""
        query = request.query
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        return both(
            label_selector(labels) if labels else None,
            field_selector(fields, target.res.kind) if fields else None,
        )

    async def _watch(self, request: web.BaseRequest, target: Target, *, gone: bool) -> web.StreamResponse:
        query, res = request.query, target.res
        text = query.get("resourceVersion", "")
        if text and not text.isdigit():
            raise refusals.bad_request(f"Invalid value: {text!r}: resourceVersion must be a number")
        form = tables.form_of(request)
        options = WatchOptions(
            res, target.namespace, self.predicate(request, target), int(text) if text else None,
            query.get("allowWatchBookmarks") in ("1", "true"), float(query.get("timeoutSeconds") or 1800),
            encode=tables.event_encoder(form, res, query.get("includeObject",
            "")) if form else version_encoder(res),
        )  # fmt: skip
        watcher = Watcher(self.storage.bucket(res.bucket), options)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        path, agent = request.path_qs, request.headers.get("User-Agent", "")
        if gone:
            watcher.expire(self.storage.revision)
        else:
            watcher.start(self.storage.revision)
        self.watchers[watcher] = (path, agent)
        try:
            await watcher.run(response, gate=lambda: self.faults.frozen(path, agent), every=self._bookmark_every)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            return response
        finally:
            watcher.close()
            del self.watchers[watcher]
        return response

    # -- writes ----------------------------------------------------------------------------------------------

    async def _create(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        if target.res.namespaced and target.namespace is None:
            raise refusals.not_allowed()
        body = await body_of(request)
        if target.name:
            raise refusals.not_allowed()
        if virtual := discovery.virtual_create(self, target.res, body):
            return send(orjson.dumps(virtual), status=201)
        self.definitions.check(target.res, body)
        record = self.writes.create(target.res, target.space, body, dry_run=dry_run(request))
        return self._answer(request, target.res, record, 201)

    async def _update(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        body = await body_of(request)
        self.definitions.check(target.res, body)
        record = self.writes.replace(
            target.res, target.space, target.name, body, sub=target.sub, dry_run=dry_run(request)
        )
        return self._answer(request, target.res, record)

    async def _patch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        body = await request.read()
        edit, apply = edit_of(request.content_type, body, target.res)
        if apply and not self.storage.bucket(target.res.bucket).get(target.space, target.name):
            fresh = edit({"metadata": {"name": target.name}})
            record = self.writes.create(target.res, target.space, fresh, dry_run=dry_run(request))
            return self._answer(request, target.res, record, 201)
        record = self.writes.change(
            target.res, target.space, target.name, edit, sub=target.sub, dry_run=dry_run(request)
        )
        return self._answer(request, target.res, record)

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        options = await delete_options(request)
        record, gone = self.writes.delete(target.res, target.space, target.name, options)
        if gone and target.res.kind not in ("Pod", "Namespace"):
            return send(orjson.dumps(deleted(target.res, record)))
        return self._answer(request, target.res, record)

    async def _delete_all(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        options = await delete_options(request)
        records = self.storage.bucket(target.res.bucket).records(target.namespace)
        chosen = lists.select(list(records), self.predicate(request, target))
        for record in chosen:
            meta = record.obj["metadata"]
            self.writes.delete(target.res, meta.get("namespace", ""), meta["name"], options)
        meta = {"resourceVersion": str(self.storage.revision)}
        return send(lists.encode(target.res, meta, (raw_as(target.res, record) for record in chosen)))

    def _answer(self, request: web.BaseRequest, res: Resource, record: Record, status: int = 200) -> web.Response:
        if form := tables.form_of(request):
            return send(
                orjson.dumps(tables.one(form, res, record.obj, request.query.get("includeObject", ""))),
                status,
            )
        return send(raw_as(res, record), status)
