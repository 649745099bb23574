"""The promise of the work queue, operation by operation (spec/protocols.md 3), on a real Redis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osb.api.key import Key
from osb.errors import InvalidInput
from osb.facts.adds import Add
from osb.store.client import Store
from osb.store.queue import reason_text, wire

POOL = Key("pool", "default", "warm")
BOX = Key("batchsandbox", "default", "b7")


def start(store: Store, key: Key = POOL, token: str = "t1", **hand: Any) -> str:
    return store.queue.begin(key, token, **hand).state


# -- add ------------------------------------------------------------------------------------------------


def test_an_add_marks_the_key_and_publishes_one_wake_up(store: Store, broker: Any) -> None:
    store.queue.add([Add(key=POOL, reason="sandbox b7 added")])
    wakes = broker.drain()
    assert [(w.queue, w.key, w.reason) for w in wakes] == [("osb.pool.now", POOL, "sandbox b7 added")]
    assert store.queue.stats("pool").dirty_now == 1


def test_many_events_collapse_into_one_wake_up(store: Store, broker: Any) -> None:
    for n in range(100):
        store.queue.add([Add(key=POOL, reason=f"event {n}")])
    assert broker.size() == 1
    assert start(store) == "run"
    store.queue.end(POOL, "t1", "done")
    assert start(store, token="t2") == "clean"


@pytest.mark.parametrize(
    ("key", "cls", "queue"),
    [
        (POOL, "now", "osb.pool.now"),
        (POOL, "later", "osb.pool.later"),
        (BOX, "later", "osb.batchsandbox.later"),
        (Key("snapshot", "a", "s"), "now", "osb.snapshot.now"),
        (Key("recycle", "a", "p"), "later", "osb.recycle"),
        (Key("tasks", "a", "b"), "now", "osb.tasks"),
    ],
    ids=str,
)
def test_each_kind_and_class_has_its_list(store: Store, broker: Any, key: Key, cls: Any, queue: str) -> None:
    store.queue.add([Add(key=key, cls=cls)])
    assert [(w.queue, w.key) for w in broker.drain()] == [(queue, key)]


def test_a_class_upgrade_publishes_once_more_and_the_older_message_ends_as_clean(
    store: Store, broker: Any
) -> None:
    store.queue.add([Add(key=POOL, cls="later", reason="sweep")])
    store.queue.add([Add(key=POOL, cls="now", reason="user"), Add(key=POOL, cls="later", reason="sweep")])
    assert [(w.queue, w.reason) for w in broker.drain()] == [
        ("osb.pool.later", "sweep"),
        ("osb.pool.now", "user"),
    ]
    assert store.queue.stats("pool").dirty_later == 0
    begin = store.queue.begin(POOL, "t1")
    assert (begin.state, begin.reason) == ("run", "user")
    store.queue.end(POOL, "t1", "done")
    assert start(store, token="t2") == "clean"


def test_more_adds_than_one_call_takes_are_split(store: Store, broker: Any) -> None:
    keys = [Key("batchsandbox", "default", f"b{n}") for n in range(1203)]
    store.queue.add(Add(key=key, cls="later") for key in keys)
    assert store.queue.stats("batchsandbox").dirty_later == 1203
    assert {w.key for w in broker.drain()} == set(keys)


def test_a_reason_is_cut_and_cannot_break_the_message(store: Store, broker: Any) -> None:
    store.queue.add([Add(key=POOL, reason='it\'s "<<id>>" %1 \\ é\n' + "x" * 500)])
    (wake,) = broker.drain()
    assert wake.reason.startswith('it’s "<<id>>" %1 / é xxx')
    assert len(wake.reason) == 120
    assert wake.raw["headers"]["argsrepr"] == repr(("default", "warm", wake.reason)).replace(
        "(", "["
    ).replace(")", "]")


def test_the_wire_form_rounds_times_up_and_never_below_zero() -> None:
    assert wire(Add(key=POOL, cls="later", deep=True, after=0.2501))[2:] == [1, 1, "", 0, 251, -1]
    assert wire(Add(key=POOL, deletion=True, after=-1, at_ms=-5))[2:] == [2, 0, "", 1, 0, 0]
    assert reason_text("a\tb\x00 c") == "a b c"


# -- begin, end -----------------------------------------------------------------------------------------


def test_an_event_during_a_run_means_exactly_one_more_run_after_it(store: Store, broker: Any) -> None:
    # Given a run
    store.queue.add([Add(key=POOL)])
    assert start(store) == "run"
    broker.drain()
    # When 100 events come meanwhile
    for _ in range(100):
        store.queue.add([Add(key=POOL)])
    # Then nothing is published, nobody else can start, and the end publishes once
    assert broker.size() == 0
    assert start(store, token="t2") == "busy"
    assert store.queue.end(POOL, "t1", "done").again
    assert broker.size() == 1
    assert start(store, token="t2") == "run"
    assert not store.queue.end(POOL, "t2", "done").again


def test_a_busy_key_stays_dirty(store: Store) -> None:
    store.queue.add([Add(key=POOL)])
    start(store)
    store.queue.add([Add(key=POOL)])
    assert start(store, token="t2") == "busy"
    assert store.queue.stats("pool").dirty_now == 1


def test_begin_repeated_with_the_same_token_runs_once(store: Store) -> None:
    store.queue.add([Add(key=POOL, deep=True)])
    first, again = store.queue.begin(POOL, "t1"), store.queue.begin(POOL, "t1")
    assert (first.state, first.deep) == (again.state, again.deep) == ("run", True)
    assert store.queue.stats("pool").running == 1


def test_an_old_token_ends_nothing(store: Store) -> None:
    store.queue.add([Add(key=POOL)])
    start(store)
    assert store.queue.end(POOL, "t0", "done").ours is False
    assert store.queue.stats("pool").running == 1
    assert store.queue.end(POOL, "t1", "done").ours is True
    assert store.queue.end(POOL, "t1", "done").ours is False  # repeated after a lost reply


def test_begin_says_how_long_the_key_waited_and_why(store: Store, clock: Any) -> None:
    store.queue.add([Add(key=POOL, reason="first")])
    clock.forward(3)
    store.queue.add([Add(key=POOL, reason="second")])
    begin = store.queue.begin(POOL, "t1")
    assert (begin.waited_ms, begin.reason, begin.deep) == (3000, "second", False)


def test_a_staying_worker_gets_no_message_but_rescue_sends_it_if_it_dies(
    store: Store, broker: Any, clock: Any
) -> None:
    store.queue.add([Add(key=POOL)])
    start(store)
    store.queue.add([Add(key=POOL, reason="more")])
    broker.drain()
    assert store.queue.end(POOL, "t1", "done", staying=True).again
    assert broker.size() == 0
    clock.forward(10)
    store.queue.rescue("pool")
    assert [w.reason for w in broker.drain()] == ["more"]


def test_an_idle_key_leaves_nothing_behind(store: Store, clock: Any, left: Callable[[], set[str]]) -> None:
    # Given a key that went through everything: failure, deep passes, timers, a vanished worker, a hand-sent task
    store.queue.add(
        [Add(key=POOL, deep=True, reason="x"), Add(key=POOL, after=5), Add(key=POOL, at_ms=clock.ms + 9)]
    )
    start(store)
    store.queue.end(POOL, "t1", "retry")
    clock.forward(2)
    store.queue.due("pool")
    start(store, token="t2")
    clock.forward(13)
    store.queue.rescue("pool")
    start(store, token="t3", hand=True, task_id="by-hand")
    # When it ends in order
    store.queue.end(POOL, "t3", "done")
    clock.forward(1)
    store.queue.rescue("pool")
    # Then only the mark of the hand-sent task is left, for an hour
    assert left() == {"osb:q:pool:hand:by-hand"}
    assert 3500 < store.redis.ttl("osb:q:pool:hand:by-hand") <= 3600


def test_forget_removes_all_that_is_known_of_one_key(
    store: Store, clock: Any, left: Callable[[], set[str]]
) -> None:
    store.queue.add([Add(key=POOL, deep=True, reason="x"), Add(key=POOL, after=5)])
    start(store)
    store.queue.add([Add(key=POOL, deep=True, reason="x")])
    assert store.queue.forget(POOL)
    assert left() == set()
    assert not store.queue.renew(POOL, "t1")
    assert not store.queue.forget(POOL)


# -- hand-sent ------------------------------------------------------------------------------------------


def test_a_hand_sent_task_runs_an_idle_key_with_a_full_pass(store: Store) -> None:
    begin = store.queue.begin(POOL, "t1", hand=True, task_id="a")
    assert (begin.state, begin.deep, begin.reason) == ("run", True, "sent by hand")


def test_a_hand_sent_task_during_a_run_means_exactly_one_more_run(store: Store) -> None:
    store.queue.add([Add(key=POOL)])
    start(store)
    assert {start(store, token=f"h{n}", hand=True, task_id=f"h{n}") for n in range(100)} == {"busy"}
    assert store.queue.end(POOL, "t1", "done").again
    assert start(store, token="t2") == "run"
    assert not store.queue.end(POOL, "t2", "done").again


def test_a_redelivered_hand_sent_task_is_a_plain_wake_up(store: Store) -> None:
    assert start(store, token="t1", hand=True, task_id="a") == "run"
    store.queue.end(POOL, "t1", "done")
    assert start(store, token="t2", hand=True, task_id="a") == "clean"
    assert start(store, token="t3", hand=True, task_id="b") == "run"


def test_a_hand_sent_begin_without_task_id_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="task_id"):
        store.queue.begin(POOL, "t1", hand=True)


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


def test_an_immediate_event_does_not_wait_for_the_timer_and_a_full_run_drops_it(
    store: Store, clock: Any
) -> None:
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


def test_a_key_that_is_too_early_stays_dirty_and_comes_back_by_its_timer(
    store: Store, clock: Any, broker: Any
) -> None:
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


# -- listing --------------------------------------------------------------------------------------------


def test_sizes_ages_and_listings(store: Store, clock: Any) -> None:
    store.queue.add([Add(key=POOL, cls="later", reason="sweep")])
    clock.forward(2)
    other = Key("pool", "default", "cold")
    store.queue.add([Add(key=other, reason="user"), Add(key=Key("pool", "a", "x"), after=1)])
    clock.forward(1)
    stats = store.queue.stats("pool")
    assert (stats.dirty_now, stats.dirty_later, stats.running, stats.due) == (1, 1, 0, 1)
    assert (stats.oldest_ms_now, stats.oldest_ms_later) == (1000, 3000)
    assert [(item.key, item.reason) for item in store.queue.listing("pool", "dirty")] == [
        (POOL, "sweep"),
        (other, "user"),
    ]
    start(store, other)
    store.queue.end(other, "t1", "retry")
    assert [(item.key, item.at_ms) for item in store.queue.listing("pool", "failing")] == [(other, 1)]
    assert store.queue.listing("pool", "running") == store.queue.listing("pool", "quarantined") == []


def test_the_tick_of_the_acting_beat_ages(store: Store, clock: Any) -> None:
    assert store.queue.tick_age_ms() is None
    store.queue.set_tick()
    clock.forward(2.5)
    assert store.queue.tick_age_ms() == 2500
