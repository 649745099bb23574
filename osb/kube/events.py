"""Kubernetes Events: told in the background, merged, limited, and never in the way.

`emit` only puts the event on a bounded queue. A thread merges what is equal (object, type, reason, message):
the first is created, repeats raise the count of the stored one, at most every 30 seconds. Each object has its
own token bucket, so that one broken pool cannot flood the namespace. A full queue, an empty bucket or a
refusal drops the event and counts it; nothing is ever raised. Nobody may depend on an Event: status and
conditions carry the truth.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from osb.errors import ApiError, NotFound, OsbError
from osb.kube.client import Kube
from osb.kube.resources import RES
from osb.obs import metrics, redact
from osb.obs.log import get_logger

MESSAGE_LIMIT = 1000  # bytes, the rest is counted
QUEUE_LIMIT = 2000
REMEMBERED = 4096  # events and buckets kept for merging
REPEAT_SECONDS = 30.0
BURST = 25.0  # events an object may have at once
REFILL_SECONDS = 10.0  # until it may have one more

SOURCES = {
    "Pool": "pool-controller",
    "BatchSandbox": "batchsandbox-controller",
    "SandboxSnapshot": "sandboxsnapshot-controller",
}
_API_VERSION = {row.kind: row.api_version for row in RES.values()}

EventType = Literal["Normal", "Warning"]

log = get_logger("events")


@dataclass(frozen=True, slots=True)
class _Said:
    """One event as it was emitted."""

    ref: Mapping[str, str]
    type: str
    reason: str
    message: str
    component: str
    at: datetime

    @property
    def identity(self) -> tuple[str, ...]:
        ref = self.ref
        return (ref["kind"], ref["namespace"], ref["name"], ref["uid"], self.type, self.reason, self.message)


@dataclass(slots=True)
class _Stored:
    """What the API server has of it, and what it does not know yet."""

    name: str
    last: _Said
    count: int = 1
    pending: int = 0
    written: float = 0.0


@dataclass(slots=True)
class _Bucket:
    tokens: float = BURST
    at: float = field(default=0.0)


class EventRecorder:
    """`component` is the source of events on kinds that are not ours; ours have the reference's sources."""

    def __init__(
        self,
        kube: Kube,
        component: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        limit: int = QUEUE_LIMIT,
    ) -> None:
        self._kube = kube
        self._component = component
        self._clock = clock
        self._queue: queue.Queue[_Said | threading.Event] = queue.Queue(limit)
        self._stored: OrderedDict[tuple[str, ...], _Stored] = OrderedDict()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._start = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def emit(self, obj: Mapping[str, Any], type: EventType, reason: str, message: str, *, component: str = "") -> None:
        """Tell people about `obj`: an object of the API server, or a reference (kind, namespace, name, uid).

        Returns at once; never raises. The message is cut to 1,000 bytes.
        """
        ref = _reference(obj)
        source = component or SOURCES.get(ref["kind"], self._component)
        said = _Said(ref, type, reason, capped(redact.text(message)), source, datetime.now(UTC))
        self._run()
        try:
            self._queue.put_nowait(said)
        except queue.Full:
            metrics.inc("opensandbox_events_total", result="dropped")

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all emitted before is written (held-back counts too) or dropped. False when late."""
        done = threading.Event()
        self._run()
        try:
            self._queue.put(done, timeout=timeout)
        except queue.Full:
            return False
        return done.wait(timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Flush and end the thread."""
        if self._thread is not None:
            self.flush(timeout)
            self._ending.set()
            with contextlib.suppress(queue.Full):
                self._queue.put_nowait(threading.Event())  # wakes the thread
            self._thread.join(timeout)

    def _run(self) -> None:
        """Start the thread on first use, so that it is made after a fork."""
        if self._thread is not None and self._thread.is_alive():
            return
        with self._start:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._loop, name="osb-events", daemon=True)
                self._thread.start()

    def _loop(self) -> None:
        while not self._ending.is_set():
            try:
                item = self._queue.get(timeout=0.5)
            except queue.Empty:
                self._write_counts(force=False)
                continue
            if isinstance(item, threading.Event):
                self._write_counts(force=True)
                item.set()
            else:
                self._tell(item)

    def _tell(self, said: _Said) -> None:
        known = self._stored.get(said.identity)
        if known is not None:
            known.last = said
            known.pending += 1
            metrics.inc("opensandbox_events_total", result="merged")
            if self._clock() - known.written >= REPEAT_SECONDS:
                self._write_count(known)
            return
        if not self._allowed(said):
            metrics.inc("opensandbox_events_total", result="dropped")
            return
        self._create(said)

    def _allowed(self, said: _Said) -> bool:
        """Take a token of the object's bucket."""
        key = said.ref["uid"] or f"{said.ref['kind']}/{said.ref['namespace']}/{said.ref['name']}"
        now = self._clock()
        bucket = self._buckets.setdefault(key, _Bucket(at=now))
        self._buckets.move_to_end(key)
        while len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        bucket.tokens = min(BURST, bucket.tokens + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _create(self, said: _Said) -> None:
        body = _body(said)
        if not self._written(lambda: self._kube.create("event", body["metadata"]["namespace"], body), said):
            return
        self._stored[said.identity] = _Stored(name=body["metadata"]["name"], last=said, written=self._clock())
        while len(self._stored) > REMEMBERED:
            self._stored.popitem(last=False)

    def _write_counts(self, *, force: bool) -> None:
        now = self._clock()
        for stored in list(self._stored.values()):
            if stored.pending and (force or now - stored.written >= REPEAT_SECONDS):
                self._write_count(stored)

    def _write_count(self, stored: _Stored) -> None:
        """Add the repeats to the stored event; when it is gone (they expire), create it anew."""
        count = stored.count + stored.pending
        namespace = _event_namespace(stored.last)
        body = {"count": count, "lastTimestamp": _time(stored.last.at)}
        stored.written, stored.pending = self._clock(), 0
        try:
            self._kube.patch("event", namespace, stored.name, body, content="merge")
            stored.count = count
        except NotFound:
            self._stored.pop(stored.last.identity, None)
            self._create(stored.last)
        except OsbError as error:
            log.debug("an event's count was not written", error=str(error))

    def _written(self, write: Callable[[], object], said: _Said) -> bool:
        try:
            write()
        except OsbError as error:
            # a terminating namespace, a missing permission, an outage: nothing that an Event could change
            definite = isinstance(error, ApiError) and error.definite
            log.debug("an event was dropped", reason=said.reason, error=str(error), definite=definite)
            metrics.inc("opensandbox_events_total", result="dropped")
            return False
        metrics.inc("opensandbox_events_total", result="written")
        return True


def capped(message: str) -> str:
    """At most 1,000 bytes; a cut list of names ends at a comma and says how many are missing."""
    raw = message.encode()
    if len(raw) <= MESSAGE_LIMIT:
        return message
    room = raw[: MESSAGE_LIMIT - 40].decode("utf-8", "ignore")
    head, comma, _ = room.rpartition(", ")
    if comma and len(head) > len(room) // 2:
        return f"{head}... and {message[len(head) :].count(', ')} more"
    return f"{room}... and {len(message) - len(room)} more characters"


def _reference(obj: Mapping[str, Any]) -> dict[str, str]:
    meta = obj.get("metadata") or obj
    kind = str(obj.get("kind") or "")
    return {
        "kind": kind,
        "apiVersion": str(obj.get("apiVersion") or _API_VERSION.get(kind, "v1")),
        "namespace": str(meta.get("namespace") or ""),
        "name": str(meta.get("name") or ""),
        "uid": str(meta.get("uid") or ""),
    }


def _event_namespace(said: _Said) -> str:
    return said.ref["namespace"] or "default"


def _body(said: _Said) -> dict[str, Any]:
    stamp = _time(said.at)
    seed = f"{said.identity}{said.at.timestamp()}".encode()
    suffix = hashlib.sha256(seed).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{said.ref['name'][:230]}.{suffix}", "namespace": _event_namespace(said)},
        "involvedObject": {key: value for key, value in said.ref.items() if value},
        "type": said.type,
        "reason": said.reason,
        "message": said.message,
        "source": {"component": said.component},
        "reportingComponent": said.component,
        "reportingInstance": "",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
