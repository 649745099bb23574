"""Nobody waits longer than one API write for pods that are there, whatever else their pool is doing."""

from __future__ import annotations

from collections.abc import Callable

from osb.api import names
from osb.api.key import POOL, Key
from osb.facts.adds import Add
from osb.kube.budget import Budget
from osb.kube.client import Kube
from osb.obs.deadline import Deadline
from osb.reconcile.handle import RECIPES, handle
from osb.reconcile.world import Pass
from osb.store.client import Store
from tests.doubles.passworld import Passes


def once(at: str, do: Callable[[], None], steps: list[str]) -> Callable[[str], None]:
    """A step hook that notes every step and does something at the first one of that name."""

    def step(name: str) -> None:
        first = name == at and name not in steps
        steps.append(name)
        if first:
            do()

    return step


def arrive(passes: Passes, name: str) -> Callable[[], None]:
    def do() -> None:
        passes.box(name)
        passes.sync()

    return do


def three_leave(passes: Passes) -> None:
    """Of four pods three are given back: a pass has found them, the next one recycles and acknowledges."""
    passes.warm(count=4, recycleStrategy={"type": "Noop"})
    for name in "abc":
        passes.box(name)
    passes.pool_pass()
    for name in "abc":
        passes.delete("batchsandbox", name)
    passes.pool_pass()


def test_a_newcomer_gets_its_pods_before_the_first_ones_status_is_written(passes: Passes) -> None:
    passes.warm(count=2)
    passes.box("first")
    steps: list[str] = []
    passes.pool_pass(deep=False, step=once("settled", arrive(passes, "second"), steps))
    assert len(passes.record("first")) == len(passes.record("second")) == 1
    assert steps.index("status") > max(n for n, step in enumerate(steps) if step == "claimed")
    assert passes.get("batchsandbox", "first")["status"]["ready"] == 1
    assert passes.get("batchsandbox", "second")["status"]["ready"] == 1


def test_a_newcomer_is_served_while_a_full_pass_takes_pods_back(passes: Passes) -> None:
    three_leave(passes)
    steps: list[str] = []
    passes.sync()
    passes.run(POOL, "warm", step=once("acknowledge", arrive(passes, "late"), steps))
    assert "acknowledged" in steps
    assert len(passes.record("late")) == 1


def test_what_is_served_beside_a_full_pass_is_counted_by_another_one(passes: Passes) -> None:
    three_leave(passes)
    passes.sync()
    outcome = passes.run(POOL, "warm", step=once("acknowledge", arrive(passes, "late"), []))
    assert getattr(outcome, "seconds", 99) <= 0.25
    passes.pool_pass(times=2)
    assert passes.get("pool", "warm")["status"]["allocated"] == 1


def test_a_line_longer_than_one_pass_goes_on_at_once(store: Store, client: Kube) -> None:
    passes = Passes(store, client, serve_batch=1)
    try:
        passes.warm(count=2)
        passes.box("first")
        passes.box("second")
        passes.sync()
        key = Key(POOL, passes.ns, "warm")
        passes.store.queue.forget(key)
        passes.store.queue.add([Add(key=key, reason="test")])
        token = "t"
        assert store.queue.begin(key, token).state == "run"
        one = Pass(world=passes.world, key=key, token=token, deep=False, deadline=Deadline(), reason="test")
        RECIPES[POOL](one)
        assert sorted(len(passes.record(name)) for name in ("first", "second")) == [0, 1]
        assert store.queue.peek(key).dirty_ms is not None
    finally:
        passes.close()


def test_a_killed_pass_leaves_no_delivered_sandbox_without_its_status(passes: Passes) -> None:
    # Given a pass that was killed between the claim and the status
    passes.warm()
    passes.box("b")

    class Killed(BaseException):
        pass

    def kill(name: str) -> None:
        if name == "status":
            raise Killed

    passes.sync()
    try:
        passes.run(POOL, "warm", deep=False, step=kill)
    except Killed:
        pass
    assert len(passes.record()) == 1
    assert "ready" not in (passes.get("batchsandbox", "b").get("status") or {})

    # When the full pass comes that follows a crash
    passes.pool_pass(times=2)

    # Then the sandbox's own pass was asked for
    assert passes.store.queue.peek(Key("batchsandbox", passes.ns, "b")).dirty_ms is not None
    passes.box_pass()
    assert passes.get("batchsandbox", "b")["status"]["ready"] == 1


def test_under_load_few_events_are_written(passes: Passes) -> None:
    passes.warm(count=4)
    passes.world.told = Budget(0.001, 2)
    for name in "abcd":
        passes.box(name)
    passes.pool_pass()
    assert passes.told.reasons().count(names.EVENT_SCHEDULED) == 2
    assert all(len(passes.record(name)) == 1 for name in "abcd")


def test_a_run_that_goes_on_sends_itself_no_message(passes: Passes) -> None:
    passes.warm()
    passes.box("b")
    passes.sync()
    key = Key(POOL, passes.ns, "warm")
    queue = "osb.pool.now"
    passes.store.queue.forget(key)
    passes.store.queue.add([Add(key=key, reason="test")])
    before = passes.store.redis.llen(queue)
    steps: list[str] = []
    passes.world.step = once("claim", lambda: passes.store.queue.add([Add(key=key, reason="news")]), steps)
    said = handle(passes.world, key, reason="test")
    assert "allocated 1" in said
    assert passes.store.redis.llen(queue) == before
    assert passes.store.queue.peek(key).dirty_ms is None


def test_a_pool_that_goes_while_it_serves_is_no_crash(passes: Passes) -> None:
    passes.warm()
    passes.box("b")
    passes.sync()

    def go() -> None:
        raw = passes.get("pool", "warm")
        passes.delete("pool", "warm")
        raw["metadata"]["resourceVersion"] = str(int(raw["metadata"]["resourceVersion"]) + 1000)
        passes.world.forward.delete("pool", raw)

    outcome = passes.run(POOL, "warm", step=once("status", go, []))
    assert "pool is gone" in outcome.summary


def test_who_can_never_be_served_is_told_in_the_same_full_pass(passes: Passes) -> None:
    # Given a pool of at most four, two of which a sandbox without an end has
    passes.pool("warm", 0, 1, 0, 4)
    passes.box("two", replicas=2)
    passes.pool_pass(times=2)
    passes.ready()
    passes.pool_pass(times=2)
    assert len(passes.record("two")) == 2
    # When one that wants three comes
    passes.box("three", replicas=3)
    passes.pool_pass()
    # Then it is told why it waits, and still is after the next pass
    for _ in range(2):
        told = passes.condition("batchsandbox", "three", names.PROGRESSING)
        assert told is not None and told["message"].startswith(
            "RequestExceedsPool: of poolMax 4 only 2 can ever be free for it while other sandboxes keep 2 "
        )
        assert told["message"].endswith("; missing 3 of 3; position about 1 of 1")
        passes.pool_pass()


def test_pods_that_get_ready_one_by_one_are_spread_evenly(passes: Passes) -> None:
    # Given a pool of at most six that deals in rounds, and three sandboxes of three
    passes.pool("warm", 2, 2, 0, 6, placement="Spread")
    passes.pool_pass()
    names_ = ("s1", "s2", "s3")
    for name in names_:
        passes.box(name, replicas=3)
    # When its pods become ready one by one
    for _ in range(6):
        passes.pool_pass()
        first = next(pod for pod in passes.pods("warm") if not (pod.get("status") or {}).get("podIP"))
        passes.ready(first["metadata"]["name"])
        passes.pool_pass()
    # Then each has as many
    assert [len(passes.record(name)) for name in names_] == [2, 2, 2]


def test_a_wait_that_timed_out_and_began_anew_is_long_again_for_who_makes_the_pods(passes: Passes) -> None:
    # Given a sandbox that waited for longer than it would, while the pool was on hold
    passes.pool("warm", 0, 9, 0, 9, meta={"annotations": {names.HOLD: "true"}})
    passes.box("b", allocationTimeoutSeconds=30)
    passes.pool_pass()
    passes.box_pass("b", turn=31)
    assert passes.condition("batchsandbox", "b", names.POD_FAILED) is not None
    # When its spec is edited and the pool goes on
    passes.patch("pool", "warm", {"metadata": {"annotations": {names.HOLD: None}}})
    passes.patch("batchsandbox", "b", {"spec": {"replicas": 2}})
    passes.box_pass("b")
    passes.pool_pass()
    # Then pods are made for it
    assert len(passes.pods("warm")) == 2


def test_a_pool_that_may_have_no_pods_is_exhausted(passes: Passes) -> None:
    passes.pool("warm", 0, 0, 0, 0)
    passes.box("b")
    passes.pool_pass()
    assert passes.condition("batchsandbox", "b", names.POOL_ALLOCATION_PENDING) is not None
    assert passes.condition("pool", "warm", names.CAPACITY_EXHAUSTED) is not None
