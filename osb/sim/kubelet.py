"""The fake kubelet and scheduler: binds pods, makes them Ready, restarts, fails, completes and deletes them.

It works through the API only, so it drives the simulated server and a real control plane alike. What a
pod does is scripted by annotations (`osb.sim.script`); what is written is `osb.sim.podstatus`; exec comes
in at `osb.sim.kubexec`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from osb.sim.addresses import Addresses
from osb.sim.kubeapi import MERGE, Api, ApiAnswer, access_of
from osb.sim.kubexec import ExecServer, Outcome
from osb.sim.nodes import Nodes
from osb.sim.podrun import PodRun, is_job_pod
from osb.sim.podstatus import unschedulable

Obj = dict[str, Any]

_LOG = logging.getLogger("osb.sim.kubelet")
_NO_ANSWER = (aiohttp.ClientError, TimeoutError, ConnectionError)


class FakeKubelet:
    """Runs in the caller's event loop: `await run()` until cancelled. `ready` is set when its nodes exist.

    `source` is a URL or a kubeconfig; `pod_ready` the seconds from binding to Ready; `nodes` how many
    nodes it plays.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        pod_ready: float = 0.5,
        nodes: int = 1,
        name: str = "sim-node",
        concurrency: int = 48,
        first_address: str = "",
    ) -> None:
        self.pod_ready = pod_ready
        self.ready = asyncio.Event()
        self._access = access_of(source)
        self._names = [f"{name}-{index}" if nodes > 1 else name for index in range(nodes)]
        self._concurrency = concurrency
        self._addresses = Addresses(first_address)
        self._runs: dict[tuple[str, str], PodRun] = {}
        self._waiting: dict[tuple[str, str], Obj] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        tls = self._access.url.startswith("https")
        self.api = Api(self._access, concurrency=self._concurrency)
        server = ExecServer(self._exec, tls=tls)
        await server.start()
        self.nodes = Nodes(self.api, self._names, port=server.port, tls=tls)
        try:
            await self.nodes.register()
            self.ready.set()
            async with asyncio.TaskGroup() as group:
                group.create_task(self.nodes.heartbeat())
                group.create_task(self._follow("/api/v1/nodes", self._node_event, None))
                group.create_task(self._follow("/api/v1/pods", self._pod_event, self._pods_listed))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.stop()
            await self.api.close()

    # -- events ----------------------------------------------------------------------------------------------

    async def _follow(self, path: str, see: Callable[[Obj], None], listed: Callable[[list[Obj]], None] | None) -> None:
        """List and watch for ever; `listed` gets every full list, `see` every event."""
        version = ""
        while True:
            try:
                if not version:
                    items, version = await self.api.list_all(path)
                    if listed is not None:
                        listed(items)
                    for item in items:
                        see({"type": "ADDED", "object": item})
                async for event in self.api.watch(path, version):
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        see(event)
            except ApiAnswer as answer:
                version = "" if answer.code == 410 else version
                _LOG.debug("watch of %s ended: %s", path, answer)
                await asyncio.sleep(0.1)
            except _NO_ANSWER as error:
                _LOG.debug("watch of %s broke: %s", path, error)
                await asyncio.sleep(0.3)

    def _node_event(self, event: Obj) -> None:
        if self.nodes.saw(event):
            for pod in list(self._waiting.values()):
                self._schedule(pod)

    def _pods_listed(self, items: list[Obj]) -> None:
        """Pods that went away while nobody watched."""
        there = {item["metadata"]["uid"] for item in items}
        for key, run in list(self._runs.items()):
            if run.uid not in there:
                self._forget(key)

    def _pod_event(self, event: Obj) -> None:
        pod, meta = event["object"], event["object"]["metadata"]
        key = (meta["namespace"], meta["name"])
        run = self._runs.get(key)
        if event["type"] == "DELETED" or (run is not None and run.uid != meta["uid"]):
            self._forget(key)
            self._waiting.pop(key, None)
            if event["type"] == "DELETED":
                return
            run = None
        node = pod["spec"].get("nodeName")
        if not node:
            if "deletionTimestamp" not in meta and key not in self._waiting:
                self._schedule(pod)
            return
        self._waiting.pop(key, None)
        if node not in self._names:
            return
        if run is None:
            run = self._runs[key] = PodRun(self, pod)
            run.start()
        else:
            run.see(pod)

    def _forget(self, key: tuple[str, str]) -> None:
        run = self._runs.pop(key, None)
        if run is not None:
            run.cancel()
            self._addresses.give(run.ip)

    # -- what PodRun uses ------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A background task that ends with the kubelet; its API failures are logged, not raised."""
        task = asyncio.create_task(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (ApiAnswer, *_NO_ANSWER) as error:
            _LOG.debug("given up: %s", error)

    async def insist(self, method: str, path: str, body: Any, *, content: str = "application/json") -> Obj:
        """A call that is repeated until it has a definite answer: 5xx, 429 and no answer are tried again."""
        pause = 0.1
        while True:
            try:
                return await self.api.call(method, path, body, content=content)
            except ApiAnswer as answer:
                if answer.code < 500 and answer.code != 429:
                    raise
            except _NO_ANSWER as error:
                _LOG.debug("%s %s: %s", method, path, error)
            await asyncio.sleep(pause)
            pause = min(5.0, pause * 2)

    def address(self, wanted: str) -> str:
        """A free address, or the one that the pod already has."""
        if wanted:
            self._addresses.claim(wanted)
            return wanted
        return self._addresses.take()

    def source_of(self, pod: Obj) -> PodRun | None:
        """The pod that a commit Job's pod works on (its first argument), if it runs here."""
        args = next((item.get("args") or [] for item in pod["spec"]["containers"]), [])
        return self._runs.get((args[1], args[0])) if len(args) >= 2 and is_job_pod(pod) else None

    # -- scheduling ------------------------------------------------------------------------------------------

    def _schedule(self, pod: Obj) -> None:
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        self._waiting[key] = pod
        self.spawn(self._bind(key, pod))

    async def _bind(self, key: tuple[str, str], pod: Obj) -> None:
        meta, base = pod["metadata"], f"/api/v1/namespaces/{key[0]}/pods/{key[1]}"
        barred = (meta.get("annotations") or {}).get("sim.osb/unschedulable", "false") != "false"
        node = None if barred else self.nodes.choose(pod)
        if node is None:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            status = unschedulable(pod.get("status") or {}, f"0/{len(self._names)} nodes are available", now)
            await self.insist(
                "PATCH", f"{base}/status", {"metadata": {"uid": meta["uid"]}, "status": status}, content=MERGE
            )
            return
        body = {
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": key[1], "namespace": key[0], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }  # fmt: skip
        with contextlib.suppress(ApiAnswer):  # gone, deleted, or bound already: the next event tells
            await self.insist("POST", f"{base}/binding", body)

    # -- exec ------------------------------------------------------------------------------------------------

    async def _exec(self, namespace: str, name: str, container: str, command: list[str]) -> Outcome:
        run = self._runs.get((namespace, name))
        if run is None:
            return Outcome(1, f"pod {namespace}/{name} does not run here\n")
        return await run.execute(container, command)
