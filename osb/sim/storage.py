"""The memory of the simulated API server: objects, one revision counter, a bounded log of changes, watch queues.

Objects are immutable once stored: a write replaces the whole dict. Each is encoded once, and that encoding
serves GET, LIST and every watcher. Writers are `osb.sim.writes` (which knows the rules of Kubernetes);
listeners are the controllers inside the server (`osb.sim.collect`, `osb.sim.jobs`, `osb.sim.crd`); watchers
are `osb.sim.watching`. Everything runs on one event loop, so nothing here locks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson

from osb.sim.kinds import Resource

Obj = dict[str, Any]
BucketKey = tuple[str, str]


class Ref(NamedTuple):
    """Where an object is: bucket, namespace ("" for cluster scope), name."""

    bucket: BucketKey
    namespace: str
    name: str


class Record:
    """One stored object with its encoding."""

    __slots__ = ("obj", "raw", "version")

    def __init__(self, obj: Obj, version: int) -> None:
        self.obj = obj
        self.version = version
        self.raw = orjson.dumps(obj)


class Change:
    """One entry of the log.

    `record` is the object after the change (for DELETED: its last state, new version).
    """

    __slots__ = ("_frame", "old", "record", "type", "version")

    def __init__(self, kind: str, old: Record | None, record: Record) -> None:
        self.type = kind
        self.old = old
        self.record = record
        self.version = record.version
        self._frame: bytes | None = None

    @property
    def frame(self) -> bytes:
        """The watch event as every plain watcher sends it; encoded once."""
        if self._frame is None:
            self._frame = frame(self.type, self.record.raw)
        return self._frame


def frame(kind: str, raw: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + raw + b"}\n"


class Bucket:
    """All objects of one resource, by namespace and name, with the log of its latest changes."""

    def __init__(self, window: int) -> None:
        self.items: dict[str, dict[str, Record]] = {}
        self.log: deque[Change] = deque()
        self.floor = 0  # the newest version that is no longer in the log
        self.queues: set[Callable[[Change], None]] = set()
        self._window = window

    def get(self, namespace: str, name: str) -> Record | None:
        found = self.items.get(namespace)
        return found.get(name) if found else None

    def records(self, namespace: str | None) -> Iterator[Record]:
        """In key order, as the real server lists."""
        spaces = sorted(self.items) if namespace is None else [namespace]
        for space in spaces:
            held = self.items.get(space, {})
            for name in sorted(held):
                yield held[name]

    def note(self, change: Change) -> None:
        self.log.append(change)
        if len(self.log) > self._window:
            self.floor = self.log.popleft().version
        for queue in tuple(self.queues):
            queue(change)

    def since(self, version: int) -> list[Change] | None:
        """Changes after `version`, or None when the log no longer reaches back that far."""
        if version < self.floor:
            return None
        newer: list[Change] = []
        for change in reversed(self.log):
            if change.version <= version:
                break
            newer.append(change)
        newer.reverse()
        return newer

    def compact(self, revision: int) -> None:
        self.log.clear()
        self.floor = revision


class Storage:
    """Every bucket, the revision, and two indexes: objects by UID, dependents by owner UID."""

    def __init__(self, *, window: int = 20_000) -> None:
        self.revision = 1
        self.buckets: dict[BucketKey, Bucket] = {}
        self.by_uid: dict[str, Ref] = {}
        self.dependents: dict[str, set[Ref]] = {}
        self.listeners: list[Callable[[Resource, Change], None]] = []
        self._window = window

    def bucket(self, key: BucketKey) -> Bucket:
        found = self.buckets.get(key)
        if found is None:
            found = self.buckets[key] = Bucket(self._window)
        return found

    def get(self, ref: Ref) -> Record | None:
        return self.bucket(ref.bucket).get(ref.namespace, ref.name)

    def put(self, res: Resource, obj: Obj) -> Record:
        """Store `obj` under a new revision, log the change, tell watchers and listeners."""
        meta = obj["metadata"]
        ref = Ref(res.bucket, meta.get("namespace", ""), meta["name"])
        old = self.get(ref)
        record = self._stamp(obj)
        self.bucket(ref.bucket).items.setdefault(ref.namespace, {})[ref.name] = record
        self.by_uid[meta["uid"]] = ref
        self._index_owners(ref, old.obj if old else None, obj)
        self._publish(res, Change("MODIFIED" if old else "ADDED", old, record))
        return record

    def remove(self, res: Resource, obj: Obj) -> Record:
        """Take the object away; the DELETED event carries `obj` as its last state under a new revision."""
        meta = obj["metadata"]
        ref = Ref(res.bucket, meta.get("namespace", ""), meta["name"])
        held = self.bucket(ref.bucket).items[ref.namespace]
        old = held.pop(ref.name)
        if not held:
            del self.bucket(ref.bucket).items[ref.namespace]
        self.by_uid.pop(meta["uid"], None)
        self._index_owners(ref, old.obj, None)
        record = self._stamp(obj)
        self._publish(res, Change("DELETED", old, record))
        return record

    def compact(self) -> None:
        """Forget the history: every watch from an earlier revision gets 410."""
        for bucket in self.buckets.values():
            bucket.compact(self.revision)

    def _stamp(self, obj: Obj) -> Record:
        self.revision += 1
        stamped = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.revision)}}
        return Record(stamped, self.revision)

    def _index_owners(self, ref: Ref, old: Obj | None, new: Obj | None) -> None:
        before, after = _owner_uids(old), _owner_uids(new)
        for uid in before - after:
            members = self.dependents.get(uid)
            if members is not None:
                members.discard(ref)
                if not members:
                    del self.dependents[uid]
        for uid in after - before:
            self.dependents.setdefault(uid, set()).add(ref)

    def _publish(self, res: Resource, change: Change) -> None:
        self.bucket(res.bucket).note(change)
        for listener in self.listeners:
            listener(res, change)


def _owner_uids(obj: Obj | None) -> set[str]:
    if obj is None:
        return set()
    return {owner.get("uid", "") for owner in obj["metadata"].get("ownerReferences") or ()}
