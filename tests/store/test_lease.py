"""Leases of running reconciles are kept alive, and a pass learns when it must not write any more."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from osb.api.key import Key
from osb.errors import StoreDown
from osb.facts.adds import Add
from osb.store.client import Store
from osb.store.lease import LeaseKeeper

POOL = Key("pool", "default", "warm")
BOX = Key("batchsandbox", "default", "b7")


class Hand:
    """A monotonic clock moved by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def keeper(store: Store, hand: Hand) -> LeaseKeeper:
    """One whose own thread sleeps for the whole test: rounds are asked for by `renew`."""
    return LeaseKeeper(store.queue, every=3600, clock=hand)


def begin(store: Store, key: Key, token: str) -> None:
    store.queue.add([Add(key=key)])
    assert store.queue.begin(key, token).state == "run"


def test_a_round_prolongs_every_held_lease(store: Store, clock: Any) -> None:
    hand = Hand()
    keep = keeper(store, hand)
    begin(store, POOL, "t1")
    begin(store, BOX, "t2")
    leases = [keep.hold(POOL, "t1"), keep.hold(BOX, "t2")]
    for _ in range(5):
        clock.forward(4)
        hand.now += 4
        assert keep.renew()
    assert all(lease.fresh() for lease in leases)
    assert store.queue.begin(POOL, "other").state == "busy"
    keep.close()


def test_a_lease_that_was_taken_over_is_lost(store: Store, clock: Any) -> None:
    hand = Hand()
    keep = keeper(store, hand)
    begin(store, POOL, "t1")
    lease = keep.hold(POOL, "t1")
    clock.forward(12)
    store.queue.begin(POOL, "t2")
    assert keep.renew()
    assert lease.lost
    assert not lease.fresh()
    keep.close()


def test_freshness_counts_from_when_we_asked_not_from_the_answer(store: Store) -> None:
    hand = Hand()
    keep = keeper(store, hand)
    begin(store, POOL, "t1")
    lease = keep.hold(POOL, "t1", sent=hand.now - 6)  # the answer took 6 s
    hand.now += 3.9
    assert lease.fresh()
    hand.now += 0.2
    assert not lease.fresh()
    assert not lease.lost
    keep.close()


def test_without_redis_a_lease_goes_stale_and_is_fresh_again_after_a_round(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = Hand()
    keep = keeper(store, hand)
    begin(store, POOL, "t1")
    lease = keep.hold(POOL, "t1")

    def down(_: Any) -> list[bool]:
        raise StoreDown("away")

    with monkeypatch.context() as patched:
        patched.setattr(store.queue, "renew_all", down)
        hand.now += 10
        assert not keep.renew()
        assert not lease.fresh()
    assert keep.renew()
    assert lease.fresh()
    keep.close()


def test_a_dropped_lease_is_renewed_no_more(store: Store, clock: Any) -> None:
    keep = keeper(store, Hand())
    begin(store, POOL, "t1")
    lease = keep.hold(POOL, "t1")
    keep.drop(lease)
    keep.drop(lease)
    clock.forward(12)
    assert keep.renew()
    assert store.queue.begin(POOL, "t2").state == "run"
    keep.close()


def test_the_thread_renews_by_itself(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed = threading.Semaphore(0)
    real = store.queue.renew_all

    def counted(leases: Any) -> list[bool]:
        kept = real(leases)
        renewed.release()
        return kept

    monkeypatch.setattr(store.queue, "renew_all", counted)
    keep = LeaseKeeper(store.queue, every=0.01)
    begin(store, POOL, "t1")
    lease = keep.hold(POOL, "t1")
    assert all(renewed.acquire(timeout=5) for _ in range(3))
    assert lease.fresh()
    keep.close()
