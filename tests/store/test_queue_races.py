"""Many clients at once, on Redis' own clock: never two holders, nothing lost, nothing left."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from osb.api.key import Key
from osb.facts.adds import Add
from osb.store.client import Store
from osb.store.queue import new_token

KEYS = [Key("batchsandbox", "default", f"b{n}") for n in range(6)]


def test_one_of_many_workers_gets_the_key(store: Store) -> None:
    store.queue.add([Add(key=KEYS[0])])
    gate = threading.Barrier(16)

    def begin(n: int) -> str:
        gate.wait(5)
        return store.queue.begin(KEYS[0], f"t{n}").state

    with ThreadPoolExecutor(16) as pool:
        states = sorted(pool.map(begin, range(16)))
    assert states == ["busy"] * 15 + ["run"]


def test_adds_and_runs_race_without_overlap_loss_or_rest(
    store: Store, broker: Any, left: Callable[[], set[str]]
) -> None:
    """Each event is a number; a run notes the latest. All must be seen, by runs that never overlap."""
    asked: dict[Key, int] = defaultdict(int)
    seen: dict[Key, int] = defaultdict(int)
    holders: dict[Key, int] = defaultdict(int)
    overlaps: list[Key] = []
    lock, adding = threading.Lock(), threading.Event()
    adding.set()

    def producer(n: int) -> None:
        for i in range(150):
            key = KEYS[(i * 7 + n) % len(KEYS)]
            with lock:
                asked[key] += 1
            store.queue.add([Add(key=key, cls="later" if i % 3 else "now")])

    def run(key: Key) -> None:
        token = new_token()
        if store.queue.begin(key, token).state != "run":
            return
        with lock:
            holders[key] += 1
            if holders[key] > 1:
                overlaps.append(key)
            now = asked[key]
        with lock:
            holders[key] -= 1
            seen[key] = max(seen[key], now)
        store.queue.end(key, token, "done", progress=True)

    def worker() -> None:
        while adding.is_set() or broker.size():
            for queue in ("osb.batchsandbox.now", "osb.batchsandbox.later"):
                if wake := broker.pop(queue):
                    run(wake.key)

    with ThreadPoolExecutor(8) as pool:
        workers = [pool.submit(worker) for _ in range(4)]
        for done in [pool.submit(producer, n) for n in range(4)]:
            done.result(30)
        adding.clear()
        for done in workers:
            done.result(30)
    assert overlaps == []
    assert dict(seen) == dict(asked)
    assert left() == set()


def test_an_idle_due_and_rescue_cost_the_same_however_many_keys_wait(store: Store) -> None:
    empty = _commands(store)
    store.queue.add(Add(key=Key("pool", "default", f"p{n}"), after=3600.0) for n in range(2000))
    assert _commands(store) == empty < 20


def _commands(store: Store) -> int:
    """Redis commands of one look for what is due and what is lost, those inside of the scripts included."""
    store.redis.config_resetstat()
    store.queue.due("pool")
    store.queue.rescue("pool")
    return sum(
        stat["calls"] for name, stat in store.redis.info("commandstats").items() if name != "cmdstat_config|resetstat"
    )
