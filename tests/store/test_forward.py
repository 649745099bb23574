"""Whoever moves the mirror forward enqueues, once, exactly what the move concerns: real Redis and routing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osb.api import batchsandbox, names
from osb.api.key import Key
from osb.decide.route import route
from osb.decide.route_raw import Context
from osb.errors import Gone
from osb.facts.adds import Add
from osb.facts.index import entry
from osb.facts.ledger import LedgerEntry
from osb.facts.pod import decode
from osb.store import keys
from osb.store.client import Store, connect
from osb.store.forward import Forwarder
from osb.store.ledger_types import Move
from tests.doubles.objects import (
    BOX,
    POOL,
    Page,
    box,
    cordoned,
    dirty,
    due,
    forget,
    grant,
    ledger_with,
    pod,
    pool,
    recorded,
)


@pytest.fixture
def forward(store: Store) -> Forwarder:
    return Forwarder(store)


# -- events ------------------------------------------------------------


def test_a_new_pooled_sandbox_is_mirrored_and_wakes_its_pool(store: Store, forward: Forwarder) -> None:
    assert forward.put("batchsandbox", [box()]).applied == 1
    assert dirty(store) == {POOL} and dirty(store, "batchsandbox") == set()
    assert store.mirror.index("batchsandbox", "wait", "ns/warm") == ["ns/s1"]


def test_the_same_event_from_a_second_watcher_enqueues_nothing(store: Store, forward: Forwarder) -> None:
    forward.put("batchsandbox", [box()])
    forget(store)
    summary = Forwarder(store).put("batchsandbox", [box()])
    assert (summary.applied, summary.old) == (0, 1)
    assert dirty(store) == set()


def test_a_version_that_is_no_number_never_enters_and_never_hides_a_later_one(store: Store, forward: Forwarder) -> None:
    odd = box()
    odd["metadata"]["resourceVersion"] = "zzzzzzzzzzzz"
    assert forward.put("batchsandbox", [odd]).applied == 0
    assert store.mirror.read("batchsandbox", ["ns/s1"]).entries["ns/s1"] is None
    assert forward.put("batchsandbox", [box(version=7)]).applied == 1
    assert forward.delete("batchsandbox", odd).applied == 0


def test_the_old_object_decides_what_a_change_concerns(store: Store, forward: Forwarder) -> None:
    forward.put("pool", [pool()])
    forget(store)
    forward.put("pool", [pool(2)])  # nothing that a pool reconcile reads
    assert dirty(store) == set()
    forward.put("pool", [pool(3, generation=2)])
    assert dirty(store) == {POOL}


def test_two_events_of_one_object_in_one_batch_are_both_routed(store: Store, forward: Forwarder) -> None:
    summary = forward.put("batchsandbox", [box(version=1), box(version=2, poolRef="other"), box(version=3)])
    assert summary.applied == 3
    assert dirty(store) == {POOL, Key("pool", "ns", "other")}


def test_pods_are_kept_as_facts_with_their_place_in_the_stock(store: Store, forward: Forwarder) -> None:
    ledger_with(store, {"p1": LedgerEntry(state="free", pod_uid="p1-uid")})
    forward.put("poolpod", [pod(version=1)])
    assert store.ledger("ns", "warm").available() == []
    forward.put("poolpod", [pod(version=2, ready=True)])
    assert [name for name, _ in store.ledger("ns", "warm").available()] == ["p1"]
    entry = store.mirror.read("poolpod", ["ns/p1"]).entries["ns/p1"]
    assert entry is not None and decode(entry.doc).ready
    forward.put("poolpod", [pod(version=3, ready=True, labels={names.LABEL_SUSPECT: "x"})])
    assert store.ledger("ns", "warm").available() == []


def test_a_pod_that_is_listed_but_not_controlled_by_a_pool_is_not_stock(store: Store, forward: Forwarder) -> None:
    foreign = pod(ready=True)
    foreign["metadata"]["ownerReferences"][0]["controller"] = False
    forward.put("poolpod", [foreign])
    assert store.redis.hgetall(keys.RANK) == {} and dirty(store) == set()


def test_a_pod_event_wakes_the_sandbox_that_holds_it(store: Store, forward: Forwarder) -> None:
    forward.put("batchsandbox", [box(annotations=recorded("p1"))])
    forward.put("poolpod", [pod(version=5, ready=True)])
    forget(store)
    forward.delete("poolpod", pod(version=6, ready=True))
    assert dirty(store, "batchsandbox") == {BOX} and dirty(store) == {POOL}


def test_a_deleted_object_wakes_what_it_concerned_even_if_it_was_never_seen(store: Store, forward: Forwarder) -> None:
    assert forward.delete("batchsandbox", box(version=9)).applied == 1
    assert POOL in dirty(store)
    assert forward.put("batchsandbox", [box(version=8)]).old == 1


def test_a_new_pool_wakes_the_sandboxes_that_wait_for_any(store: Store, forward: Forwarder) -> None:
    forward.put("batchsandbox", [box(poolRef="*")])
    forget(store)
    forward.put("pool", [pool()])
    assert dirty(store, "batchsandbox") == {BOX}


# -- nodes ------------------------------------------------------------


OTHER = Key("pool", "ns2", "cold")


@pytest.fixture
def pools(store: Store, forward: Forwarder) -> Iterator[Store]:
    """Two pools at rest, in two namespaces."""
    second = pool()
    second["metadata"] |= {"namespace": "ns2", "name": "cold"}
    forward.put("pool", [pool(), second])
    forget(store, POOL, OTHER)
    yield store


def test_a_cordon_and_its_end_wake_every_pool_for_a_full_pass(pools: Store, forward: Forwarder) -> None:
    for news, reason in (
        (lambda: forward.put("node", [cordoned()]), "node n1 is cordoned"),
        (lambda: forward.delete("node", cordoned(version=5)), "node n1 is no longer cordoned"),
    ):
        assert news().applied == 1
        assert dirty(pools) == {POOL, OTHER} and pools.queue.stats("pool").dirty_later == 0
        begun = pools.queue.begin(POOL, "t")
        assert begun.deep and begun.reason == reason
        forget(pools, POOL, OTHER)
    assert pools.mirror.names("node") == []


def test_a_heartbeat_of_a_cordoned_node_wakes_nobody(pools: Store, forward: Forwarder) -> None:
    forward.put("node", [cordoned()])
    forget(pools, POOL, OTHER)
    assert forward.put("node", [{**cordoned(version=2), "status": {"conditions": []}}]).applied == 1
    assert dirty(pools) == set()


def test_a_watcher_that_lags_does_not_undo_what_another_told(pools: Store, forward: Forwarder) -> None:
    # Given a node that was cordoned, freed and cordoned again, as one watcher has told
    forward.put("node", [cordoned(version=3)])
    forward.delete("node", cordoned(version=6))
    forward.put("node", [cordoned(version=9)])
    forget(pools, POOL, OTHER)
    # When another tells the same, later
    late = Forwarder(pools)
    late.put("node", [cordoned(version=3)])
    late.delete("node", cordoned(version=6))
    # Then nothing moves
    assert pools.mirror.names("node") == ["/n1"] and dirty(pools) == set()
    # and neither after the node is free for good
    forward.delete("node", cordoned(version=12))
    forget(pools, POOL, OTHER)
    late.put("node", [cordoned(version=9)])
    assert pools.mirror.names("node") == [] and dirty(pools) == set()


def test_many_nodes_in_one_batch_wake_each_pool_once(pools: Store, forward: Forwarder) -> None:
    sent = pools.redis.llen("osb.pool.now")
    before = pools.redis.info("commandstats").get("cmdstat_hkeys", {}).get("calls", 0)
    forward.put("node", [cordoned(f"n{i}", i + 1) for i in range(50)])
    assert dirty(pools) == {POOL, OTHER} and pools.redis.llen("osb.pool.now") == sent + 2
    assert pools.redis.info("commandstats")["cmdstat_hkeys"]["calls"] == before + 1


# -- own writes ------------------------------------------------------------


def test_a_record_that_says_what_the_ledger_says_is_no_news(store: Store, forward: Forwarder) -> None:
    proof = ledger_with(store, {"p1": LedgerEntry(state="free", pod_uid="p1-uid")})
    forward.put("batchsandbox", [box()])
    assert store.ledger("ns", "warm").allocate(proof, "op", [grant()]).ok
    forget(store)
    # When the watch shows our own patch before its answer was read (the entry is still a reservation).
    forward.put("batchsandbox", [box(version=2, annotations=recorded("p1"))])
    assert dirty(store) == set() and dirty(store, "batchsandbox") == set()


@pytest.mark.parametrize(
    ("annotations", "news"),
    [
        (recorded("p1", "p2"), False),
        (recorded("p1", "p2", released=("p2",)), True),  # an acknowledgement is news for the sandbox
        (recorded("p1"), True),
        (recorded("p1", "p9"), True),
        (recorded("p2", "p1"), True),
        (recorded("p1", "p2", "p3"), True),
        ({}, True),
        ({names.ALLOC_STATUS: "{nonsense"}, True),
    ],
    ids=["same", "acknowledged", "one lost", "forged", "swapped", "one more", "removed", "unreadable"],
)
def test_a_record_that_differs_from_the_ledger_is_news(
    store: Store, forward: Forwarder, annotations: dict[str, str], news: bool
) -> None:
    proof = ledger_with(store, {name: LedgerEntry(state="free", pod_uid=f"{name}-uid") for name in ("p1", "p2")})
    forward.put("batchsandbox", [box(replicas=2, annotations={names.ALLOC_STATUS: '{"pods":[],"poolRef":"warm"}'})])
    store.ledger("ns", "warm").allocate(proof, "op", [grant("p1", 0), grant("p2", 1)])
    moves = [Move(what="settle", pod=p, pod_uid=f"{p}-uid", from_state="resv", box_uid="s1-uid") for p in ("p1", "p2")]
    store.ledger("ns", "warm").move(proof, moves)
    forget(store)
    forward.put("batchsandbox", [box(version=2, replicas=2, annotations=annotations)])
    assert bool(dirty(store) | dirty(store, "batchsandbox")) == news


def test_an_answer_to_a_versioned_write_leaves_the_own_key_out(store: Store, forward: Forwarder) -> None:
    forward.put("pool", [pool()])
    forget(store)
    forward.put("pool", [pool(2, generation=2)], own=POOL, versioned=True)
    assert dirty(store) == set()


def test_an_answer_to_a_write_without_version_may_hide_a_foreign_change(store: Store, forward: Forwarder) -> None:
    forward.put("pool", [pool()])
    forget(store)
    forward.put("pool", [pool(2, generation=2)], own=POOL)
    assert dirty(store) == {POOL}


def test_another_key_is_told_whatever_the_write_carried(store: Store, forward: Forwarder) -> None:
    forward.put("batchsandbox", [box(annotations=recorded("p1"))])
    forget(store)
    forward.put("poolpod", [pod(ready=True)], own=POOL, versioned=True)
    assert dirty(store) == set() and due(store) == set()
    assert dirty(store, "batchsandbox") == {BOX}


def test_the_due_time_of_the_own_key_is_kept(store: Store, forward: Forwarder) -> None:
    expiring = box(poolRef="", expireTime="2030-01-01T00:00:00Z")
    forward.put("batchsandbox", [expiring], own=BOX, versioned=True)
    assert dirty(store, "batchsandbox") == set() and due(store, "batchsandbox") == {BOX}


def test_own_answers_prove_nothing_about_the_stream(store: Store, forward: Forwarder) -> None:
    forward.put("pool", [pool()], own=POOL, versioned=True)
    assert store.mirror.age_ms("pool") == -1
    forward.put("pool", [pool(2)])
    assert store.mirror.age_ms("pool") >= 0


# -- two writers ------------------------------------------------------------


def test_an_object_that_moved_meanwhile_is_routed_again_from_what_it_is_now(store: Store) -> None:
    """Between the look and the put another watcher shows an older state that this route had not seen."""
    raced: list[bool] = []

    def route(kind: str, old: Any, new: Any, ctx: Context) -> tuple[Add, ...]:
        if not raced:
            raced.append(True)
            other = Forwarder(store, route=lambda *_: ())
            other.put("pool", [pool(2, generation=2)])
        generation = old["metadata"]["generation"] if old else 0
        return (Add(key=Key("pool", "ns", f"from-{generation}")),)

    forward = Forwarder(store, route=route)
    assert forward.put("pool", [pool(3, generation=3)]).applied == 1
    assert dirty(store) == {Key("pool", "ns", "from-2")}


def test_an_object_that_never_stands_still_is_a_fault_and_not_an_endless_loop(store: Store) -> None:
    version = iter(range(2, 1000))

    def route(kind: str, old: Any, new: Any, ctx: Context) -> tuple[Add, ...]:
        Forwarder(store, route=lambda *_: ()).put("pool", [pool(next(version))])
        return ()

    with pytest.raises(Gone, match="never stood still"):
        Forwarder(store, route=route).put("pool", [pool(5000)])


def test_many_watchers_and_a_relist_at_once_end_in_the_newest_state(redis_url: str, store: Store) -> None:
    def run(work: Callable[[Forwarder], None]) -> threading.Thread:
        def body() -> None:
            own = connect(redis_url)
            work(Forwarder(own))
            own.close()

        thread = threading.Thread(target=body)
        thread.start()
        return thread

    def events(offset: int) -> Callable[[Forwarder], None]:
        def work(forward: Forwarder) -> None:
            for version in range(10 + offset, 210, 3):
                forward.put("poolpod", [pod(f"p{n}", version, ready=version % 2 == 0) for n in range(8)])

        return work

    def lists(forward: Forwarder) -> None:
        for version in range(20, 200, 30):
            forward.relist("poolpod", iter([Page([pod(f"p{n}", version - 5) for n in range(8)], str(version))]))

    threads = [run(events(0)), run(events(1)), run(events(2)), run(lists)]
    for thread in threads:
        thread.join()
    entries = store.mirror.read("poolpod", [f"ns/p{n}" for n in range(8)]).entries
    assert [entry and entry.version for entry in entries.values()] == ["209"] * 8
    assert store.redis.hgetall(keys.RANK) == {}  # 209 is odd: nobody is ready
    assert store.mirror.index("poolpod", "owner", "warm-uid") == sorted(entries)


# -- what our own code cannot read ------------------------------------------------------------


def refusing(name: str) -> Callable[..., Any]:
    """`entry` and `route` as they would fail for one object."""

    def made(work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(kind: str, *objs: Any) -> Any:
            if any(isinstance(obj, dict) and obj["metadata"]["name"] == name for obj in objs):
                raise AttributeError("'str' object has no attribute 'get'")
            return work(kind, *objs)

        return wrapped

    return made


def test_an_object_that_cannot_be_read_is_left_out_and_the_batch_goes_on(store: Store) -> None:
    forward = Forwarder(store, entry=refusing("odd")(entry))
    summary = forward.put("batchsandbox", [box("odd"), box("s1")])
    assert summary.applied == 1 and store.mirror.names("batchsandbox") == ["ns/s1"]
    assert dirty(store) == {POOL}
    assert dirty(store, "batchsandbox") == {Key("batchsandbox", "ns", "odd")}, "its own pass says what is wrong"
    assert forward.relist("batchsandbox", [Page([box("odd", 7), box("s1", 8)], "9")]) == "9"
    assert store.mirror.names("batchsandbox") == ["ns/s1"]


def test_a_change_that_cannot_be_judged_wakes_its_own_object(store: Store) -> None:
    forward = Forwarder(store, route=refusing("s1")(route))
    assert forward.put("batchsandbox", [box("s1"), box("s2")]).applied == 2
    assert dirty(store, "batchsandbox") == {BOX} and dirty(store) == {POOL}


def test_a_sandbox_that_cannot_be_parsed_wakes_itself_and_stops_no_batch(
    store: Store, forward: Forwarder, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = batchsandbox.parse
    monkeypatch.setattr(batchsandbox, "parse", lambda obj: parse(obj) if obj["metadata"]["name"] != "odd" else 1 // 0)
    assert forward.put("batchsandbox", [box("odd"), box("s1")]).applied == 1
    assert dirty(store, "batchsandbox") == {Key("batchsandbox", "ns", "odd")} and dirty(store) == {POOL}
