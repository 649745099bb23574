"""Watch streams: changes from the log and from then on, filtered, with bookmarks, 410 and a time limit.

A watcher is a queue of ready frames that `Bucket.note` fills; its task only joins and sends them, so a burst
of changes costs one write per watcher.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import orjson
from aiohttp import web

from osb.sim import refusals
from osb.sim.kinds import Resource
from osb.sim.selectors import Predicate
from osb.sim.storage import Bucket, Change, Obj, Record, frame

_TOO_SLOW = 200_000  # frames waiting in one watcher: the reader does not read, hang up like the real server


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """`encode` makes a frame of a change (None: the shared encoding); `version` None replays what exists."""

    res: Resource
    namespace: str | None
    predicate: Predicate | None
    version: int | None
    bookmarks: bool
    timeout: float
    encode: Callable[[str, Obj], bytes] | None = None


class Watcher:
    """One open watch."""

    def __init__(self, bucket: Bucket, options: WatchOptions) -> None:
        self.options = options
        self._bucket = bucket
        self._frames: list[bytes] = []
        self._wake = asyncio.Event()
        self._seen = options.version or 0
        self._over = False

    # -- the queue -------------------------------------------------------------------------------------------

    def offer(self, change: Change) -> None:
        """Called for every change of the bucket, in order."""
        options = self.options
        self._seen = max(self._seen, change.version)
        if options.namespace is not None and change.record.obj["metadata"].get("namespace") != options.namespace:
            return
        kind: str | None = change.type
        if options.predicate is not None:
            kind = _filtered(change, options.predicate)
        if kind is None:
            return
        if kind == change.type and options.encode is None:
            self._frames.append(change.frame)
        else:
            self._frames.append(self._encoded(kind, _shown(kind, change)))
        self._wake.set()

    def start(self, revision: int) -> None:
        """Fill the queue with what came before, then follow. Queues the 410 event when history is gone."""
        options = self.options
        if options.version is None or options.version == 0:
            self._replay(self._bucket.records(options.namespace))
            self._seen = revision
        else:
            past = self._bucket.since(options.version) if options.version <= revision else None
            if past is None:
                self.expire(revision)
                return
            for change in past:
                self.offer(change)
        self._bucket.queues.add(self.offer)

    def expire(self, revision: int) -> None:
        """End the stream with the 410 that asks for a new list."""
        gone = refusals.expired(f"too old resource version: {self._seen} ({revision})")
        self._frames.append(frame("ERROR", orjson.dumps(gone.body())))
        self._over = True
        self._wake.set()

    def stop(self) -> None:
        self._over = True
        self._wake.set()

    def close(self) -> None:
        self._bucket.queues.discard(self.offer)

    def _replay(self, records: Iterable[Record]) -> None:
        for record in records:
            if self.options.predicate is None or self.options.predicate(record.obj):
                self._frames.append(self._encoded("ADDED", record))

    def _encoded(self, kind: str, record: Record) -> bytes:
        encode = self.options.encode
        return encode(kind, record.obj) if encode is not None else frame(kind, record.raw)

    # -- the stream ------------------------------------------------------------------------------------------

    async def run(
        self, response: web.StreamResponse, *, gate: Callable[[], asyncio.Event | None], every: float
    ) -> None:
        """Send until the time is up, the client goes or the watch is ended.

        `gate` gives an event to wait for while frozen.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self.options.timeout
        mark = loop.time() + every
        while True:
            frozen = gate()
            if frozen is not None:
                await _wait(frozen, end - loop.time())
            elif self._frames:
                if len(self._frames) > _TOO_SLOW:
                    return
                frames, self._frames = self._frames, []
                await response.write(b"".join(frames))
                continue
            elif self._over or loop.time() >= end:
                break
            elif self.options.bookmarks and loop.time() >= mark:
                mark = loop.time() + every
                await response.write(self.bookmark())
            else:
                self._wake.clear()
                await _wait(self._wake, min(end, mark if self.options.bookmarks else end) - loop.time())
            if loop.time() >= end and not self._frames:
                break

    def bookmark(self) -> bytes:
        """Only kind, apiVersion and resourceVersion, as the real one."""
        res = self.options.res
        body = {
            "kind": res.kind, "apiVersion": res.api_version,
            "metadata": {"resourceVersion": str(self._seen), "creationTimestamp": None},
        }  # fmt: skip
        return frame("BOOKMARK", orjson.dumps(body))


def _filtered(change: Change, predicate: Predicate) -> str | None:
    """An object that begins or ceases to match is ADDED or DELETED for this watcher."""
    now = change.type != "DELETED" and predicate(change.record.obj)
    before = change.old is not None and predicate(change.old.obj)
    if now:
        return "MODIFIED" if before else "ADDED"
    return "DELETED" if before else None


def _shown(kind: str, change: Change) -> Record:
    """What the event carries. An object that ceases to match is shown as it last matched, under the new version."""
    if kind != "DELETED" or change.type == "DELETED" or change.old is None:
        return change.record
    meta = {**change.old.obj["metadata"], "resourceVersion": str(change.version)}
    return Record({**change.old.obj, "metadata": meta}, change.version)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), max(0.0, seconds))
