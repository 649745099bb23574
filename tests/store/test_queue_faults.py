"""What the work queue survives: lost and repeated messages, vanished and frozen workers, a flush, an older clock.

Each test is one interleaving that breaks a plausible simpler protocol (spec/protocols.md 8, the mutants).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from osb.api.key import Key
from osb.facts.adds import Add
from osb.store.client import Store
from osb.store.queue import new_token

POOL = Key("pool", "default", "warm")


def add(store: Store, **more: Any) -> None:
    store.queue.add([Add(key=POOL, **more)])


def crash(store: Store, clock: Any, token: str = "dead") -> None:
    """A run whose worker vanishes; its lease is over afterwards, and nobody has noticed yet."""
    assert store.queue.begin(POOL, token).state == "run"
    clock.forward(12)


def quarantine(store: Store, clock: Any) -> None:
    add(store)
    for n in range(5):
        crash(store, clock, f"dead{n}")
        store.queue.rescue("pool")
    assert store.queue.stats("pool").quarantined == 1


# -- messages -------------------------------------------------------------------------------------------


def test_a_lost_wake_up_is_repeated_after_10_20_40_and_at_most_320_s(store: Store, broker: Any, clock: Any) -> None:
    add(store, reason="user")
    broker.drain()
    for wait in (10, 20, 40, 80, 160, 320, 320):
        clock.forward(wait - 1)
        assert store.queue.rescue("pool").repeated == 0
        clock.forward(1)
        assert store.queue.rescue("pool").repeated == 1
        assert [w.reason for w in broker.drain()] == ["user"]
    assert store.queue.begin(POOL, "t1").state == "run"


def test_an_event_after_a_lost_wake_up_is_not_stuck(store: Store, broker: Any, clock: Any) -> None:
    add(store)
    broker.drain()
    add(store)  # publishes nothing: a wake-up is believed to be on the way
    assert broker.size() == 0
    clock.forward(10)
    store.queue.rescue("pool")
    assert broker.size() == 1


def test_a_repeated_wake_up_costs_no_run(store: Store) -> None:
    add(store)
    assert store.queue.begin(POOL, "t1").state == "run"
    store.queue.end(POOL, "t1", "done")
    assert [store.queue.begin(POOL, f"r{n}").state for n in range(3)] == ["clean"] * 3


def test_the_marker_of_a_running_key_is_dropped_and_its_end_publishes(store: Store, broker: Any, clock: Any) -> None:
    add(store)
    store.queue.begin(POOL, "t1")
    add(store)
    clock.forward(10)
    assert store.queue.renew(POOL, "t1")
    clock.forward(10)
    assert store.queue.rescue("pool").repeated == 0
    broker.drain()
    store.queue.end(POOL, "t1", "done")
    assert broker.size() == 1


def test_what_waited_30_s_in_later_is_promoted(store: Store, broker: Any, clock: Any) -> None:
    add(store, cls="later", reason="sweep")
    clock.forward(29)
    assert store.queue.rescue("pool").promoted == 0
    clock.forward(1)
    assert store.queue.rescue("pool").promoted == 1
    assert [w.reason for w in broker.drain() if w.queue == "osb.pool.now"] == ["sweep"]
    assert store.queue.rescue("pool").promoted == 0


# -- workers that vanish --------------------------------------------------------------------------------


def test_a_key_whose_worker_vanished_comes_back_with_a_full_pass(store: Store, broker: Any, clock: Any) -> None:
    add(store)
    crash(store, clock)
    broker.drain()
    assert store.queue.rescue("pool").broken == 1
    assert [(w.queue, w.reason) for w in broker.drain()] == [("osb.pool.now", "its worker vanished")]
    assert store.queue.begin(POOL, "t2").deep


def test_begin_takes_over_an_expired_lease_without_waiting_for_rescue(store: Store, clock: Any) -> None:
    add(store)
    crash(store, clock)
    begin = store.queue.begin(POOL, "t2")  # e.g. a repeated wake-up
    assert (begin.state, begin.deep) == ("run", True)


def test_a_frozen_worker_that_returns_changes_nothing(store: Store, clock: Any) -> None:
    add(store)
    crash(store, clock, "frozen")
    assert store.queue.begin(POOL, "t2").state == "run"
    assert not store.queue.renew(POOL, "frozen")
    assert not store.queue.end(POOL, "frozen", "after", seconds=1).ours
    assert store.queue.renew(POOL, "t2")
    assert store.queue.stats("pool").due == 0


def test_a_frozen_worker_that_returns_before_anybody_took_over_keeps_its_run(store: Store, clock: Any) -> None:
    add(store)
    crash(store, clock, "t1")
    assert store.queue.renew(POOL, "t1")
    assert store.queue.begin(POOL, "t2").state == "busy"
    assert store.queue.end(POOL, "t1", "done").ours


def test_a_timer_survives_the_crash_of_the_run_that_saw_it(store: Store, clock: Any) -> None:
    add(store, after=30)
    add(store)
    crash(store, clock)
    store.queue.rescue("pool")
    clock.forward(18)
    assert store.queue.due("pool") == 1


def test_a_timer_set_by_another_key_during_the_run_survives_its_end(store: Store, clock: Any) -> None:
    add(store, after=30)
    add(store)
    store.queue.begin(POOL, "t1")
    add(store, after=30)  # the same time as the one that the run saw
    assert store.queue.end(POOL, "t1", "done").wait_ms == 30000


def test_a_timer_that_fires_during_a_run_means_one_more_run(store: Store, broker: Any, clock: Any) -> None:
    add(store, after=5)
    add(store)
    store.queue.begin(POOL, "t1")
    broker.drain()
    clock.forward(5)
    assert store.queue.due("pool") == 1
    assert broker.size() == 0
    assert store.queue.end(POOL, "t1", "done").again
    assert store.queue.begin(POOL, "t2").deep


def test_a_crash_after_a_partial_pass_still_owes_the_full_one(store: Store, clock: Any) -> None:
    # Given a full pass that crashed, and then a partial pass that hands the debt on
    add(store, deep=True)
    crash(store, clock)
    store.queue.rescue("pool")
    assert store.queue.begin(POOL, "t2").deep
    store.queue.end(POOL, "t2", "part", seconds=0.25)
    # When the next partial pass crashes too
    add(store)
    crash(store, clock, "t3")
    store.queue.rescue("pool")
    # Then it is still owed
    assert store.queue.begin(POOL, "t4").deep


# -- quarantine -----------------------------------------------------------------------------------------


def test_five_crashes_in_a_row_mean_quarantine_for_ten_minutes(store: Store, broker: Any, clock: Any) -> None:
    add(store)
    for n in range(5):
        crash(store, clock, f"dead{n}")
        broker.drain()
        rescued = store.queue.rescue("pool")
    assert rescued.quarantined == (POOL,)
    assert (broker.size(), store.queue.stats("pool").due) == (0, 1)
    begin = store.queue.begin(POOL, "t1")
    assert (begin.state, begin.newly_quarantined) == ("quarantined", False)
    clock.forward(600)
    assert store.queue.due("pool") == 1
    assert store.queue.begin(POOL, "t1").state == "run"
    store.queue.end(POOL, "t1", "done")
    assert store.queue.stats("pool").quarantined == 0


def test_begin_that_finds_the_fifth_crash_says_so(store: Store, clock: Any) -> None:
    add(store)
    for n in range(4):
        crash(store, clock, f"dead{n}")
        store.queue.rescue("pool")
    crash(store, clock, "dead4")
    begin = store.queue.begin(POOL, "t1")
    assert (begin.state, begin.newly_quarantined) == ("quarantined", True)


def test_events_in_quarantine_wait_and_an_early_timer_does_not_use_the_way_out_up(
    store: Store, broker: Any, clock: Any
) -> None:
    quarantine(store, clock)
    broker.drain()
    add(store, after=1)
    add(store)
    clock.forward(1)
    assert store.queue.due("pool") == 1
    assert broker.size() == 0
    assert store.queue.stats("pool").due == 1
    clock.forward(600)
    store.queue.due("pool")
    assert broker.size() == 1


def test_a_person_runs_a_quarantined_key_at_once(store: Store, clock: Any) -> None:
    quarantine(store, clock)
    assert store.queue.begin(POOL, "t1", hand=True, task_id="h").state == "run"
    store.queue.end(POOL, "t1", "done")
    assert store.queue.stats("pool").quarantined == 0
    add(store)
    assert store.queue.begin(POOL, "t2").state == "run"


def test_one_run_that_ends_in_order_forgets_the_crashes(store: Store, clock: Any) -> None:
    add(store)
    for n in range(4):
        crash(store, clock, f"dead{n}")
        store.queue.rescue("pool")
    store.queue.begin(POOL, "t1")
    store.queue.end(POOL, "t1", "done", progress=True)
    add(store)
    crash(store, clock)
    assert store.queue.rescue("pool").quarantined == ()


# -- Redis itself ---------------------------------------------------------------------------------------


def test_after_a_flush_a_frozen_holder_is_fenced_and_every_key_can_be_offered_again(store: Store, clock: Any) -> None:
    add(store)
    frozen = new_token()
    store.queue.begin(POOL, frozen)
    store.redis.flushall()
    clock.set(clock.ms)
    assert not store.queue.renew(POOL, frozen)
    add(store, cls="later", deep=True)  # what a relist does
    token = new_token()
    assert token != frozen
    assert store.queue.begin(POOL, token).deep
    assert not store.queue.end(POOL, frozen, "done").ours
    assert store.queue.renew(POOL, token)


def test_leases_and_markers_from_a_clock_that_went_back_count_as_expired(store: Store, broker: Any, clock: Any) -> None:
    # Given a run, a lost wake-up of another key and a quarantine, all stamped an hour ahead
    other = Key("pool", "default", "cold")
    sick = Key("pool", "default", "sick")
    clock.forward(3600)
    store.queue.add([Add(key=POOL), Add(key=sick)])
    store.queue.begin(POOL, "t1")
    store.redis.zadd("osb:q:pool:quar", {sick.member: clock.ms + 600_000})
    store.queue.add([Add(key=other)])
    broker.drain()
    # When the clock goes back
    clock.forward(-3600)
    rescued = store.queue.rescue("pool")
    # Then nothing waits for the hour to pass
    assert (rescued.broken, rescued.repeated) == (1, 2)
    assert {w.key for w in broker.drain()} == {POOL, other, sick}
    assert store.queue.begin(sick, "t2").state == "run"


def test_an_allowance_from_a_clock_that_went_back_is_forgotten(
    store: Store, clock: Any, left: Callable[[], set[str]]
) -> None:
    store.queue.begin(POOL, "t1", hand=True, task_id="h")
    clock.forward(3600)
    store.queue.end(POOL, "t1", "done")
    clock.forward(-3600)
    add(store)
    assert store.queue.begin(POOL, "t2").state == "run"
    store.queue.end(POOL, "t2", "done", progress=True)
    assert left() == {"osb:q:pool:hand:h"}


def test_leases_from_a_clock_that_went_back_do_not_make_a_key_busy(store: Store, clock: Any) -> None:
    add(store)
    store.queue.begin(POOL, "t1")
    clock.forward(-3600)
    assert store.queue.begin(POOL, "t2").state == "run"


def test_without_workers_the_lists_stay_bounded_and_repeats_go_on_when_they_drain(
    store: Store, broker: Any, clock: Any
) -> None:
    store.queue.add(Add(key=Key("pool", "default", f"p{n}")) for n in range(300))
    for _ in range(40):
        clock.forward(330)
        for _ in range(2):
            store.queue.rescue("pool")
    assert broker.size() <= 1000 + 3 * 300
    broker.drain()  # all lost
    clock.forward(330)
    store.queue.rescue("pool", limit=300)
    assert len({wake.key for wake in broker.drain()}) == 300
