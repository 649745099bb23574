"""The watcher process: one stream per kind, freshness, readiness, shutdown. Any number of watchers may run.

In: settings. Out: events on the queue (through `osb.watch.feed`). While another controller holds the installation's
Lease nothing is listed or enqueued (spec/operations.md 4).
"""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import dataclass, field

from osb.api import names
from osb.config import Settings, masked_url
from osb.errors import ApiError, StoreDown
from osb.kube.client import Kube
from osb.kube.client import connect as connect_kube
from osb.kube.resources import resource
from osb.obs import heap
from osb.obs.log import get_logger
from osb.reconcile import profiles
from osb.reconcile.installation import Installation
from osb.reconcile.pin import pin
from osb.reconcile.startup import trust
from osb.store.client import Store
from osb.store.client import connect as connect_store
from osb.store.forward import Forwarder
from osb.store.mirror import CONFIGMAP
from osb.watch.feed import Source, Stream

log = get_logger("watch")

SOURCES = (
    Source("pool", "pool"),
    Source("batchsandbox", "batchsandbox"),
    Source("poolpod", "pod", labels=names.LABEL_POOL_NAME),
    Source("boxpod", "pod", labels=names.LABEL_BOX_NAME),
    Source("snapshot", "snapshot"),
    Source("job", "job", labels=names.LABEL_SNAPSHOT_NAME),
    # The server tells only which nodes begin and cease to be cordoned: the news of all others never leaves it.
    Source("node", "node", fields="spec.unschedulable=true",
           without="idle pods stay on cordoned nodes: nodes may not be listed or watched"),
)  # fmt: skip
PROFILES = Source(
    CONFIGMAP, "configmap", fields=f"metadata.name={profiles.NAME}", home=True, noted=profiles.remember,
    without="changed assign profiles wake nobody: their ConfigMap may not be listed or watched",
)  # fmt: skip

LEASE_LOOK_SECONDS = 1.0
TELL_AGAIN_SECONDS = 60.0  # of a Redis or an API server that stays away

EXIT_AFTER = 120.0
"""A stream without any sign of life for this long ends the process; its supervisor starts it anew."""


@dataclass(slots=True)
class Watcher:
    """`start`, then `wait`; `ready` and `alive` are what the probes ask."""

    settings: Settings
    stop: threading.Event = field(default_factory=threading.Event)
    streams: list[Stream] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    kube: Kube | None = None
    store: Store | None = None
    installation: Installation | None = None
    mark: str = ""  # of the cluster, in Redis
    _trusted: bool = False  # Redis was looked at, and its warnings told
    _ours: tuple[float, bool] = (-LEASE_LOOK_SECONDS, False)

    def start(self) -> None:
        """Connect, pin the cluster in Redis, start one thread per kind. May be repeated when it raised an OsbError."""
        self.close_clients()
        sources = (*SOURCES, PROFILES) if self.settings.pod_namespace else SOURCES
        self.kube = connect_kube(self.settings, pool=len(sources) * (max(1, len(self.settings.namespaces)) + 1) + 4)
        self.store = connect_store(self.settings.redis_url, name="watcher")
        if not self._trusted:
            trust(self.store, self.settings.redis_url)
            self._trusted = True
        self.mark = pin(self.store, self.kube, self.settings)
        self.installation = Installation(self.store, self.settings)
        forward = Forwarder(self.store)
        for source in sources:
            stream = Stream(
                source, self.kube, self.store, forward, self.stop, allowed=self._allowed,
                namespaces=self._namespaces(source), relist_seconds=float(self.settings.resync_seconds),
            )  # fmt: skip
            self.streams.append(stream)
            self._thread(f"watch-{source.kind}", stream.run)
        self._thread("watch-guard", self._guard)

    def _namespaces(self, source: Source) -> tuple[str, ...]:
        if source.home:
            return (self.settings.pod_namespace,)
        return self.settings.namespaces if resource(source.resource).namespaced else ()

    def _needed(self) -> list[Stream]:
        """The streams that passes cannot do without: only these say whether this watcher is ready, and alive."""
        return [stream for stream in self.streams if not stream.source.without]

    def _thread(self, name: str, target: object) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)  # type: ignore[arg-type]  # zero-argument callables
        self.threads.append(thread)
        thread.start()

    def _allowed(self) -> bool:
        """Whether this installation acts; asked before each list and each batch, so the answer is kept for a second."""
        assert self.installation is not None
        asked, answer = self._ours
        if time.monotonic() - asked > LEASE_LOOK_SECONDS:
            try:
                answer = self.installation.ours()
            except StoreDown as down:
                log.info("the Lease's copy cannot be read, going on as before", error=str(down))
            self._ours = (time.monotonic(), answer)
        return answer

    def _guard(self) -> None:
        """Every 2 s: renew the Lease when beat is silent, look for a lost mirror, leave when a stream is stuck."""
        assert self.installation is not None and self.store is not None
        told = -TELL_AGAIN_SECONDS
        while not self.stop.wait(2.0 * random.uniform(0.8, 1.2)):
            try:
                if any(stream.synced.is_set() for stream in self._needed()):
                    self.installation.stand_in(fresh=True)
                else:
                    self.installation.stand_in(fresh=False)
                if self.mark:
                    self.store.pin(self.mark)  # a flushed Redis has forgotten it
                for stream in self.streams:
                    if stream.synced.is_set() and not self.store.mirror.synced(stream.source.kind):
                        stream.again.set()
                told = -TELL_AGAIN_SECONDS
            except (StoreDown, ApiError) as error:
                if time.monotonic() - told >= TELL_AGAIN_SECONDS:
                    told = time.monotonic()
                    log.warning("the guard could not look, goes on trying", error=str(error),
                                redis=masked_url(self.settings.redis_url))  # fmt: skip
            self._shrink()
            stuck = [s.source.kind for s in self._needed() if time.monotonic() - s.beat > EXIT_AFTER]
            if stuck and not self.stop.is_set():
                log.error("no sign of life from a stream, leaving", kinds=stuck)
                os._exit(1)

    def _shrink(self) -> None:
        """Lists of many pods need memory for a moment; do not keep it."""
        if any(stream.grew for stream in self.streams) and heap.trim():
            for stream in self.streams:
                stream.grew = False

    def ready(self) -> bool:
        """True after the first list of every needed kind, while none is stale (twice the watch timeout)."""
        limit = 2 * 70.0
        needed = self._needed()
        return bool(needed) and all(s.synced.is_set() and time.monotonic() - s.beat < limit for s in needed)

    def alive(self) -> bool:
        """True while every needed stream's loop showed life within 90 s (a silent watch ends itself after 80)."""
        return all(time.monotonic() - s.beat < EXIT_AFTER - 30 for s in self._needed())

    def close(self) -> None:
        """Stop the streams and close the connections; the Lease stays with the installation."""
        self.stop.set()
        for thread in self.threads:
            thread.join(3.0)
        self.close_clients()

    def close_clients(self) -> None:
        if self.kube is not None:
            self.kube.close()
        if self.store is not None:
            self.store.close()
