"""`SimCluster`: the simulated API server and its kubelet in a thread, for tests, `osbctl up` and `demo`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from osb.sim import admin
from osb.sim.kubelet import FakeKubelet
from osb.sim.server import ApiServer

Obj = dict[str, Any]
T = TypeVar("T")

_KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: sim, cluster: {{server: "{url}"}}}}]
users: [{{name: admin, user: {{token: sim-admin}}}}]
contexts: [{{name: sim, context: {{cluster: sim, user: admin, namespace: default}}}}]
current-context: sim
"""


class SimCluster:
    """A running simulated cluster. `url` and `kubeconfig` say where; `stop` ends it. Usable as a context manager.

    In-process callers may also use `add_fault`, `clear_faults` and `stats`; over HTTP the same is under /_sim.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        pod_ready: float = 0.5,
        kubelet: bool = True,
        nodes: int = 1,
        first_address: str = "",
        **options: Any,
    ) -> None:
        self.folder = folder
        self.url = ""
        self.kubeconfig = folder / "kubeconfig"
        self._port = port
        self._pod_ready = pod_ready
        self._with_kubelet = kubelet
        self._nodes = nodes
        self._first_address = first_address
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sim-cluster", daemon=True)
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._over: asyncio.Event | None = None
        self.server: ApiServer | None = None

    @classmethod
    def start(
        cls,
        folder: Path | str,
        *,
        port: int = 0,
        pod_ready: float = 0.5,
        kubelet: bool = True,
        **options: Any,
    ) -> SimCluster:
        """A cluster that answers.

        `options`: nodes and first_address (of the pods); the rest goes to `ApiServer`
          (window, bookmark_every, auto_namespaces).
        """
        cluster = cls(Path(folder), port=port, pod_ready=pod_ready, kubelet=kubelet, **options)
        cluster.folder.mkdir(parents=True, exist_ok=True)
        cluster._thread.start()
        cluster._ready.wait()
        if cluster._error is not None:
            raise cluster._error
        return cluster

    def stop(self) -> None:
        """Ends the server, the kubelet and the thread; open watches are closed."""
        if self._over is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(timeout=10)

    def __enter__(self) -> SimCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- doors for in-process tests --------------------------------------------------------------------------

    def add_fault(self, **members: Any) -> str:
        """Put a fault in force (members of `osb.sim.faults.Fault`); returns its id."""
        return self._call(self._add_fault(members))

    def clear_faults(self, fault_id: str = "") -> None:
        self._call(self._clear(fault_id))

    def stats(self) -> dict[str, int]:
        """Requests so far, by "verb resource"; those of the kubelet begin with "kubelet"."""
        return dict(self._server.stats)

    def compact(self) -> None:
        """Forget the history of changes: watches from earlier versions get 410."""
        self._loop.call_soon_threadsafe(self._server.storage.compact)

    def disconnect(self) -> None:
        """End every running watch."""
        self._call(self._disconnect())

    async def _disconnect(self) -> None:
        for watcher in list(self._server.watchers):
            watcher.stop()

    async def _add_fault(self, members: Obj) -> str:
        return admin.add_fault(self._server, members).id

    async def _clear(self, fault_id: str) -> None:
        self._server.faults.remove(fault_id)

    @property
    def _server(self) -> ApiServer:
        if self.server is None:
            raise RuntimeError("the simulated cluster is not running")
        return self.server

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except (OSError, RuntimeError) as error:
            self._error = error
            self._ready.set()
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        self.server = ApiServer(**self._options)
        await self.server.start()
        runner = web.ServerRunner(web.Server(self.server.handle, access_log=None), shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self._port, backlog=1024)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}"
        self.kubeconfig.write_text(_KUBECONFIG.format(url=self.url))
        logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # faults hang up on purpose
        try:
            await self._until_over()
        finally:
            await self.server.stop()
            await runner.cleanup()

    async def _until_over(self) -> None:
        """Run the kubelet, if wanted, until `stop`."""
        assert self._over is not None
        tasks: list[asyncio.Task[None]] = []
        if self._with_kubelet:
            kubelet = FakeKubelet(
                self.url, pod_ready=self._pod_ready, nodes=self._nodes, first_address=self._first_address
            )
            tasks = [asyncio.create_task(kubelet.run())]
            await kubelet.ready.wait()
        self._ready.set()
        await self._over.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
