"""One stream of one kind: list, then watch, and hand every event to the mirror.

In: raw objects from `osb.kube` (list pages, watch batches). Out: `osb.store.forward`, which moves the mirror forward
and enqueues what moved. Nothing is kept here between two events but the resourceVersion to go on from.

A stream of what an installation can do without (cordoned nodes) that is refused is off: said once, and looked at
again ever more rarely. Nothing else notices.

A stream relists when it starts, when the server says 410, when Redis lost the mirror, when it stood still for over
60 s, and every ten minutes in any case (spec/pitfalls.md 24 and 26; spec/protocols.md 2).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from osb.errors import ApiError, Gone, NotFound, Refused, StoreDown
from osb.kube.client import Kube
from osb.kube.watch import WatchEvent
from osb.obs import metrics, trace
from osb.obs.log import get_logger
from osb.store.client import Store
from osb.store.forward import Forwarder

log = get_logger("watch")

STALLED_SECONDS = 60.0
OUTAGE_SECONDS = 30.0
REFUSED_SECONDS = (10.0, 600.0)  # until a refused stream is tried again: at first (rights may just be coming), at most


def _nothing(store: Store, obj: dict[str, Any]) -> None:
    """What most sources do with an object beside mirroring it."""


@dataclass(frozen=True, slots=True)
class Source:
    """What one stream reads: a mirror kind, the resource, its selectors.

    `home`: only in our own namespace.
    `without`: what is lost when it is refused, for one that the installation can do without; else "".
    `noted`: called for each object before it is mirrored.
    """

    kind: str
    resource: str
    labels: str = ""
    fields: str = ""
    home: bool = False
    without: str = ""
    noted: Callable[[Store, dict[str, Any]], None] = _nothing


@dataclass(slots=True)
class Stream:
    """The loop of one kind. `synced` is set after the first finished list; `beat` is the monotonic time of the last
    sign of life; `again` asks for a relist. `allowed` is False while another controller holds the installation's Lease:
    then nothing is read or enqueued, and the stream begins with a list when it may again. `grew` is set by a list:
    it may have needed much memory. `off`: seconds between two looks while it is refused, 0 when it is not."""

    source: Source
    kube: Kube
    store: Store
    forward: Forwarder
    stop: threading.Event
    allowed: Callable[[], bool] = lambda: True
    namespaces: tuple[str, ...] = ()
    relist_seconds: float = 600.0
    synced: threading.Event = field(default_factory=threading.Event)
    again: threading.Event = field(default_factory=threading.Event)
    beat: float = field(default_factory=time.monotonic)
    version: str = ""
    grew: bool = False
    off: float = 0.0

    def run(self) -> None:
        """Until `stop`: list, watch, and start over after any failure, with a growing, jittered pause."""
        pause = 0.2
        while not self.stop.is_set():
            try:
                if not self.allowed():
                    self.beat = time.monotonic()
                    self.stop.wait(1.0)
                    continue
                self.relist()
                pause = 0.2
                self.follow()
            except Gone:
                log.info("the version is too old, listing again", kind=self.source.kind)
            except (ApiError, StoreDown) as error:
                if self.source.without and isinstance(error, (Refused, NotFound)):
                    self._refused(error)
                    continue
                log.warning("a watch stream failed, starting over", kind=self.source.kind, error=str(error))
                self.stop.wait(pause * random.uniform(0.5, 1.5))
                pause = min(pause * 2, 10.0)
            metrics.inc("opensandbox_watch_restarts_total", kind=self.source.kind)

    def _refused(self, error: ApiError) -> None:
        if not self.off:
            log.warning(self.source.without, kind=self.source.kind, error=str(error))
        first, most = REFUSED_SECONDS
        self.off = min(2 * self.off or first, most)
        self.stop.wait(self.off * random.uniform(0.9, 1.1))

    def relist(self) -> None:
        """A complete, consistent list into the mirror; what the mirror has and the list has not is pruned."""
        self.again.clear()
        started = time.monotonic()
        pages = self._pages()
        self.version = self.forward.relist(self.source.kind, pages)
        self.beat = time.monotonic()
        self.store.duty.watcher_seen()  # before anybody calls us ready: then others see us, too
        self.synced.set()
        self.grew = True
        if trace.on:
            trace.mark("listed", self.source.kind)
        log.info(
            "listed",
            kind=self.source.kind,
            version=self.version,
            seconds=round(time.monotonic() - started, 3),
        )

    def _pages(self) -> Any:
        source = self.source
        for namespace in self.namespaces or (None,):
            for page in self.kube.list(source.resource, namespace, labels=source.labels, fields=source.fields):
                self.beat = time.monotonic()
                self._note(page.items)
                yield page

    def follow(self) -> None:
        """Watch from the last version until a relist is due; several namespaces each by a stream of their own.

        Rights may be granted in those namespaces only, so one watch of the whole cluster would be refused.
        """
        due = time.monotonic() + self.relist_seconds * random.uniform(0.85, 1.15)
        halt = _Halt(self.stop, self.again)
        if len(self.namespaces) < 2:
            return self._follow(self.namespaces[0] if self.namespaces else None, halt, due)
        ended = threading.Event()
        each = _Halt(self.stop, self.again, ended)
        with ThreadPoolExecutor(len(self.namespaces), thread_name_prefix=f"watch-{self.source.kind}") as pool:
            streams = [pool.submit(self._follow, namespace, each, due) for namespace in self.namespaces]
            wait(streams, return_when=FIRST_EXCEPTION)
            ended.set()
        for stream in streams:
            stream.result()
        return None

    def _follow(self, namespace: str | None, halt: _Halt, due: float) -> None:
        """A stream that just ends is reopened: that is normal. Each goes on from what itself has seen."""
        version, source = self.version, self.source
        while not halt.is_set() and time.monotonic() < due:
            for batch in self.kube.watch(
                source.resource, namespace, labels=source.labels, fields=source.fields, version=version, stop=halt
            ):
                self._stalled()
                if not self.allowed():
                    return
                self._feed(batch)
                version = str(batch[-1].obj["metadata"]["resourceVersion"])
                if halt.is_set() or time.monotonic() > due:
                    break
            if not halt.is_set():
                self._alive()
            halt.wait(random.uniform(0.05, 0.2))

    def _alive(self) -> None:
        """A watch that the server ended in order is a sign of life: had there been events, it would have sent them."""
        self.beat = time.monotonic()
        self.off = 0.0
        self.store.mirror.touch(self.source.kind)

    def _stalled(self) -> None:
        """A process that stood still may have been passed by others: nothing it holds may be believed."""
        now = time.monotonic()
        if now - self.beat > STALLED_SECONDS + 30.0:
            raise Gone("this process stood still for too long")
        self.beat = now

    def _feed(self, batch: Sequence[WatchEvent]) -> None:
        """One batch into the mirror; while Redis is away the batch is kept, at most 30 s, and nothing is read."""
        deadline = time.monotonic() + OUTAGE_SECONDS
        while True:
            try:
                unsynced = self._apply(batch)
                break
            except StoreDown:
                if time.monotonic() > deadline or self.stop.wait(0.2):
                    raise
        if unsynced:
            raise Gone("the mirror was lost")

    def _apply(self, batch: Sequence[WatchEvent]) -> bool:
        kind = self.source.kind
        unsynced = False
        run: list[dict[str, Any]] = []
        for event in batch:
            if event.type == "BOOKMARK":
                self.store.mirror.touch(kind)
            elif event.type == "DELETED":
                unsynced |= self._flush(run)
                unsynced |= self.forward.delete(kind, event.obj).unsynced
            else:
                run.append(event.obj)
        unsynced |= self._flush(run)
        metrics.inc("opensandbox_watch_events_total", len(batch), kind=kind)
        return unsynced

    def _flush(self, run: list[dict[str, Any]]) -> bool:
        if not run:
            return False
        if trace.on:
            _mark("seen", run)
        self._note(run)
        summary = self.forward.put(self.source.kind, list(run))
        if trace.on:
            _mark("mirrored", run)
        run.clear()
        return summary.unsynced

    def _note(self, objs: Sequence[dict[str, Any]]) -> None:
        for obj in objs if self.source.noted is not _nothing else ():
            self.source.noted(self.store, obj)


def _mark(stage: str, objs: Sequence[dict[str, Any]]) -> None:
    for obj in objs:
        meta = obj["metadata"]
        trace.mark(stage, f"{meta.get('namespace', '')}/{meta['name']}", str(meta["resourceVersion"]))


class _Halt(threading.Event):
    """Set when the process stops or a relist is asked for."""

    def __init__(self, *events: threading.Event) -> None:
        super().__init__()
        self._events = events

    def is_set(self) -> bool:
        return any(event.is_set() for event in self._events)

    def wait(self, timeout: float | None = None) -> bool:
        self._events[0].wait(timeout)
        return self.is_set()
