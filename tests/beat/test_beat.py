"""Time: several beats of which one acts, outages, slots, and workers that keep time when no beat does."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest

from osb.api.key import BATCHSANDBOX, POOL, TASKS, Key
from osb.facts.adds import Add
from osb.kube.read import Page
from osb.local.redis import EmbeddedRedis
from osb.reconcile import duties as module
from osb.reconcile.duties import SWEEP_SLOT_SECONDS, Duties
from osb.store import keys
from osb.store.client import Store
from osb.store.forward import Forwarder
from tests.beat.conftest import MakeScheduler
from tests.doubles.waiting import wait_until

KEY = Key(POOL, "ns", "p")


def box(name: str, *, tasks: bool = False) -> dict[str, object]:
    meta = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "5",
            "creationTimestamp": "2026-01-01T00:00:00Z"}  # fmt: skip
    return {"metadata": meta, "spec": {"replicas": 1, **({"taskTemplate": {"spec": {}}} if tasks else {})}}


def test_of_two_beats_one_acts_and_the_other_follows_at_once_when_it_ends(scheduler: MakeScheduler) -> None:
    first, second = scheduler(), scheduler()
    assert first.tick() <= module.DUE_SECONDS and second.tick() == 1.0
    assert first._acting and not second._acting
    for _ in range(3):
        first.tick(), second.tick()
    assert first._acting and not second._acting
    first.close()
    assert second.tick() <= module.DUE_SECONDS and second._acting


def test_a_beat_that_was_frozen_past_its_lease_does_not_act_beside_its_successor(
    scheduler: MakeScheduler, store: Store
) -> None:
    first, second = scheduler(), scheduler()
    first.tick()
    # Given a first beat that stood still until its lease ran out, and a successor
    store.redis.delete(keys.duty("beat"))
    second.tick()
    # When it goes on
    first._next = 0.0
    # Then it sees that it is not its turn
    assert first.tick() == 1.0 and not first._acting and second._acting


def test_beat_survives_a_redis_that_is_away_and_acts_when_it_is_back(scheduler: MakeScheduler, tmp_path: Path) -> None:
    redis = EmbeddedRedis(tmp_path / "redis")
    one = scheduler(redis.url)
    assert one.tick() == 1.0 and not one._acting  # not there yet
    redis.start()
    try:
        wait_until(lambda: one.tick() < 1.0, 10)
        redis.kill()
        assert one.tick() == 1.0
        redis.start()
        wait_until(lambda: one.tick() < 1.0, 15)
        assert one._acting
    finally:
        redis.stop()


def test_a_time_that_has_come_becomes_a_run_within_a_tick(scheduler: MakeScheduler, store: Store) -> None:
    one = scheduler()
    one.tick()
    store.queue.add([Add(key=KEY, after=0.15, reason="look again")])
    assert store.queue.peek(KEY).dirty_ms is None
    wait_until(lambda: one.tick() is not None and store.queue.peek(KEY).dirty_ms is not None, 2)
    begun = store.queue.begin(KEY, "t")
    assert begun.state == "run" and begun.deep


def test_a_key_of_a_vanished_worker_comes_back(scheduler: MakeScheduler, store: Store) -> None:
    store.queue.add([Add(key=KEY)])
    assert store.queue.begin(KEY, "dead").state == "run"
    store.redis.zadd(keys.queue(POOL, "run"), {KEY.member: 1})
    scheduler().tick()
    assert store.queue.begin(KEY, "next").state == "run"


def test_each_slot_of_the_sweep_is_done_once_whoever_does_it(store: Store) -> None:
    # Given two processes that sweep in the same ten seconds
    Forwarder(store).put("batchsandbox", [box("a")])
    store.redis.delete(*store.redis.keys("osb:q:batchsandbox:*"))
    both = [Duties(store, sweep_seconds=10) for _ in range(2)]
    begun = 0
    for one in both:
        one.sweep()
        token = uuid.uuid4().hex
        if store.queue.begin(Key(BATCHSANDBOX, "ns", "a"), token).state == "run":
            begun += 1
            store.queue.end(Key(BATCHSANDBOX, "ns", "a"), token, "done")
    # Then the key was offered once
    assert begun == 1


def test_every_key_is_offered_once_in_a_period_late_and_deep_and_not_all_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given sixty sandboxes, one of them with tasks, and a sweep period of a minute
    names = [f"b{n}" for n in range(60)]
    Forwarder(store).put("batchsandbox", [box(name, tasks=name == "b7") for name in names])
    store.redis.delete(*store.redis.keys("osb:q:*"))
    offered: dict[str, int] = dict.fromkeys(names, 0)
    sizes = []
    at = 1_800_000_000
    # When a whole period passes
    for slot in range(6):
        monkeypatch.setattr(module.time, "time", lambda slot=slot: at + slot * SWEEP_SLOT_SECONDS)
        Duties(store, sweep_seconds=60).sweep()
        stats = store.queue.stats(BATCHSANDBOX)
        assert stats.dirty_now == 0
        sizes.append(stats.dirty_later)
        for listed in store.queue.listing(BATCHSANDBOX, "dirty"):
            offered[listed.key.name] += 1
            begun = store.queue.begin(listed.key, "t")
            assert begun.state == "run" and begun.deep
            store.queue.end(listed.key, "t", "done", progress=True)
    # Then each was offered once, spread over the slots, tasks with it
    assert set(offered.values()) == {1}
    assert max(sizes) < 30
    assert store.queue.peek(Key(TASKS, "ns", "b7")).dirty_ms is not None
    monkeypatch.undo()


def test_workers_keep_time_only_while_no_beat_does(store: Store) -> None:
    duties = Duties(store)
    store.queue.add([Add(key=KEY, after=0.0, reason="due")])
    # Given a beat that lives: the worker leaves the timer to it
    store.queue.set_tick()
    duties.stand_in()
    assert store.queue.peek(KEY).dirty_ms is None
    # When no beat has been heard of for two seconds
    store.redis.delete(keys.TICK)
    duties.stand_in()
    # Then the worker does it
    assert store.queue.peek(KEY).dirty_ms is not None


def test_after_an_outage_a_timer_fires_once_and_not_once_for_every_missed_tick(
    scheduler: MakeScheduler, store: Store
) -> None:
    for seconds in (0.0, 0.01, 0.02):
        store.queue.add([Add(key=KEY, after=seconds)])
    one = scheduler()
    wait_until(lambda: one.tick() is not None and store.queue.peek(KEY).dirty_ms is not None, 2)
    assert store.queue.begin(KEY, "t").state == "run"
    store.queue.end(KEY, "t", "done", progress=True)
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        one.tick()
    assert store.queue.begin(KEY, "t2").state == "clean"


def test_a_pool_whose_ledger_is_lost_is_asked_to_rebuild_it_unless_something_does_so_anyway(store: Store) -> None:
    # Given pools with a ledger that is missing, another Pool's, of another Redis, half built, and in order
    def pool(name: str, **meta: str) -> dict[str, object]:
        return {"metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": "5", **meta},
                "spec": {}}  # fmt: skip

    boot = store.ledger("ns", "fine").meta().boot_now
    heads = {
        "foreign": ("uid-other", boot, "ready"), "older": ("uid-older", "before", "ready"),
        "half": ("uid-half", boot, "building"), "fine": ("uid-fine", boot, "ready"),
    }  # fmt: skip
    forward = Forwarder(store)
    going = pool("going", deletionTimestamp="2026-01-01T00:00:00Z")
    pools = [pool(name) for name in (*heads, "missing", "failing")] + [going]
    forward.relist("pool", [Page(pools, "9")])
    for name, (uid, at, state) in heads.items():
        store.redis.hset(keys.ledger(f"ns/{name}", "meta"), mapping={"uid": uid, "boot": at, "state": state})
    store.redis.delete(*store.redis.keys("osb:q:*"))
    # and one that fails and waits for its back-off
    failing = Key(POOL, "ns", "failing")
    store.queue.add([Add(key=failing)])
    assert store.queue.begin(failing, "t").state == "run"
    store.queue.end(failing, "t", "retry")
    # When the duty's turn comes, here and in another process
    for _ in range(2):
        Duties(store).ledgers()
    # Then exactly the lost ones are asked, once
    asked = {listed.key.name for listed in store.queue.listing(POOL, "dirty")}
    assert asked == {"foreign", "older", "half", "missing"}
    assert store.queue.begin(Key(POOL, "ns", "foreign"), "t").deep
