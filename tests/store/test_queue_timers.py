"""Outcomes, timers, partial passes and the allowance against hot loops (spec/protocols.md 3)."""

from __future__ import annotations

from typing import Any

from osb.api.key import Key
from osb.facts.adds import Add
from osb.store.client import Store

POOL = Key("pool", "default", "warm")
BOX = Key("batchsandbox", "default", "b7")


def start(store: Store, key: Key = POOL, token: str = "t1", **hand: Any) -> str:
    return store.queue.begin(key, token, **hand).state


# -- outcomes and timers --------------------------------------------------------------------------------


def test_a_key_keeps_one_timer_the_earliest(store: Store, clock: Any) -> None:
    for n in range(1000):
        store.queue.add([Add(key=POOL, after=5 + (n * 7919) % 1000)])
    assert [item.at_ms for item in store.queue.listing("pool", "due")] == [clock.ms + 5000]
    store.queue.add([Add(key=POOL, at_ms=clock.ms + 100)])
    assert [item.at_ms for item in store.queue.listing("pool", "due")] == [clock.ms + 100]


def test_a_due_timer_becomes_a_full_pass_and_not_before(store: Store, clock: Any, broker: Any) -> None:
    store.queue.add([Add(key=POOL, after=5)])
    assert (store.queue.due("pool"), broker.size()) == (0, 0)
    clock.forward(5)
    assert store.queue.due("pool") == 1
    assert [(w.queue, w.reason) for w in broker.drain()] == [("osb.pool.now", "timer")]
    assert store.queue.begin(POOL, "t1").deep


def test_a_timer_far_ahead_fires_at_its_clock_time_also_when_the_clock_jumps(store: Store, clock: Any) -> None:
    store.queue.add([Add(key=BOX, at_ms=clock.ms + 365 * 86_400_000)])
    clock.forward(-3600)
    assert (store.queue.due("batchsandbox"), store.queue.rescue("batchsandbox").broken) == (0, 0)
    clock.forward(365 * 86_400 + 3600)
    assert store.queue.due("batchsandbox") == 1


def test_a_timer_that_is_due_right_now_is_a_timer(store: Store, clock: Any) -> None:
    store.queue.add([Add(key=BOX, at_ms=clock.ms)])
    assert store.queue.due("batchsandbox") == 1
    store.queue.add([Add(key=POOL, after=-1)])
    assert store.queue.due("pool") == 1


def test_due_takes_at_most_its_limit(store: Store, clock: Any) -> None:
    store.queue.add([Add(key=Key("pool", "a", f"p{n}"), after=0) for n in range(7)])
    assert [store.queue.due("pool", limit=3) for _ in range(4)] == [3, 3, 1, 0]


def test_back_off_doubles_to_a_minute_and_is_forgotten_by_done(store: Store, clock: Any) -> None:
    queue = type(store.queue)(store.redis, store.scripts, dice=lambda: 0.5)
    store.queue.add([Add(key=POOL)])
    waits = []
    for n in range(10):
        assert start(store, token=f"t{n}") == "run"
        ended = queue.end(POOL, f"t{n}", "retry", progress=True)
        assert ended.failures == n + 1
        waits.append(ended.wait_ms)
        clock.forward(ended.wait_ms / 1000)
        assert store.queue.due("pool") == 1
    assert waits == [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]
    start(store)
    queue.end(POOL, "t1", "done", progress=True)
    store.queue.add([Add(key=POOL)])
    start(store)
    assert queue.end(POOL, "t1", "retry").wait_ms == 500


def test_a_failed_run_keeps_a_timer_that_is_earlier_than_its_back_off(store: Store, clock: Any) -> None:
    # Given a sandbox that failed six times in a row and expires in 3 s
    store.redis.hset("osb:q:batchsandbox:fail", BOX.member, 6)
    store.queue.add([Add(key=BOX, at_ms=clock.ms + 3000)])
    store.queue.add([Add(key=BOX)])
    start(store, BOX)
    # When it fails again, then its back-off of half a minute does not hide the expiry
    ended = store.queue.end(BOX, "t1", "retry")
    assert (ended.failures, ended.wait_ms) == (7, 3000)
    clock.forward(3)
    assert store.queue.due("batchsandbox") == 1


def test_jitter_spreads_the_back_off_by_a_fifth(store: Store, clock: Any) -> None:
    for dice, wait in ((0.0, 400), (1.0, 600)):
        queue = type(store.queue)(store.redis, store.scripts, dice=lambda dice=dice: dice)
        queue.begin(POOL, f"t{dice}", hand=True, task_id=f"{dice}")
        assert queue.end(POOL, f"t{dice}", "retry").wait_ms == wait
        store.queue.forget(POOL)


def test_deletion_forgets_failures_and_the_allowance(store: Store, clock: Any) -> None:
    for n in range(20):
        store.queue.begin(BOX, f"t{n}", hand=True, task_id=f"{n}")
        store.queue.end(BOX, f"t{n}", "retry")
    store.queue.add([Add(key=BOX)])
    assert start(store, BOX) == "early"
    store.queue.add([Add(key=BOX, deletion=True)])
    assert start(store, BOX) == "run"
    assert store.queue.end(BOX, "t1", "retry").failures == 1


def test_after_sets_a_timer_and_forgets_failures(store: Store, clock: Any) -> None:
    start(store, token="t0", hand=True, task_id="0")
    store.queue.end(POOL, "t0", "retry")
    start(store, token="t1", hand=True, task_id="1")
    assert store.queue.end(POOL, "t1", "after", seconds=3.5).wait_ms == 3500
    assert store.queue.stats("pool").failing == 0


def test_an_immediate_event_does_not_wait_for_the_timer_and_a_full_run_drops_it(store: Store, clock: Any) -> None:
    store.queue.add([Add(key=POOL, after=60)])
    store.queue.add([Add(key=POOL)])
    begin = store.queue.begin(POOL, "t1")
    assert (begin.state, begin.due_in_ms) == ("run", 60000)
    assert store.queue.end(POOL, "t1", "done").wait_ms == -1
    assert store.queue.stats("pool").due == 0


# -- partial passes -------------------------------------------------------------------------------------


def test_a_partial_pass_leaves_timers_alone(store: Store, clock: Any) -> None:
    store.queue.add([Add(key=POOL, after=60)])
    store.queue.add([Add(key=POOL)])
    start(store)
    assert store.queue.end(POOL, "t1", "part", seconds=0.25).wait_ms == 60000


def test_a_partial_pass_hands_the_debt_of_a_full_pass_on(store: Store, clock: Any) -> None:
    store.queue.add([Add(key=POOL, deep=True)])
    assert store.queue.begin(POOL, "t1").deep
    assert store.queue.end(POOL, "t1", "part", seconds=0.25).wait_ms == 250
    # an event before the timer: the debt is still owed, and the pending timer will pay it
    store.queue.add([Add(key=POOL)])
    begin = store.queue.begin(POOL, "t2")
    assert (begin.deep, begin.due_in_ms) == (True, 250)
    store.queue.end(POOL, "t2", "part", seconds=0.25)
    clock.forward(0.25)
    assert store.queue.due("pool") == 1
    begin = store.queue.begin(POOL, "t3")
    assert (begin.deep, begin.due_in_ms) == (True, -1)


def test_a_pass_may_ask_for_a_full_pass_that_nobody_owed(store: Store, clock: Any) -> None:
    store.queue.add([Add(key=POOL)])
    start(store)
    assert store.queue.end(POOL, "t1", "part", seconds=0.25, deep_again=True).wait_ms == 250
    clock.forward(0.25)
    store.queue.due("pool")
    assert store.queue.begin(POOL, "t2").deep


# -- the allowance against hot loops --------------------------------------------------------------------


def test_runs_without_progress_are_spaced_out_after_ten(store: Store, clock: Any) -> None:
    runs = 0
    for n in range(200):  # ten seconds of an event every 50 ms
        store.queue.add([Add(key=POOL)])
        store.queue.due("pool")
        if start(store, token=f"t{n}") == "run":
            runs += 1
            store.queue.end(POOL, f"t{n}", "done")
        clock.forward(0.05)
    assert 100 <= runs <= 111


def test_runs_with_progress_are_free(store: Store, clock: Any) -> None:
    for n in range(100):
        store.queue.add([Add(key=POOL)])
        assert start(store, token=f"t{n}") == "run"
        store.queue.end(POOL, f"t{n}", "done", progress=True)


def test_a_key_that_is_too_early_stays_dirty_and_comes_back_by_its_timer(store: Store, clock: Any, broker: Any) -> None:
    for n in range(11):
        store.queue.add([Add(key=POOL)])
        start(store, token=f"t{n}")
        store.queue.end(POOL, f"t{n}", "done")
    broker.drain()
    store.queue.add([Add(key=POOL)])
    assert start(store, token="early") == "early"
    stats = store.queue.stats("pool")
    assert (stats.dirty_now, stats.due) == (1, 1)
    clock.forward(0.1)
    assert store.queue.due("pool") == 1
    assert start(store, token="later") == "run"
