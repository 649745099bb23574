"""Between any two steps of a pass: the worker dies, Redis is emptied, another worker overtakes it, the server fails.

Each scenario is played once for every step that its pass has. Afterwards all that was promised is there, nothing was
given twice, and the system is at rest. By default a choice of them; `STEPS=every` plays all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from osb.api import names
from osb.api.key import BATCHSANDBOX, POOL
from osb.kube.client import Kube
from osb.sim import SimCluster
from osb.store.client import Store
from tests.doubles.passworld import Passes
from tests.doubles.stepping import At, Stepping, kill

LIMIT = 60  # steps; no scenario has as many
EVERY = os.environ.get("STEPS") == "every"  # all faults in all scenarios at all steps: some minutes
REPEATS = 9 if EVERY else 1  # of a step that is taken many times in one pass, the first is enough
Verify = Callable[[Stepping], None]


@dataclass(frozen=True)
class Scenario:
    """`before` leads to where the pass of `key` has work; `after` says what must have come of it."""

    name: str
    before: Callable[[Stepping], None]
    after: Verify
    keys: tuple[tuple[str, str], ...] = ((POOL, "warm"),)
    deep: bool = True
    rounds: int = 1
    pool: dict[str, Any] = field(default_factory=dict)


def _warm(run: Stepping, count: int, **spec: Any) -> list[str]:
    pods = run.passes.warm(count=count, **spec)
    run.settle(still=1)
    return pods


def _held(run: Stepping, replicas: int = 1, **spec: Any) -> list[str]:
    _warm(run, replicas, **spec)
    run.passes.box(replicas=replicas)
    run.settle(still=1)
    run.served("b")
    return run.passes.record()


# -- where a pass finds work -----------------------------------------------------------------------------------------


def _one_waits(run: Stepping) -> None:
    _warm(run, 2)
    run.passes.box(replicas=2)
    run.passes.box("c", replicas=1)


def _one_gets_more(run: Stepping) -> None:
    _warm(run, 1)
    run.passes.box(replicas=2)
    run.once(POOL, "warm", deep=False)
    run.passes.ready()


def _nothing_yet(run: Stepping) -> None:
    run.passes.pool("warm", 2, 2, 0, 5)


def _too_many(run: Stepping) -> None:
    _warm(run, 3)
    run.passes.patch("pool", "warm", {"spec": {"capacitySpec": {"bufferMin": 1, "bufferMax": 1, "poolMax": 2}}})


def _going(run: Stepping) -> None:
    _held(run, 2)
    run.passes.delete("batchsandbox", "b")


def _going_noop(run: Stepping) -> None:
    run.reuse = True
    _held(run, 2, podRecycleStrategy={"type": "Noop"})
    run.passes.delete("batchsandbox", "b")
    run.passes.box("c")


def _given_back(run: Stepping) -> None:
    pods = _held(run, 2)
    run.passes.annotate("batchsandbox", "b", alloc_release={"pods": [pods[1]]})


def _shrunk(run: Stepping) -> None:
    _held(run, 2)
    run.passes.patch("batchsandbox", "b", {"spec": {"replicas": 1}})


def _pod_lost(run: Stepping) -> None:
    pods = _held(run, 2)
    run.lost.add(pods[0])
    run.passes.delete("pod", pods[0])


def _stripped(run: Stepping) -> None:
    """Its finalizer is taken off by force while it is deleted."""
    _held(run, 1)
    version = run.passes.get("batchsandbox", "b")["metadata"]["resourceVersion"]
    run.passes.patch("batchsandbox", "b", {"metadata": {"finalizers": None, "resourceVersion": version}})
    run.passes.delete("batchsandbox", "b")
    run.passes.box("c")


def _emptied(run: Stepping) -> None:
    _held(run, 2)
    run.passes.box("c")
    run.passes.store.redis.flushall()


def _pool_gone(run: Stepping) -> None:
    _held(run, 1)
    run.passes.box("c")
    run.settle(still=1)
    run.lost.update(run.passes.record() + run.passes.record("c"))
    run.passes.delete("batchsandbox", "b")
    run.passes.delete("pool", "warm")


def _own_pods(run: Stepping) -> None:
    run.passes.own(replicas=2)


def _own_fewer(run: Stepping) -> None:
    run.passes.own(replicas=3)
    run.settle(still=1)
    run.passes.patch("batchsandbox", "b", {"spec": {"replicas": 1}})


def _expired(run: Stepping) -> None:
    _held(run, 1)
    run.passes.patch("batchsandbox", "b", {"spec": {"expireTime": "2020-01-01T00:00:00Z"}})


# -- what must have come of it ---------------------------------------------------------------------------------------


def _both_served(run: Stepping) -> None:
    run.served("b", "c")
    run.ledger_agrees()


def _b_served(run: Stepping) -> None:
    run.served("b")
    run.ledger_agrees()


def _filled(run: Stepping) -> None:
    assert len(run.passes.pods("warm")) == 2
    run.ledger_agrees()


def _cut(run: Stepping) -> None:
    assert len(run.passes.pods("warm")) == 1
    run.ledger_agrees()


def _b_gone(run: Stepping) -> None:
    assert not run.passes.there("batchsandbox", "b")
    run.ledger_agrees()


def _c_has_taken_over(run: Stepping) -> None:
    _b_gone(run)
    run.served("c")


def _one_is_back(run: Stepping) -> None:
    record, released = run.passes.record(), run.passes.note(names.ALLOC_RELEASED)
    assert len(record) == 2 and released["pods"] == [record[1]]
    run.ledger_agrees()


def _has_one(run: Stepping) -> None:
    assert len(run.passes.record()) == 1
    run.served("b")
    run.ledger_agrees()


def _c_failed_b_gone(run: Stepping) -> None:
    assert not run.passes.there("batchsandbox", "b")
    assert run.passes.get("batchsandbox", "c")["status"]["phase"] == "Failed"
    assert not run.passes.entries()


def _own(count: int) -> Verify:
    def verify(run: Stepping) -> None:
        pods = run.passes.pods()
        assert len(pods) == count and run.passes.get("batchsandbox", "b")["status"]["ready"] == count

    return verify


POOL_PASS = ((POOL, "warm"),)
BOX_PASS = ((BATCHSANDBOX, "b"),)
SCENARIOS = [
    Scenario("two wait", _one_waits, _both_served, deep=False),
    Scenario("two wait and the pool is looked at", _one_waits, _both_served),
    Scenario("one gets its second pod", _one_gets_more, _b_served),
    Scenario("an empty pool is filled", _nothing_yet, _filled),
    Scenario("a pool shrinks", _too_many, _cut),
    Scenario("a sandbox is deleted", _going, _b_gone, rounds=3),
    Scenario("a sandbox is deleted and its pods are kept", _going_noop, _c_has_taken_over, rounds=3),
    Scenario("a pod is given back", _given_back, _one_is_back, rounds=3),
    Scenario("a sandbox shrinks", _shrunk, _has_one, rounds=3),
    Scenario("a pod is lost", _pod_lost, _b_served, rounds=2),
    Scenario("a finalizer was stripped", _stripped, _c_has_taken_over, rounds=3),
    Scenario("Redis was emptied", _emptied, _both_served, rounds=2),
    Scenario("a pool is deleted", _pool_gone, _c_failed_b_gone, rounds=2),
    Scenario("pods of its own", _own_pods, _own(2), keys=BOX_PASS, rounds=2),
    Scenario("fewer pods of its own", _own_fewer, _own(1), keys=BOX_PASS),
    Scenario("time is up", _expired, _b_gone, keys=BOX_PASS),
]


@pytest.fixture(scope="module")
def run_of(simulated: SimCluster, client: Kube, redis_server: Any) -> Any:
    from osb.store.client import connect

    stores: list[Store] = []

    def make() -> Stepping:
        store = connect(redis_server.url)
        store.redis.flushall()
        stores.append(store)
        return Stepping(Passes(store, client), simulated)

    yield make
    for store in stores:
        store.close()


def _play(make: Callable[[], Stepping], scenario: Scenario, what: Callable[[Stepping], Callable[[], None]]) -> int:
    """The scenario once for every step; returns how many there were."""
    for number in range(LIMIT):
        run = make()
        try:
            scenario.before(run)
            at = At(number, what(run))
            at.skip = lambda name, seen: seen.count(name) > REPEATS
            for _ in range(scenario.rounds):
                for kind, name in scenario.keys:
                    run.once(kind, name, at, deep=scenario.deep)
            run.sim.clear_faults()
            if not at.done:
                assert number > 0, "the pass had no step"
                return number
            try:
                run.settle()
                scenario.after(run)
            except AssertionError as error:
                raise AssertionError(f"step {number} {at.seen[number]!r} of {at.seen}: {error}") from error
        finally:
            run.sim.clear_faults()
            run.passes.close()
    raise AssertionError("more steps than expected")


def _kill(run: Stepping) -> Callable[[], None]:
    return kill


def _flush(run: Stepping) -> Callable[[], None]:
    return lambda: run.passes.store.redis.flushall()


def _overtake(run: Stepping) -> Callable[[], None]:
    """This worker is frozen here until another one has done everything."""

    def others_turn() -> None:
        twin = run.twin()
        try:
            twin.settle()
        finally:
            twin.passes.close()

    return others_turn


def _fault(**members: Any) -> Callable[[Stepping], Callable[[], None]]:
    def what(run: Stepping) -> Callable[[], None]:
        wanted = {"methods": ["PATCH", "POST", "DELETE"], "count": 1, **members}
        return lambda: run.sim.add_fault(**wanted)

    return what


FAULTS = {
    "dies": _kill,
    "finds Redis emptied": _flush,
    "is overtaken by another": _overtake,
    "gets no answer to a write": _fault(drop=True),
    "cannot send a write": _fault(close=True),
    "gets a conflict": _fault(status=409, reason="Conflict"),
    "gets a 503": _fault(status=503),
    "gets no answer to two writes": _fault(drop=True, count=2),
}


MOST_WRITES = ("two wait", "an empty pool is filled", "a sandbox is deleted", "a pod is lost")
CHOSEN = [
    pytest.param(fault, scenario, id=f"{fault}: {scenario.name}")
    for fault in FAULTS
    for scenario in SCENARIOS
    if EVERY
    or fault in ("dies", "is overtaken by another")
    or scenario.name in MOST_WRITES[: 4 if "Redis" in fault else 2]
]


@pytest.mark.parametrize(("fault", "scenario"), CHOSEN)
def test_a_worker_that(run_of: Callable[[], Stepping], scenario: Scenario, fault: str) -> None:
    # Given a pass with work to do; When at any one of its steps the worker meets the fault;
    # Then all ends as if it had not, as soon as passes run again
    assert _play(run_of, scenario, FAULTS[fault]) > 0
