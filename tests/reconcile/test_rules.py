"""Engineering rules that only whole passes can show: what a pass leaves behind after many of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from osb.api import names
from osb.api.crds import crds
from osb.api.key import BATCHSANDBOX, POOL, Key
from osb.config import Settings
from osb.facts.ledger import FREE, HELD
from osb.kube.client import Kube
from osb.kube.client import connect as connect_kube
from osb.local.redis import EmbeddedRedis
from osb.sim import SimCluster
from osb.store.client import Store
from osb.store.client import connect as connect_store
from tests.doubles.passworld import Passes
from tests.doubles.stepping import Stepping


def test_a_pod_that_is_lost_ten_times_is_replaced_ten_times_and_the_record_does_not_grow(
    passes: Passes, simulated: SimCluster
) -> None:
    passes.warm(count=2)
    passes.box(replicas=2)
    run = Stepping(passes, simulated)
    run.settle()
    had = set(passes.record())
    for turn in range(1, 11):
        lost = passes.record()[turn % 2]
        run.lost.add(lost)
        if turn % 3:
            passes.delete("pod", lost)
        else:
            passes.patch("pod", lost, {"status": {"phase": "Failed"}}, sub="status")
        run.settle(still=1)
        run.served("b")
        assert len(passes.record()) == 2 and lost not in passes.record()
        had.update(passes.record())
    assert len(had) == 12
    assert passes.note(names.ALLOC_STATUS)["losses"] == 10


def test_a_pool_made_anew_ten_times_leaves_nothing_in_redis(passes: Passes, simulated: SimCluster) -> None:
    run = Stepping(passes, simulated)

    def once() -> int:
        passes.warm(count=2)
        passes.box(replicas=1)
        run.settle(still=1)
        run.served("b")
        passes.delete("batchsandbox", "b")
        run.settle(still=1)
        passes.delete("pool", "warm")
        run.once(POOL, "warm")
        passes.sync()
        run.once(POOL, "warm")
        for key in (Key(POOL, passes.ns, "warm"), Key(BATCHSANDBOX, passes.ns, "b")):
            passes.store.queue.forget(key)
        ours = [key for key in passes.store.redis.keys("osb:*") if passes.store.redis.ttl(key) < 0]
        return len(ours)

    first = once()
    sizes = [once() for _ in range(9)]
    assert max(sizes) <= first + 2, sizes
    assert not passes.entries()


def test_a_server_that_executes_and_does_not_answer_makes_no_pod_too_many(
    passes: Passes, simulated: SimCluster
) -> None:
    # Given a server that swallows every fourth answer to a create
    passes.pool("warm", 25, 25, 0, 60)
    simulated.add_fault(methods=["POST"], path=f"{passes.ns}/pods", probability=0.25, drop=True)
    run = Stepping(passes, simulated)
    # When passes go on until all is quiet
    for _ in range(12):
        run.once(POOL, "warm")
    simulated.clear_faults()
    run.settle()
    # Then there are exactly as many as were wanted, and none is of unknown history
    assert len(passes.pods("warm")) == 25
    assert {entry.state for entry in passes.entries().values()} == {FREE}


def test_a_status_that_the_schema_does_not_keep_is_no_hot_loop(
    store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Given a cluster with an older schema, which drops a field of the Pool's status
    with SimCluster.start(tmp_path_factory.mktemp("old"), kubelet=False) as old:
        kube = connect_kube(Settings(kubeconfig=str(old.kubeconfig)))
        for crd in crds():
            status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].get("status", {})
            if crd["spec"]["names"]["kind"] == "Pool":
                status["properties"].pop("terminating", None)
                status["properties"].pop("conditions", None)
            kube.create("crd", None, crd)
        passes = Passes(store, kube)
        try:
            passes.warm(count=1)
            run = Stepping(passes, old)
            # When its passes run, each writing a status that is never what was meant
            asked = 0
            for _ in range(10):
                passes.sync()
                outcome = passes.run(POOL, "warm")
                passes.sync()  # the event of that write arrives
                asked += passes.store.queue.peek(Key(POOL, passes.ns, "warm")).dirty_ms is not None
            # Then no such write asks for the next pass
            assert asked == 0
            assert getattr(outcome, "seconds", 60.0) >= 1.0
            assert run.passes is passes
        finally:
            passes.close()
            kube.close()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path / "redis")
    server.start()
    yield server
    server.stop()


def test_a_redis_that_goes_back_in_time_gives_no_pod_a_second_owner(
    own_redis: EmbeddedRedis, client: Kube, simulated: SimCluster, tmp_path: Path
) -> None:
    store = connect_store(own_redis.url)
    passes = Passes(store, client)
    try:
        # Given a copy of Redis from before six sandboxes were served and two of them were deleted
        passes.warm(count=6)
        run = Stepping(passes, simulated)
        run.settle(still=1)
        store.redis.config_set("appendfsync", "always")
        store.redis.set("osb:marker", "1")
        shutil.copytree(own_redis.folder, tmp_path / "copy")
        for number in range(6):
            passes.box(f"b{number}")
        run.settle(still=1)
        for number in range(2):
            passes.delete("batchsandbox", f"b{number}")
        run.settle(still=1)
        # When it starts again from that copy, in which all six pods are free, and others wait
        own_redis.kill()
        shutil.rmtree(own_redis.folder)
        shutil.copytree(tmp_path / "copy", own_redis.folder)
        own_redis.start()
        for number in range(6, 10):
            passes.box(f"b{number}")
        run.settle()
        # Then everybody has pods of his own (checked after every pass too), and the ledger is right again
        run.served(*(f"b{number}" for number in range(2, 10)))
        assert sum(entry.state == HELD for entry in passes.entries().values()) == 8
    finally:
        passes.close()
        store.close()


def test_a_broken_record_stops_only_its_own_sandbox(passes: Passes, simulated: SimCluster) -> None:
    # Given two sandboxes with pods, one of whose records a user overwrites with garbage
    passes.warm(count=3)
    passes.box("bad")
    passes.box("good")
    run = Stepping(passes, simulated)
    run.settle(still=1)
    passes.patch("batchsandbox", "bad", {"metadata": {"annotations": {names.ALLOC_STATUS: "]["}}})
    passes.box("new")
    passes.delete("batchsandbox", "good")
    # When passes go on, with the ledger lost as well
    passes.store.redis.flushall()
    run.settle()
    # Then everything else goes on, its own pods are kept from others, and it says what is wrong
    run.served("new")
    assert not passes.there("batchsandbox", "good")
    conditions = passes.get("batchsandbox", "bad")["status"]["conditions"]
    assert any(c["status"] == "True" and "alloc-status" in str(c.get("message")) for c in conditions), conditions


def test_the_pool_is_at_rest_with_one_write_per_change_and_none_without(passes: Passes, simulated: SimCluster) -> None:
    passes.warm(count=3)
    passes.box(replicas=2)
    run = Stepping(passes, simulated)
    run.settle()
    before = run.writes()
    keys = run.keys()
    for kind, name in keys * 5:
        assert run.once(kind, name)
    assert run.writes() == before


def test_a_batch_of_many_costs_one_claim_and_one_status_whatever_its_size(
    passes: Passes, simulated: SimCluster
) -> None:
    passes.pool("warm", 30, 30, 0, 60)
    passes.pool_pass()
    passes.ready()
    passes.pool_pass()
    passes.box(replicas=30)
    passes.sync()
    before = dict(simulated.stats())
    passes.run(POOL, "warm", deep=False)
    wrote = {key: count - before.get(key, 0) for key, count in simulated.stats().items() if "batchsandboxes" in key}
    assert {key: count for key, count in wrote.items() if count and not key.startswith(("get", "list"))} == {
        "patch batchsandboxes": 1,
        "patch batchsandboxes/status": 1,
    }
    assert len(passes.record()) == 30
