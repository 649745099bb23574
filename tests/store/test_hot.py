"""One trip loads all that a fast pass decides on, at a cost that does not grow with the pool. Real Redis."""

from __future__ import annotations

import time
import uuid
from typing import Any

import orjson
import pytest

from osb.api.key import Key
from osb.errors import Fenced, InvalidInput
from osb.facts.adds import Add
from osb.facts.ledger import LedgerEntry
from osb.facts.pod import PodFact, encode
from osb.store import hot, keys
from osb.store.client import Store
from osb.store.ledger_types import Proof
from osb.store.mirror import Put

POOL = Key("pool", "ns", "warm")


def synced(store: Store) -> None:
    for kind in ("pool", "batchsandbox", "poolpod"):
        opening = store.mirror.begin_list(kind)
        store.mirror.finish(kind, "1", opening.epoch)


def waiter(n: int, *, replicas: int = 1) -> Put:
    obj = {
        "metadata": {"name": f"s{n}", "namespace": "ns", "uid": f"s{n}-uid"},
        "spec": {"replicas": replicas},
    }
    line = ("wait", "ns/warm", float(n))
    return Put(name=f"ns/s{n}", version="5", uid=f"s{n}-uid", doc=orjson.dumps(obj), indexes=(line,))


def pods(store: Store, count: int) -> None:
    """A ledger of `count` free pods, all ready, rank = their number."""
    store.queue.add([Add(key=POOL)])
    token = uuid.uuid4().hex
    store.queue.begin(POOL, token)
    proof = Proof(POOL.member, token, "pool-uid")
    ledger = store.ledger("ns", "warm")
    ledger.begin_rebuild(proof, "e1")
    ledger.commit(proof, "e1", {f"p{n}": LedgerEntry(state="free", pod_uid=f"u{n}") for n in range(count)})
    store.queue.end(POOL, token, "done")
    facts = [PodFact("ns", f"p{n}", f"u{n}", "3", "Pool", "warm", "pool-uid", "Running", True) for n in range(count)]
    store.mirror.put(
        "poolpod",
        [
            Put(name=f.member, version="3", uid=f.uid, doc=encode(f), pool="ns/warm", rank=float(f.name[1:]))
            for f in facts
        ],
    )


def begin(store: Store, **more: Any) -> tuple[Any, hot.HotLoad | None]:
    store.queue.add([Add(key=POOL, reason="sandbox s0 added")])
    return hot.begin_and_load(store, POOL, uuid.uuid4().hex, **more)


def test_begin_brings_the_line_the_stock_the_pool_and_the_ledger(store: Store) -> None:
    synced(store)
    pods(store, 30)
    store.mirror.put("pool", [Put(name="ns/warm", version="2", uid="pool-uid", doc=b'{"a":1}')])
    store.mirror.put("batchsandbox", [waiter(n, replicas=2) for n in (3, 1, 2)])
    begun, load = begin(store)
    assert (begun.state, begun.reason) == ("run", "sandbox s0 added")
    assert load is not None and load.known and load.fresh(60_000)
    assert load.pool is not None and load.pool.doc == b'{"a":1}'
    assert [w.member for w in load.waiters] == ["ns/s1", "ns/s2", "ns/s3"] and load.line == 3
    assert load.waiters[0].obj["spec"] == {"replicas": 2} and load.waiters[0].version == "5"
    assert [s.pod for s in load.pods] == [f"p{n}" for n in range(14)] and load.stock == 30
    assert load.pods[3].fact.uid == "u3" and load.pods[3].rank == 3.0
    assert load.ledger.ready and load.ledger.epoch == "e1" and load.counts["free"] == 30 and load.todo == 0


def test_a_run_that_does_not_begin_loads_nothing(store: Store) -> None:
    assert hot.begin_and_load(store, POOL, "t1")[0].state == "clean"
    assert begin(store)[0].state == "run"
    begun, load = begin(store)
    assert (begun.state, load) == ("busy", None)


def test_a_repeated_begin_with_the_same_token_is_the_same_run(store: Store) -> None:
    store.queue.add([Add(key=POOL, deep=True)])
    assert hot.begin_and_load(store, POOL, "t1")[0].deep
    begun, load = hot.begin_and_load(store, POOL, "t1")
    assert begun.state == "run" and begun.deep and load is not None


def test_a_task_sent_by_hand_counts_as_an_event(store: Store) -> None:
    begun, load = hot.begin_and_load(store, POOL, "t1", hand=True, task_id="task-1")
    assert begun.state == "run" and begun.deep and load is not None


def test_a_pass_that_goes_on_loads_again_with_its_token_only(store: Store) -> None:
    store.queue.add([Add(key=POOL)])
    hot.begin_and_load(store, POOL, "t1")
    store.mirror.put("batchsandbox", [waiter(1)])
    assert [w.member for w in hot.load(store, POOL, "t1").waiters] == ["ns/s1"]
    with pytest.raises(Fenced):
        hot.load(store, POOL, "t2")


def test_an_unknown_mirror_and_an_absent_ledger_are_told_as_such(store: Store) -> None:
    _, load = begin(store)
    assert load is not None
    assert not load.known and load.age_ms == -1 and not load.fresh(10**9)
    assert load.pool is None and load.waiters == () and load.pods == () and not load.ledger.ready
    opening = store.mirror.begin_list("pool")
    store.mirror.finish("pool", "1", opening.epoch)
    token = store.redis.hget(keys.queue("pool", "tok"), POOL.member).decode()
    assert not hot.load(store, POOL, token).known


def test_the_limits_hold_and_the_rest_can_be_asked_for(store: Store) -> None:
    pods(store, 40)
    store.mirror.put("batchsandbox", [waiter(n, replicas=100) for n in range(5)])
    _, load = begin(store, waiters=2, pods=10)
    assert load is not None
    assert len(load.waiters) == 2 and load.line == 5 and len(load.pods) == 10 and load.stock == 40
    more = hot.more_pods(store, POOL, start=10, count=100)
    assert [s.pod for s in more] == [f"p{n}" for n in range(10, 40)]
    assert hot.more_pods(store, POOL, start=40, count=10) == ()


def test_only_pools_have_a_fast_pass(store: Store) -> None:
    with pytest.raises(InvalidInput, match="only pools"):
        hot.begin_and_load(store, Key("snapshot", "ns", "x"), "t")


def test_the_load_costs_the_same_for_a_large_pool(store: Store) -> None:
    def best() -> float:
        token = uuid.uuid4().hex
        store.queue.add([Add(key=POOL)])
        hot.begin_and_load(store, POOL, token)
        times = []
        for _ in range(60):
            started = time.perf_counter()
            hot.load(store, POOL, token)
            times.append(time.perf_counter() - started)
        store.queue.end(POOL, token, "done", progress=True)
        return min(times)

    store.mirror.put("batchsandbox", [waiter(1)])
    pods(store, 100)
    small = best()
    pods(store, 5000)
    assert best() < 3 * small + 0.0005


def test_a_look_without_a_token_reads_and_promises_nothing(store: Store) -> None:
    pods(store, 3)
    store.mirror.put("batchsandbox", [waiter(1)])
    load = hot.load(store, POOL, "")
    assert [w.member for w in load.waiters] == ["ns/s1"] and load.stock == 3
