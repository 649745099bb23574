"""The mirror: every watched object in Redis, moved forward by resourceVersion and never back
(spec/protocols.md 2).

In: objects from `osb.store.forward` (watch events, list pages, answers of our own writes) together with the
keys that each move concerns; one script moves the mirror and marks those keys dirty. Out: readings, each
with the mark that says whether an absence means anything: after Redis was lost or restarted the mirror is
*unknown*, not empty, until a list has finished. Next: `osb.reconcile.gather` reads from here, or live when
the reading is not `known` or too old.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
import redis

from osb.facts.adds import Add
from osb.store import keys
from osb.store.queue import wire
from osb.store.scripts import Scripts, redis_errors

KINDS = ("pool", "batchsandbox", "snapshot", "poolpod", "boxpod", "job")
NODE = "node"  # the cordoned ones; beside KINDS, since an installation without rights to nodes works too
CONFIGMAP = "configmap"  # the one of assign profiles; beside KINDS, too
STALE_MS = 140_000  # twice the watch timeout: nothing is decided on what is older
ITEMS_PER_CALL = 200  # about 10 ms of Redis' time at most

Index = tuple[str, str, float]
T = TypeVar("T")


class MirrorEntry(NamedTuple):
    """One mirrored object. `doc` is an encoded PodFact for pods, JSON of the whole object for other kinds."""

    version: str
    uid: str
    doc: bytes


@dataclass(frozen=True, slots=True)
class Reading:
    """Objects in the order asked for. `known`: the mirror is synced, so None means absent. `age_ms`: since
    the last sign of life of the kind's stream, -1 when there was none."""

    entries: dict[str, MirrorEntry | None]
    known: bool
    age_ms: int

    def fresh(self, limit_ms: int) -> bool:
        """May it be decided on without a live read?"""
        return self.known and 0 <= self.age_ms <= limit_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """One object to move forward. `expected` is the version of the entry that `adds` were computed from (""
    = none); `pool` is `ns/pool` of a pool's pod, `rank` its place in the stock (None: not to be handed
    out)."""

    name: str
    version: str
    uid: str
    doc: bytes
    indexes: tuple[Index, ...] = ()
    expected: str = ""
    pool: str = ""
    rank: float | None = None
    adds: tuple[Add, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """One object to take out, with the version of its DELETED event (of the list, in a prune)."""

    name: str
    version: str
    expected: str = ""
    adds: tuple[Add, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """`retry`: the entry is not the expected one but `current`; compute the keys from that and put again."""

    state: Literal["applied", "old", "retry"]
    current: MirrorEntry | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """Answers in order. `unsynced`: the mirror is unknown, so list again at once."""

    unsynced: bool
    answers: list[Answer]


class Opening(NamedTuple):
    """A list has begun: its epoch, the floor at that moment, and whether the mirror was synced."""

    epoch: str
    floor: str
    known: bool


_APPLIED, _OLD = Answer("applied"), Answer("old")


class Mirror:
    """All kinds of one Redis. Thread-safe; holds nothing itself."""

    def __init__(self, client: redis.Redis, scripts: Scripts) -> None:
        self._redis = client
        self._scripts = scripts

    # -- readings --------------------------------------------------------------------------------------

    def read(self, kind: str, names: Sequence[str]) -> Reading:
        """The objects of these `ns/name`s; None where the mirror has none."""
        reply = self._scripts.call("mirror_read_v1", (_doc(kind), _meta(kind)), tuple(names))
        entries = {name: entry_of(raw) for name, raw in zip(names, reply[2:], strict=True)}
        return Reading(entries, reply[0] == 1, reply[1])

    def load(self, kind: str, index: str, value: str, *, limit: int | None = None) -> Reading:
        """The objects of one index entry in index order, at most `limit`."""
        stop = -1 if limit is None else limit - 1
        if limit is not None and limit <= 0:
            return Reading({}, self.synced(kind), self.age_ms(kind))
        reply = self._scripts.call(
            "mirror_load_v1", (_doc(kind), keys.index(kind, index, value), _meta(kind)), (0, stop)
        )
        known, age, names, values = reply
        entries = {name.decode(): entry_of(raw) for name, raw in zip(names, values, strict=True)}
        return Reading(entries, known == 1, age)

    def index(self, kind: str, index: str, value: str, *, start: int = 0, stop: int = -1) -> list[str]:
        """Names of one index entry, by score."""
        with redis_errors(f"read index {index} of {kind}"):
            names = self._redis.zrange(keys.index(kind, index, value), start, stop)
        return [name.decode() for name in names]

    def count(self, kind: str, index: str, value: str) -> int:
        """How many names an index entry has."""
        with redis_errors(f"read index {index} of {kind}"):
            return int(self._redis.zcard(keys.index(kind, index, value)))

    def names(self, kind: str) -> list[str]:
        with redis_errors(f"read the names of {kind}"):
            return [name.decode() for name in self._redis.hkeys(_doc(kind))]

    def size(self, kind: str) -> int:
        with redis_errors(f"count {kind}"):
            return int(self._redis.hlen(_doc(kind)))

    def synced(self, kind: str) -> bool:
        """Has a list finished since Redis was last lost or restarted?"""
        return self.read(kind, ()).known

    def age_ms(self, kind: str) -> int:
        """Since the last event, bookmark or list of the kind; -1 when there was none."""
        return self.read(kind, ()).age_ms

    def tasked(self) -> set[str]:
        """Members of the sandboxes that have a task template, in all namespaces."""
        spaces = {name.partition("/")[0] for name in self.names("batchsandbox")}
        with redis_errors("read the sandboxes with tasks"):
            pipe = self._redis.pipeline(transaction=False)
            for space in spaces:
                pipe.zrange(keys.index("batchsandbox", "tasks", space), 0, -1)
            return {name.decode() for found in pipe.execute() for name in found}

    # -- moves -----------------------------------------------------------------------------------------

    def put(self, kind: str, items: Sequence[Put], *, fresh: bool = True) -> Moved:
        """Move objects forward. `fresh` False: an answer of our own write, which proves nothing about the
        stream."""
        unsynced, answers = False, list[Answer]()
        for part in parts(items):
            args: list[Any] = [*_prefixes(kind), int(fresh), str(uuid.uuid4())]
            for item in part:
                args += _put_args(item)
            reply = self._scripts.call("mirror_put_v1", _keys(kind), args)
            unsynced |= reply[0] == 1
            answers += map(_answer, reply[1:])
        return Moved(unsynced, answers)

    def delete(self, kind: str, items: Sequence[Delete], *, fresh: bool = True) -> Moved:
        """Take objects out, unless a later incarnation is there already."""
        unsynced, answers = False, list[Answer]()
        for part in parts(items):
            heads = [_pack((d.name, d.version, d.expected, _wire(d.adds))) for d in part]
            args: list[Any] = [*_prefixes(kind), int(fresh), str(uuid.uuid4()), *heads]
            reply = self._scripts.call("mirror_delete_v1", _keys(kind), args)
            unsynced |= reply[0] == 1
            answers += map(_answer, reply[1:])
        return Moved(unsynced, answers)

    def touch(self, kind: str) -> bool:
        """The kind's stream gave a sign of life (a bookmark). False: the mirror was lost, so list again."""
        return bool(self._scripts.call("mirror_touch_v1", (_meta(kind),), ()) == 1)

    # -- lists -----------------------------------------------------------------------------------------

    def open(self, kind: str) -> str:
        """Begin a list; its epoch. See `begin_list`."""
        return self.begin_list(kind).epoch

    def begin_list(self, kind: str) -> Opening:
        """Call it before the first page is asked for. After a loss the kind gets a new epoch and is
        unsynced."""
        epoch, floor, known = self._scripts.call("mirror_open_v1", (_meta(kind),), (uuid.uuid4().hex,))
        return Opening(epoch.decode(), floor.decode(), known == 1)

    def prune(self, kind: str, version: str, epoch: str, items: Sequence[Delete]) -> Moved:
        """Take out names that the list of `version` did not have, unless their entry is newer than the list.
        `unsynced` means refused: the mirror was lost since the list began."""
        answers = list[Answer]()
        for part in parts(items):
            heads = [_pack((d.name, d.expected, _wire(d.adds))) for d in part]
            args: list[Any] = [*_prefixes(kind), version, epoch, str(uuid.uuid4()), *heads]
            refused, *rest = self._scripts.call("mirror_prune_v1", _keys(kind), args)
            if refused == 1:
                return Moved(True, answers)
            answers += map(_answer, rest)
        return Moved(False, answers)

    def finish(self, kind: str, version: str, epoch: str, *, floor: str = "0") -> Literal["done", "refused", "older"]:
        """End a list after all its puts and prunes. `refused`: lost since it began, list again. `older`:
        the list is below the `floor` at its beginning, so the cluster's own store was restored: `reset`,
        then list again."""
        args = (version, epoch, floor)
        reply = self._scripts.call("mirror_finish_v1", (_meta(kind), keys.mirror(kind, "tomb")), args)
        answer: Literal["done", "refused", "older"] = reply.decode()
        return answer

    def reset(self, kind: str) -> int:
        """Forget a kind and distrust every ledger, because the cluster's store went back. How many were
        forgotten."""
        args = (*_prefixes(kind), uuid.uuid4().hex)
        return int(self._scripts.call("mirror_reset_v1", (*_keys(kind), keys.LEDGERS), args))


def pack(item: Put) -> bytes:
    """The value of the doc hash; lua/mirror_lib_v1.lua has its shape."""
    head = _pack((item.version, item.uid, item.indexes, item.pool))
    return len(head).to_bytes(4, "big") + head + item.doc


def entry_of(raw: bytes | None) -> MirrorEntry | None:
    """The entry of a value of the doc hash; None for none."""
    if not raw:
        return None
    end = 4 + int.from_bytes(raw[:4], "big")
    version, uid, *_ = msgspec.msgpack.decode(raw[4:end])
    return MirrorEntry(version, uid, raw[end:])


def _put_args(item: Put) -> tuple[bytes, bytes]:
    rank = "" if item.rank is None else repr(float(item.rank))
    head = (item.name, item.version, item.uid, item.expected, rank, item.pool, _wire(item.adds))
    return _pack(head), pack(item)


def _answer(raw: Any) -> Answer:
    if raw == 1:
        return _APPLIED
    if raw == 0:
        return _OLD
    return Answer("retry", entry_of(raw))


def _wire(adds: Iterable[Add]) -> list[list[str | int]]:
    return [wire(add) for add in adds]


def _pack(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def _doc(kind: str) -> str:
    return keys.mirror(kind, "doc")


def _meta(kind: str) -> str:
    return keys.mirror(kind, "meta")


def _keys(kind: str) -> tuple[str, str, str, str]:
    return _doc(kind), keys.mirror(kind, "tomb"), _meta(kind), keys.mirror(kind, "rank")


def _prefixes(kind: str) -> tuple[str, str]:
    return keys.index_prefix(kind), keys.LEDGER


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Slices that one script call takes."""
    for at in range(0, len(items), ITEMS_PER_CALL):
        yield items[at : at + ITEMS_PER_CALL]
