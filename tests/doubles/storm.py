"""Users that come and go, processes that are killed under them, and a checker that never looks away.

`Storm.run` returns a `Report`; its `problems` must be empty. The checker reads two independent sources the whole time:
the watch streams (what the records say, in order) and Redis (what the ledger says now).
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import redis

from osb.api import names
from osb.errors import ApiError, NotFound
from tests.doubles.cluster import Space, condition, note, record
from tests.doubles.controller import Controller

ROLES = ("watcher", "worker", "beat")
KINDS = ("pool", "batchsandbox", "recycle")
POOLS = {"warm-a": "Delete", "warm-b": "Delete", "spare": "Noop"}
AGAIN_WITHIN = 20.0
SERVED_WITHIN = 90.0


@dataclass
class Report:
    """What happened. `waits`: seconds from create to served; `again`: from a kill to the next run of its keys."""

    cluster: str
    kills: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    flushes: int = 0
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    looks: int = 0
    problems: list[str] = field(default_factory=list)

    def line(self) -> str:
        killed = ", ".join(f"{role} {count}x" for role, count in sorted(self.kills.items()))
        return (
            f"faults on {self.cluster}: killed {killed}, emptied Redis {self.flushes}x in {self.seconds:.0f} s; "
            f"{len(self.waits)} sandboxes served, half within {_half(self.waits):.2f} s, all within "
            f"{max(self.waits, default=0):.1f} s; {len(self.again)} killed keys ran again, all within "
            f"{max(self.again, default=0):.1f} s; {self.looks} looks at the ledger; problems: {len(self.problems)}"
        )


def _half(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


@dataclass
class Storm:
    """`kills`: how often each kind of process dies; `pause`: mean seconds between two blows."""

    space: Space
    controller: Controller
    kills: int = 2
    flushes: int = 1
    pause: float = 2.0
    users: int = 6
    seed: int = 0
    roles: tuple[str, ...] = ROLES
    number: int = signal.SIGKILL
    more: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed or None)
        self.over = threading.Event()
        self.report = Report("a real control plane" if self.space.cluster.real else "the simulated cluster")
        self.store: redis.Redis = redis.Redis.from_url(self.controller.redis_server.url, decode_responses=True)
        self.checker = Checker(self.space, self.store, self.report)

    def run(self) -> Report:
        """Everything: pools, users, blows, quiet, and a last look at what is left."""
        for pool, policy in POOLS.items():
            self.space.pool(pool, 3, 6, 0, 24, podRecycleStrategy={"type": policy})
        for pool in POOLS:
            self.space.until_pool(pool, lambda p: condition(p, "Ready"), seconds=60)
        start = time.monotonic()
        threads = [threading.Thread(target=self._user, args=(n,), daemon=True) for n in range(self.users)]
        threads.append(threading.Thread(target=self.checker.watch, args=(self.over,), daemon=True))
        for thread in threads:
            thread.start()
        self._blows()
        self.over.set()
        for thread in threads:
            thread.join(SERVED_WITHIN + 30)
        self.report.seconds = time.monotonic() - start
        self._quiet()
        self.store.close()
        return self.report

    # -- users -------------------------------------------------------------------------------------------------------

    def _user(self, number: int) -> None:
        dice, turn = random.Random(self.dice.random()), 0
        while not self.over.is_set():
            turn += 1
            name = f"u{number}-{turn}"
            try:
                self._visit(name, dice)
            except (AssertionError, ApiError) as error:
                self.report.problems.append(f"{name}: {str(error)[:600]}")

    def _visit(self, name: str, dice: random.Random) -> None:
        """Come, wait for the pods, perhaps change one's mind, stay a while, go."""
        replicas, began = dice.randint(1, 3), time.monotonic()
        self.space.box(name, replicas, pool=dice.choice(list(POOLS)))
        self._served(name)
        self.report.waits.append(time.monotonic() - began)
        mind = dice.random()
        if mind < 0.15:
            self.space.patch("batchsandbox", name, {"spec": {"replicas": replicas + 1}})
            self._served(name)
        elif mind < 0.3 and replicas > 1:
            self.space.patch("batchsandbox", name, {"spec": {"replicas": replicas - 1}})
        elif mind < 0.4:
            self._lose_a_pod(name)
        self.over.wait(dice.uniform(0.0, 1.5))
        self.space.delete("batchsandbox", name)
        self.space.gone("batchsandbox", name, seconds=SERVED_WITHIN)

    def _lose_a_pod(self, name: str) -> None:
        box = self.space.get("batchsandbox", name)
        pods = record(box) if box else []
        if not pods:
            return
        try:
            self.space.delete("pod", pods[0])
        except NotFound:
            return
        self.space.until_box(name, lambda b: pods[0] not in record(b), seconds=SERVED_WITHIN)
        self._served(name)

    def _served(self, name: str) -> None:
        self.space.served(name, seconds=SERVED_WITHIN)

    # -- blows -------------------------------------------------------------------------------------------------------

    def _blows(self) -> None:
        plan: list[Callable[[], None]] = [self._blow(role) for role in self.roles for _ in range(self.kills)]
        plan += [self._flush] * self.flushes + self.more
        self.dice.shuffle(plan)
        for blow in plan:
            self.over.wait(self.dice.uniform(0.3, 1.7) * self.pause)
            blow()
        self.over.wait(2 * self.pause)

    def _blow(self, role: str) -> Callable[[], None]:
        def kill() -> None:
            name = self.dice.choice([name for name in self.controller.processes if name.startswith(role)])
            code = self.controller.kill(name, self.number)
            if self.number == signal.SIGTERM and code != 0:
                self.report.problems.append(f"{name} was asked to end and ended with {code}")
            if role == "worker":
                self.checker.expect_again()
            self.controller.spawn(name)
            self.report.kills[role] += 1

        return kill

    def _flush(self) -> None:
        self.checker.forget()
        self.store.flushall()
        self.report.flushes += 1

    # -- afterwards --------------------------------------------------------------------------------------------------

    def _quiet(self) -> None:
        """Everybody has gone: pools are full again, nothing is held, nothing is unfinished, no finalizer hangs."""
        try:
            self.space.gone("batchsandbox", seconds=60)
            self.space.until("all is free again", self._all_free, seconds=90)
        except AssertionError as error:
            self.report.problems.append(f"afterwards: {str(error)[:1500]}")
        self.checker.end()
        self.controller.alive()

    def _all_free(self) -> bool:
        for pool in POOLS:
            entries = self.checker.entries(pool)
            pods = {p["metadata"]["name"] for p in self.space.pods_of(pool)}
            if set(entries) != pods or {state for state, _, _ in entries.values()} != {"free"}:
                return False
        return True


class Checker:
    """What must hold at every moment. Problems go into the report as they are found."""

    def __init__(self, space: Space, store: redis.Redis, report: Report) -> None:
        self.space, self.store, self.report = space, store, report
        self._read = 0
        self._claims: dict[str, set[str]] = {}
        self._used: dict[str, str] = {}
        self._held: dict[str, str] = {}
        self._pending: dict[tuple[str, str], tuple[str, float]] = {}
        self._lock = threading.Lock()

    def watch(self, over: threading.Event) -> None:
        while not over.is_set():
            self.look()
            over.wait(0.01)

    def look(self) -> None:
        self._records()
        try:
            self._ledgers()
            self._keys()
        except redis.RedisError as error:
            self.report.problems.append(f"Redis: {error}")
        self.report.looks += 1

    def end(self) -> None:
        """Look until every key of a killed worker has run again or is too late."""
        self.look()
        pause = threading.Event()
        while self._pending:
            pause.wait(0.05)
            self.look()

    # -- records, from the watch stream ------------------------------------------------------------------------------

    def _records(self) -> None:
        events = self.space.cluster.recorder.events.get(self.space.name, [])
        new, self._read = events[self._read :], len(events)
        for seen in new:
            if seen.kind == "batchsandbox":
                self._record(seen.type, seen.obj)

    def _record(self, what: str, box: dict[str, Any]) -> None:
        uid, name = box["metadata"]["uid"], box["metadata"]["name"]
        released = set((note(box, names.ALLOC_RELEASED) or {}).get("pods", []))
        mine = set() if what == "DELETED" else set(record(box)) - released
        for other, pods in self._claims.items():
            if other != uid and (both := pods & mine):
                self.report.problems.append(f"two owners of {sorted(both)}: {name} and {other}")
        self._claims[uid] = mine
        if POOLS[str(box["spec"]["poolRef"])] != "Delete":
            return
        for pod in mine:
            if self._used.setdefault(pod, uid) != uid:
                self.report.problems.append(f"{pod} came to {name} after somebody else had used it")

    # -- the ledger, from Redis --------------------------------------------------------------------------------------

    def entries(self, pool: str) -> dict[str, tuple[str, str, str]]:
        """Pod -> (state, pod UID, sandbox UID)."""
        raw: dict[str, str] = self.store.hgetall(f"osb:l:{self.space.name}/{pool}:pods")
        parts = {pod: text.split("|") for pod, text in raw.items()}
        return {pod: (part[0], part[1], part[2]) for pod, part in parts.items()}

    def _ledgers(self) -> None:
        for pool, policy in POOLS.items():
            for pod, (state, _, box) in self.entries(pool).items():
                if state not in ("held", "rel") or not box or policy != "Delete":
                    continue
                if self._held.setdefault(pod, box) != box:
                    self.report.problems.append(f"the ledger gave {pod} to a second sandbox")

    # -- keys whose worker was killed --------------------------------------------------------------------------------

    def expect_again(self) -> None:
        """A worker was just killed: whatever runs now and goes on under the same token was its."""
        now = time.monotonic()
        with self._lock:
            for kind in KINDS:
                for member, token in self.store.hgetall(f"osb:q:{kind}:tok").items():
                    self._pending.setdefault((kind, member), (token, now))

    def forget(self) -> None:
        with self._lock:
            self._pending.clear()

    def _keys(self) -> None:
        with self._lock:
            pending = list(self._pending.items())
        for (kind, member), (token, at) in pending:
            waited = time.monotonic() - at
            if self._rests(kind, member, token):
                self.report.again.append(waited)
            elif waited <= AGAIN_WITHIN:
                continue
            else:
                self.report.problems.append(f"{kind}/{member} did not run again within {AGAIN_WITHIN:g} s of a kill")
            with self._lock:
                self._pending.pop((kind, member), None)

    def _rests(self, kind: str, member: str, token: str) -> bool:
        """It runs under another token, or has nothing to do."""
        now = self.store.hget(f"osb:q:{kind}:tok", member)
        if now is not None:
            return bool(now != token)
        return self.store.zscore(f"osb:q:{kind}:dirty", member) is None
