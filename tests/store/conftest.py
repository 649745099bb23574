"""A store on the session's Redis, a clock that stands still until told, the broker's side of the lists."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from osb.api.key import Key
from osb.store.client import Store, connect
from osb.store.ledger import Ledger
from osb.store.ledger_types import Proof
from tests.doubles.ledger_run import take

CLOCK_KEY = "osb:clock"


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    """Redis' own clock, unless the test also asks for `clock`."""
    made = connect(redis_url, name="test", clock_key=CLOCK_KEY)
    yield made
    made.close()


class Clock:
    """What scripts take for Redis' clock, in ms."""

    def __init__(self, store: Store, ms: int = 1_800_000_000_000) -> None:
        self._redis = store.redis
        self.ms = ms
        self.set(ms)

    def set(self, ms: int) -> None:
        self.ms = ms
        self._redis.set(CLOCK_KEY, ms)

    def forward(self, seconds: float) -> None:
        self.set(self.ms + round(seconds * 1000))


@pytest.fixture
def clock(store: Store) -> Clock:
    return Clock(store)


@pytest.fixture
def proof(store: Store) -> Proof:
    """The token of a run over the pool `warm`."""
    return take(store)


@pytest.fixture
def ledger(store: Store) -> Ledger:
    return store.ledger("ns", "warm")


@dataclass(frozen=True)
class Wake:
    """One message on a Celery list."""

    queue: str
    key: Key
    reason: str
    raw: dict[str, Any]


class Broker:
    """Looks at Celery's lists as a consumer would."""

    def __init__(self, store: Store) -> None:
        self._redis = store.redis

    def queues(self) -> list[str]:
        return sorted(name.decode() for name in self._redis.keys("osb.*"))

    def pop(self, queue: str) -> Wake | None:
        raw = self._redis.rpop(queue)
        return None if raw is None else self._wake(queue, raw)

    def drain(self) -> list[Wake]:
        """Take everything from all lists, oldest first within each."""
        found = []
        for queue in self.queues():
            while wake := self.pop(queue):
                found.append(wake)
        return found

    def size(self) -> int:
        return sum(self._redis.llen(queue) for queue in self.queues())

    @staticmethod
    def _wake(queue: str, raw: bytes) -> Wake:
        message = json.loads(raw)
        body = message["body"]
        if message["properties"]["body_encoding"] == "base64":
            body = base64.b64decode(body)
        (namespace, name, reason), _, _ = json.loads(body)
        kind = message["headers"]["task"].rpartition(".")[2]
        return Wake(queue, Key(kind, namespace, name), reason, message)


@pytest.fixture
def broker(store: Store) -> Broker:
    return Broker(store)


@pytest.fixture
def left(store: Store) -> Callable[[], set[str]]:
    """Names of what is left in Redis, apart from messages and the test's clock."""

    def names() -> set[str]:
        found = {name.decode() for name in store.redis.keys("*")}
        return {name for name in found if not name.startswith(("osb.", CLOCK_KEY))}

    return names
