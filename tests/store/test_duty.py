"""Duties, time slots and signs of life."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from osb.store.client import Store


def test_one_process_holds_a_duty_until_it_releases_it(store: Store) -> None:
    assert store.duty.hold("beat", "a", 10)
    assert not store.duty.hold("beat", "b", 10)
    assert store.duty.hold("beat", "a", 10)
    assert store.duty.holder("beat") == "a"
    assert not store.duty.release("beat", "b")
    assert store.duty.release("beat", "a")
    assert not store.duty.release("beat", "a")
    assert store.duty.holder("beat") is None
    assert store.duty.hold("beat", "b", 10)


def test_a_duty_has_an_end(store: Store) -> None:
    store.duty.hold("beat", "a", 0.001)
    while store.redis.exists("osb:duty:beat"):
        pass
    assert store.duty.hold("beat", "b", 10)
    assert 9000 < store.redis.pttl("osb:duty:beat") <= 10_000


def test_each_time_slot_is_taken_once(store: Store) -> None:
    with ThreadPoolExecutor(8) as pool:
        taken = [sum(pool.map(lambda _, n=n: store.duty.slot("sweep", n, ttl=20), range(8))) for n in (7, 8, 9)]
    assert taken == [1, 1, 1]


def test_a_scheduler_that_is_behind_does_not_take_a_slot_again(store: Store) -> None:
    assert store.duty.slot("sweep", 100, ttl=20)
    assert not store.duty.slot("sweep", 99, ttl=20)
    assert store.duty.slot("sweep", 101, ttl=20)
    assert store.duty.slot("trim", 99, ttl=20)


def test_slots_missed_in_an_outage_are_not_made_up_for(store: Store) -> None:
    assert store.duty.slot("sweep", 100, ttl=20)
    assert store.duty.slot("sweep", 280, ttl=20)
    assert not any(store.duty.slot("sweep", n, ttl=20) for n in range(101, 281))


def test_a_sign_of_life_ages(store: Store, clock: Any) -> None:
    assert store.duty.watcher_age() == math.inf
    store.duty.watcher_seen()
    clock.forward(3.5)
    assert store.duty.watcher_age() == 3.5
    clock.forward(-10)
    assert store.duty.watcher_age() == 0.0


def test_workers_learn_who_else_holds_the_lease(store: Store, clock: Any) -> None:
    assert (store.duty.foreign_holder(), store.duty.holder_age()) == (None, math.inf)
    store.duty.publish_holder("sandbox-k8s_1 (old controller)")
    clock.forward(2)
    assert (store.duty.foreign_holder(), store.duty.holder_age()) == ("sandbox-k8s_1 (old controller)", 2.0)
    store.duty.publish_holder("")
    assert (store.duty.foreign_holder(), store.duty.holder_age()) == (None, 0.0)


def test_a_gap_without_watchers_is_remembered(store: Store, clock: Any) -> None:
    assert store.duty.unwatched() is None
    store.duty.note_unwatched(42.5)
    clock.forward(60)
    gap = store.duty.unwatched()
    assert gap is not None
    assert (gap.age, float(gap.text)) == (60.0, 42.5)
