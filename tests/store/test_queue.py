"""The promise of the work queue, operation by operation (spec/protocols.md 3), on a real Redis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osb.api.key import Key
from osb.errors import InvalidInput
from osb.facts.adds import Add
from osb.store import keys as names
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


@pytest.mark.parametrize("name", ["wärm", "Warm", "", "a/b", "x" * 300])
def test_a_key_that_no_worker_would_take_never_enters(store: Store, broker: Any, name: str) -> None:
    store.queue.add([Add(key=Key("pool", "default", name)), Add(key=Key("pool", "default", name), after=1.0)])
    assert broker.size() == 0
    assert store.queue.listing("pool", "dirty") == store.queue.listing("pool", "due") == []


def test_members_of_somebody_else_do_not_stop_the_list(store: Store) -> None:
    for member in ("default/wärm", "nonsense", b"\xff\xfe"):
        store.redis.zadd(names.queue("pool", "dirty"), {member: 1})
    store.queue.add([Add(key=POOL)])
    assert POOL in [one.key for one in store.queue.listing("pool", "dirty")]
    assert len(store.queue.listing("pool", "dirty")) == 4


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


def test_a_class_upgrade_publishes_once_more_and_the_older_message_ends_as_clean(store: Store, broker: Any) -> None:
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
    assert wake.raw["headers"]["argsrepr"] == repr(("default", "warm", wake.reason)).replace("(", "[").replace(")", "]")


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


def test_a_staying_worker_gets_no_message_but_rescue_sends_it_if_it_dies(store: Store, broker: Any, clock: Any) -> None:
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
    store.queue.add([Add(key=POOL, deep=True, reason="x"), Add(key=POOL, after=5), Add(key=POOL, at_ms=clock.ms + 9)])
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


def test_forget_removes_all_that_is_known_of_one_key(store: Store, clock: Any, left: Callable[[], set[str]]) -> None:
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
