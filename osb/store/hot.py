"""The load of a pool's fast pass in one trip to Redis (spec/hot-path.md 3).

In: a pool's key and the token of its run. Out: `HotLoad`, all that serving the waiting line is decided
on: the Pool, the first waiters with their objects, as many ready idle pods as those ask for with their
facts, the ledger's head and counts, and how far the mirror may be trusted. Its cost does not grow with
the pool. Next: `osb.reconcile.serve`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from osb.api.key import POOL, Key
from osb.errors import Fenced, InvalidInput
from osb.facts.pod import PodFact
from osb.facts.pod import decode as decode_pod
from osb.store import keys
from osb.store.ledger import ledger_counts, ledger_meta
from osb.store.ledger_types import LedgerMeta
from osb.store.mirror import MirrorEntry, entry_of
from osb.store.queue import Begin, begun
from osb.store.scripts import redis_errors

if TYPE_CHECKING:
    from osb.store.client import Store

WAITERS = 200  # sandboxes of one pass: its ledger script blocks Redis for 5 ms at 1,000
PODS = 1000  # pods of one load


class Waiter(NamedTuple):
    """A sandbox of the line, in its order; `obj` is the whole object without managedFields."""

    member: str
    version: str
    obj: dict[str, Any]


class Stocked(NamedTuple):
    """A free and ready pod with its rank (the order of the stock)."""

    pod: str
    rank: float
    fact: PodFact


@dataclass(frozen=True, slots=True)
class HotLoad:
    """One consistent look.

    `known`, `age_ms`: the worst of the three mirror kinds. When the mirror is not known or too old, the pass
      must read live.
    `line`, `stock`: the whole lengths.
    `waiters`, `pods`: the beginnings of line and stock.
    """

    known: bool
    age_ms: int
    pool: MirrorEntry | None
    line: int
    waiters: tuple[Waiter, ...]
    stock: int
    pods: tuple[Stocked, ...]
    ledger: LedgerMeta
    counts: dict[str, int]
    todo: int

    def fresh(self, limit_ms: int) -> bool:
        return self.known and 0 <= self.age_ms <= limit_ms


def begin_and_load(
    store: Store,
    key: Key,
    token: str,
    *,
    hand: bool = False,
    task_id: str = "",
    waiters: int = WAITERS,
    pods: int = PODS,
) -> tuple[Begin, HotLoad | None]:
    """`WorkQueue.begin` of a pool and its load; no load unless the state is `run`. Repeat with the same token."""
    if key.kind != POOL:
        raise InvalidInput("key", f"{key} is not a pool's key: only pools have a fast pass")
    args = (str(uuid.uuid4()), key.member, token, int(hand), task_id, waiters, pods)
    answer, loaded = store.scripts.call("hot_begin_v1", (), args)
    return begun(answer), _load(key, loaded) if loaded else None


def load(store: Store, key: Key, token: str, *, waiters: int = WAITERS, pods: int = PODS) -> HotLoad:
    """The load alone, for a pass that goes on. Raises Fenced when the token is not the pool's current one.

    Without a token it is only a look (`osbctl explain`): nothing may be written on its ground.
    """
    ours, loaded = store.scripts.call("hot_load_v1", (), (key.member, token, waiters, pods))
    if token and ours != 1:
        raise Fenced(f"the token of {key} is not the current one any more")
    return _load(key, loaded)


def line(store: Store, key: Key, *, limit: int = WAITERS) -> list[str]:
    """Members of the first waiters of a pool, in order: one cheap look whether somebody new is there."""
    with redis_errors(f"read the line of {key}"):
        found = store.redis.zrange(keys.index("batchsandbox", "wait", key.member), 0, limit - 1)
    return [name.decode() for name in found]


def more_pods(store: Store, key: Key, *, start: int, count: int) -> tuple[Stocked, ...]:
    """The stock from position `start` on, for a pass whose waiters ask for more than the load brought."""
    stocked = store.ledger(key.namespace, key.name).available(count, start=start)
    if not stocked:
        return ()
    with redis_errors(f"read pods of {key}"):
        names = [f"{key.namespace}/{pod}" for pod, _ in stocked]
        raw: Sequence[bytes | None] = store.redis.hmget(keys.mirror("poolpod", "doc"), names)
    return _stocked([(pod.encode(), rank) for pod, rank in stocked], raw)


def _load(key: Key, reply: Sequence[Any]) -> HotLoad:
    trust, pool, line, names, values, stock, ranked, docs, boot, meta, count, todo = reply
    return HotLoad(
        known=trust[0] == 1,
        age_ms=trust[1],
        pool=entry_of(pool),
        line=line,
        waiters=tuple(_waiters(names, values)),
        stock=stock,
        pods=_stocked(list(zip(ranked[::2], ranked[1::2], strict=True)), docs),
        ledger=ledger_meta(meta, boot),
        counts=ledger_counts(count),
        todo=todo,
    )


def _waiters(names: Sequence[bytes], values: Sequence[bytes | None]) -> list[Waiter]:
    found = []
    for name, value in zip(names, values, strict=True):
        entry = entry_of(value)
        if entry is not None:
            found.append(Waiter(name.decode(), entry.version, orjson.loads(entry.doc)))
    return found


def _stocked(ranked: Sequence[tuple[bytes, Any]], docs: Sequence[bytes | None]) -> tuple[Stocked, ...]:
    found = []
    for (pod, rank), value in zip(ranked, docs, strict=True):
        entry = entry_of(value)
        if entry is not None:
            found.append(Stocked(pod.decode(), float(rank), decode_pod(entry.doc)))
    return tuple(found)
