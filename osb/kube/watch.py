"""A watch: the raw chunked answer of the API server, read as it arrives, as batches of events.

Every event that one read of the socket completed comes in one batch, so that the watcher can pipeline its
puts. The stream ends by itself, quietly, after 50 to 70 seconds (resuming from a version is cheap, and it
bounds how long we can be blind), when the server closes it, or when `stop` is set (within a second). Silence
past that time, a broken line or a reset is Unavailable; an expired version, as a status or as an event, is
Gone: list again. Next stop of an event: `osb.watch.feed`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

import orjson
import urllib3
from urllib3.exceptions import HTTPError

from osb.errors import Unavailable
from osb.kube import errors
from osb.kube.read import described
from osb.kube.resources import resource
from osb.kube.transport import Call, Transport

SERVER_TIMEOUT = (50, 70)  # seconds, drawn at random so that watches do not all restart together
GRACE = 10.0  # seconds beyond the server's timeout before silence counts as a dead connection
READ_SIZE = 1 << 16
STOP_CHECK = 0.25  # seconds between looks at the stop event


class Stop(Protocol):
    """What a watch needs of a stop event; `threading.Event` is one."""

    def is_set(self) -> bool: ...


class WatchEvent(NamedTuple):
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK (its object has kind and resourceVersion only)."""

    type: str
    obj: dict[str, Any]

    @property
    def version(self) -> str:
        return str((self.obj.get("metadata") or {}).get("resourceVersion") or "")


class Watches:
    """The watching part of `Kube`."""

    transport: Transport

    def watch(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        version: str,
        labels: str = "",
        fields: str = "",
        stop: Stop | None = None,
    ) -> Iterator[list[WatchEvent]]:
        """Batches of events after `version`, never an empty one. The module says how it ends."""
        seconds = random.randint(*SERVER_TIMEOUT)
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        query |= {"timeoutSeconds": str(seconds)}
        query |= {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        call = Call(
            method="GET",
            path=f"{resource(kind).path(namespace)}?{urlencode(query)}",
            verb="watch",
            kind=kind,
            what=f"watch {kind} {described(namespace, '')} from version {version}",
            timeout=seconds + GRACE,
        )
        if stop is not None and stop.is_set():
            return
        response = self.transport.open(call)
        end = time.monotonic() + seconds + GRACE
        with _closing(response, stop) as stopped:
            lines = _Lines(call.what)
            for chunk in _chunks(response, call.what, stopped):
                if batch := lines.feed(chunk):
                    yield batch
                if time.monotonic() > end:
                    raise Unavailable(f"{call.what}: not ended {GRACE:g} s after its time; opening another")
                if stopped():
                    return
            if not stopped():
                lines.finish()


class _Lines:
    """Bytes in, events out. Keeps the half line at the end for the next chunk."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._rest = b""

    def feed(self, chunk: bytes) -> list[WatchEvent]:
        if b"\n" not in chunk:
            self._rest += chunk
            return []
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [self._event(line) for line in lines if line.strip()]

    def finish(self) -> None:
        """The stream ended: half a line means that the connection broke."""
        if self._rest.strip():
            raise Unavailable(f"{self._what}: the stream broke off in the middle of an event")

    def _event(self, line: bytes) -> WatchEvent:
        try:
            raw = orjson.loads(line)
            kind, obj = raw["type"], raw["object"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise Unavailable(f"{self._what}: an event cannot be read: {error!r}") from error
        if kind == "ERROR":
            raise errors.of_status(self._what, obj if isinstance(obj, dict) else {})
        return WatchEvent(kind, obj)


def _chunks(response: urllib3.BaseHTTPResponse, what: str, stopped: Any) -> Iterator[bytes]:
    """Decoded bytes of the body, as much as each read of the socket brings."""
    source = getattr(getattr(response, "_fp", None), "fp", None)
    try:
        if getattr(response, "chunked", False) and hasattr(source, "read1"):
            yield from _dechunked(source)
        else:
            yield from response.stream(READ_SIZE, decode_content=True)
    except (HTTPError, OSError, ValueError) as error:
        if not stopped():
            raise errors.of_failure(what, error) from error


def _dechunked(source: Any) -> Iterator[bytes]:
    """HTTP/1.1 chunks taken apart by hand, because the library hands them out one by one with a call each.

    Ends at the closing chunk and also when the connection just closes: both are ordinary ends of a watch.
    """
    held = b""
    while data := source.read1(READ_SIZE):
        held += data
        out, held, done = _take_chunks(held)
        if out:
            yield out
        if done:
            return


def _take_chunks(held: bytes) -> tuple[bytes, bytes, bool]:
    """(payload of all complete chunks, bytes left over, whether the closing chunk was seen)."""
    out: list[bytes] = []
    at = 0
    while (line_end := held.find(b"\r\n", at)) >= 0:
        size = int(held[at:line_end].split(b";", 1)[0], 16)
        if size == 0:
            return b"".join(out), b"", True
        start = line_end + 2
        if len(held) < start + size + 2:
            break
        out.append(held[start : start + size])
        at = start + size + 2
    return b"".join(out), held[at:], False


@contextmanager
def _closing(response: urllib3.BaseHTTPResponse, stop: Stop | None) -> Iterator[Any]:
    """Close the stream at the end, and from another thread as soon as `stop` is set. Yields `stopped()`."""
    ended = threading.Event()

    def stopped() -> bool:
        return stop is not None and stop.is_set()

    def look() -> None:
        while not ended.wait(STOP_CHECK):
            if stopped():
                _shut(response)
                return

    if stop is not None:
        threading.Thread(target=look, name="osb-watch-stop", daemon=True).start()
    try:
        yield stopped
    finally:
        ended.set()
        response.close()


def _shut(response: urllib3.BaseHTTPResponse) -> None:
    """End a read that is blocked in another thread: closing alone would not wake it."""
    shutdown = getattr(response, "shutdown", None)
    if shutdown is None:
        return
    try:
        shutdown()
    except (ValueError, OSError, RuntimeError):
        pass  # it ended by itself meanwhile
