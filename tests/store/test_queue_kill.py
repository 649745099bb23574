"""Worker processes that are killed and frozen at random: nothing is lost, and no two live runs overlap.

The clock of the scripts runs ten times as fast, so that a lease of 12 s ends after 1.2 s.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osb.api.key import Key
from osb.facts.adds import Add
from osb.store.client import Store, connect
from osb.store.queue import new_token

KEYS = [Key("pool", "default", f"p{n}") for n in range(8)]
SPEED = 10
SECONDS = 4.0

fork = multiprocessing.get_context("fork")


def work(url: str, broker_of: Callable[[Store], Any]) -> None:
    """A worker: takes wake-ups, notes what it saw and when, for ever."""
    store = connect(url, clock_key="osb:clock")
    broker, log = broker_of(store), store.redis
    while True:
        wake = broker.pop("osb.pool.now") or broker.pop("osb.pool.later")
        if wake is None:
            log.blpop("test:more", 0.005)
            continue
        name, token = wake.key.name, new_token()
        if store.queue.begin(wake.key, token).state != "run":
            continue
        log.rpush("test:log", f"start {name} {token} {int(log.get(f'test:asked:{name}') or 0)}")
        log.rpush("test:log", f"ending {name} {token} 0")
        if store.queue.end(wake.key, token, "done", progress=True).ours:
            log.rpush("test:log", f"ended {name} {token} 0")


class Crew:
    """Four workers, one of which is always in trouble."""

    def __init__(self, start: Callable[[], Any], dice: random.Random) -> None:
        self._start, self._dice = start, dice
        self._workers = [start() for _ in range(4)]
        self._frozen: list[tuple[float, Any]] = []
        self.kills = self.freezes = 0

    def trouble(self) -> None:
        worker = self._dice.choice(self._workers)
        if self._dice.random() < 0.6:
            worker.kill()
            worker.join()
            self._workers[self._workers.index(worker)] = self._start()
            self.kills += 1
        elif worker not in [frozen for _, frozen in self._frozen]:
            os.kill(worker.pid, signal.SIGSTOP)
            self._frozen.append((time.monotonic() + self._dice.choice([0.2, 1.6]), worker))
            self.freezes += 1

    def thaw(self, *, all_of_them: bool = False) -> None:
        for until, worker in list(self._frozen):
            if all_of_them or time.monotonic() > until:
                self._frozen.remove((until, worker))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGCONT)

    def end(self) -> None:
        self.thaw(all_of_them=True)
        for worker in self._workers:
            worker.kill()
            worker.join()


@contextlib.contextmanager
def fast_clock(clock: Any, url: str) -> Iterator[threading.Event]:
    """Redis' clock as the scripts see it, ten times as fast, from a thread with its own connection."""
    stop, started, base = threading.Event(), time.monotonic(), clock.ms
    store = connect(url)
    own = type(clock)(store, base)

    def run() -> None:
        while not stop.wait(0.005):
            own.set(base + int((time.monotonic() - started) * 1000 * SPEED))

    thread = threading.Thread(target=run)
    thread.start()
    yield stop
    stop.set()
    thread.join()
    store.close()


@pytest.mark.faults
def test_killed_and_frozen_workers_lose_nothing_and_never_overlap(
    redis_url: str, store: Store, clock: Any, broker: Any, left: Callable[[], set[str]]
) -> None:
    dice = random.Random(7)

    def start() -> Any:
        worker = fork.Process(target=work, args=(redis_url, type(broker)), daemon=True)
        worker.start()
        return worker

    crew, turn = Crew(start, dice), threading.Event()
    asked: dict[str, int] = defaultdict(int)

    def time_goes_on() -> None:
        turn.wait(0.002)
        store.queue.due("pool")
        store.queue.rescue("pool")
        crew.thaw()

    with fast_clock(clock, redis_url):
        # Given events, and trouble at random
        until, next_trouble = time.monotonic() + SECONDS, 0.0
        while time.monotonic() < until:
            for key in dice.sample(KEYS, 3):
                asked[key.name] = int(store.redis.incr(f"test:asked:{key.name}"))
                store.queue.add([Add(key=key, cls=dice.choice(["now", "later"]))])
            if time.monotonic() > next_trouble:
                next_trouble = time.monotonic() + 0.1
                crew.trouble()
            time_goes_on()
        # When the trouble is over
        crew.thaw(all_of_them=True)
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline and not (served(store) == asked and queue_is_empty(left)):
            time_goes_on()
        crew.end()
    # Then every event was seen, nothing is left, and no run that was still current met another one
    assert served(store) == asked
    assert queue_is_empty(left)
    assert overlaps(store) == []
    assert crew.kills > 10
    assert crew.freezes > 3


def entries(store: Store) -> list[tuple[str, str, str, int]]:
    lines = [line.decode().split() for line in store.redis.lrange("test:log", 0, -1)]
    return [(what, name, token, int(number)) for what, name, token, number in lines]


def served(store: Store) -> dict[str, int]:
    """The newest event that a run saw which ended in order."""
    began: dict[str, int] = {}
    seen: dict[str, int] = defaultdict(int)
    for what, name, token, number in entries(store):
        if what == "start":
            began[token] = number
        if what == "ended":
            seen[name] = max(seen[name], began[token])
    return seen


def queue_is_empty(left: Callable[[], set[str]]) -> bool:
    return not [name for name in left() if name.startswith("osb:q:")]


def overlaps(store: Store) -> list[str]:
    """Keys where another run started within one that ended in order."""
    found, log = [], entries(store)
    ended = {token for what, _, token, _ in log if what == "ended"}
    running: dict[str, str] = {}
    for what, name, token, _ in log:
        if what == "start":
            if running.get(name) in ended:
                found.append(name)
            running[name] = token
        if what == "ending" and running.get(name) == token:
            del running[name]
    return found
