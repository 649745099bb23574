"""Who waits is told so: one write per news, nobody forgotten whatever interrupts the telling."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from osb.api import batchsandbox, names
from osb.api import pool as pools
from osb.api.key import BATCHSANDBOX, POOL, Key
from osb.decide.allocate import Dealt
from osb.errors import Conflict, Fenced, LedgerNotReady, OsbError, StoreDown, Unavailable
from osb.facts.boxview import Waiting
from osb.obs.deadline import Deadline
from osb.reconcile import waiters
from osb.reconcile.gather import Box
from osb.reconcile.handle import handle
from osb.reconcile.poolload import Load
from osb.reconcile.serve import Served
from osb.reconcile.world import Pass
from osb.sim import SimCluster
from osb.store import keys
from tests.doubles.passworld import Passes
from tests.doubles.waiting import wait_until

FULL = Waiting(code="PoolFull", missing=1, position=3, line=7, cannot_grow=True)


class Dead(BaseException):
    """The worker is gone: no line after this one runs."""


def tell(passes: Passes, *boxes: dict[str, Any], waiting: Waiting = FULL, timed_out: tuple[str, ...] = ()) -> Any:
    """`waiters.tell` alone, in a pass of the pool."""
    passes.sync()
    one = Pass(world=passes.world, key=Key(POOL, passes.ns, "warm"), token=uuid.uuid4().hex, deep=True,
               deadline=Deadline())  # fmt: skip
    line = [Box(raw, batchsandbox.parse(raw)) for raw in boxes]
    load = Load(None, pools.parse(passes.get("pool", "warm")), True, waiters=line)
    dealt = Dealt(waiting={box.spec.uid: waiting for box in line if box.spec.uid not in timed_out}, timed_out=timed_out)
    return waiters.tell(one, load, Served(dealt=dealt))


@pytest.fixture
def waiting(passes: Passes) -> dict[str, Any]:
    """A sandbox in the line of a pool."""
    passes.pool()
    return passes.box()


def test_a_waiter_is_told_why_and_an_unchanged_line_is_not_written_again(
    passes: Passes, waiting: dict[str, Any]
) -> None:
    assert tell(passes, waiting) is None
    told = passes.get("batchsandbox", "b")
    assert told["status"]["phase"] == names.PENDING
    assert passes.condition("batchsandbox", "b", names.POOL_ALLOCATION_PENDING) is not None
    # The same again, and a position that moved within the ten seconds
    tell(passes, told)
    tell(passes, told, waiting=replace(FULL, position=2))
    assert passes.get("batchsandbox", "b")["metadata"]["resourceVersion"] == told["metadata"]["resourceVersion"]
    # Another reason is news
    tell(passes, told, waiting=replace(FULL, cannot_grow=False))
    assert passes.condition("batchsandbox", "b", names.POOL_ALLOCATION_PENDING) is None


def test_a_write_that_was_refused_is_made_again_soon(
    passes: Passes, waiting: dict[str, Any], simulated: SimCluster
) -> None:
    path = f"/namespaces/{passes.ns}/batchsandboxes/b/status"
    simulated.add_fault(path=path, methods=["PATCH"], status=500, count=1)
    assert tell(passes, waiting) == waiters.LATER
    simulated.add_fault(path=path, methods=["PATCH"], status=409, reason="Conflict", count=2)
    assert tell(passes, waiting) == waiters.SOON
    assert not passes.get("batchsandbox", "b").get("status")


def test_a_waiter_that_moved_on_since_the_mirror_saw_it_is_told_in_the_same_pass(
    passes: Passes, waiting: dict[str, Any]
) -> None:
    passes.annotate("batchsandbox", "b", moved=1)
    assert tell(passes, waiting) is None
    assert passes.get("batchsandbox", "b")["status"]["phase"] == names.PENDING


def test_a_sandbox_that_is_gone_is_not_told_again_and_a_late_one_is_handed_on(
    passes: Passes, waiting: dict[str, Any]
) -> None:
    late = passes.box("late")
    passes.delete("batchsandbox", "b")
    assert tell(passes, waiting, late, timed_out=(late["metadata"]["uid"],)) is None
    assert passes.store.queue.peek(Key(BATCHSANDBOX, passes.ns, "late")).reason == "allocation timeout"
    assert not passes.get("batchsandbox", "late").get("status")


def test_those_whom_no_pass_looks_at_say_at_least_that_they_wait(passes: Passes) -> None:
    # Given a line that is longer than what one pass serves
    passes.world.settings = msgspec.structs.replace(passes.settings, serve_batch=1)
    passes.pool(meta={"annotations": {names.HOLD: "true"}})
    for name in "abc":
        passes.box(name)
    passes.pool_pass(turn=3)
    asked = [name for name in "abc" if passes.store.queue.peek(Key(BATCHSANDBOX, passes.ns, name)).dirty_ms is not None]
    told = [name for name in "abc" if passes.get("batchsandbox", name).get("status")]
    assert len(told) == 1 and {*asked, *told} == {*"abc"}
    for name in asked:
        passes.box_pass(name)
    assert {passes.get("batchsandbox", name)["status"]["phase"] for name in "abc"} == {names.PENDING}


INTERRUPTIONS = [
    Dead(), Fenced("the lease could not be renewed"), Conflict("moved on"), LedgerNotReady("lost"), OsbError("other"),
    StoreDown("away"), Unavailable("no answer"), RuntimeError("a bug"),
]  # fmt: skip


@pytest.fixture
def interrupted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException]]:
    """The first telling of anybody ends like this."""
    left: list[BaseException] = [request.param]
    real = waiters.tell

    def once(p: Pass, now: Load, served: Served) -> float | None:
        if left and served.dealt.waiting:
            raise left.pop()
        return real(p, now, served)

    monkeypatch.setattr(waiters, "tell", once)
    yield left


@pytest.mark.parametrize("interrupted", INTERRUPTIONS, indirect=True, ids=lambda e: type(e).__name__)
def test_a_sandbox_is_told_that_it_waits_although_its_pool_was_recreated_and_the_telling_interrupted(
    passes: Passes, interrupted: list[BaseException]
) -> None:
    key = Key(POOL, passes.ns, "warm")
    # Given a sandbox that was made while its pool was deleted and made again
    passes.pool()
    passes.sync()
    handle(passes.world, key)
    passes.delete("pool", "warm")
    passes.box()
    passes.sync()
    passes.pool(meta={"annotations": {names.HOLD: "true"}})
    passes.sync()

    def go_on() -> bool:
        """What workers and beat do; nobody adds a key."""
        passes.store.queue.rescue(POOL)
        passes.store.queue.due(POOL)
        try:
            handle(passes.world, key)
        except Dead:
            passes.store.redis.zadd(keys.queue(POOL, "run"), {key.member: 1})  # its lease runs out
        return not interrupted and bool(passes.get("batchsandbox", "b").get("status"))

    # When the pass that tells is interrupted, then it is told all the same
    wait_until(go_on, 4)
    assert passes.get("batchsandbox", "b")["status"]["phase"] == names.PENDING
