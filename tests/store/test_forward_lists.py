"""A list replaces what was missed, and after a loss tells everybody. Real Redis, real routing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from osb.api.key import Key
from osb.errors import Gone
from osb.store import keys
from osb.store.client import Store
from osb.store.forward import Forwarder
from tests.doubles.objects import BOX, POOL, Page, box, cordoned, dirty, due, forget, ledger_with, pod, pool


@pytest.fixture
def forward(store: Store) -> Forwarder:
    return Forwarder(store)


def test_a_first_list_enqueues_every_key_deep_and_behind_live_work(store: Store, forward: Forwarder) -> None:
    assert forward.relist("pool", [Page([pool()], "10")]) == "10"
    assert forward.relist("batchsandbox", [Page([box()], "11"), Page([box("s2")], "11")]) == "11"
    assert store.mirror.synced("pool") and store.mirror.synced("batchsandbox")
    assert dirty(store) == {POOL} and dirty(store, "batchsandbox") == {BOX, Key("batchsandbox", "ns", "s2")}
    assert store.queue.stats("pool").dirty_later == 1 and store.queue.stats("pool").dirty_now == 0
    assert store.queue.begin(POOL, "t").deep


def test_a_list_after_a_restart_enqueues_every_key_although_nothing_moved(store: Store, forward: Forwarder) -> None:
    forward.relist("pool", [Page([pool()], "10")])
    forget(store)
    store.redis.hset(keys.mirror("pool", "meta"), "boot", "another process")
    assert forward.put("pool", [pool()]).unsynced
    forward.relist("pool", [Page([pool()], "10")])
    assert dirty(store) == {POOL}


def test_pods_listed_after_a_loss_wake_their_pools_and_keep_due_times(store: Store, forward: Forwarder) -> None:
    forward.relist("poolpod", [Page([pod(ready=True)], "10")])
    assert dirty(store) == {POOL} and store.queue.begin(POOL, "t").deep
    forward.relist("batchsandbox", [Page([box(expireTime="2030-01-01T00:00:00Z")], "10")])
    assert due(store, "batchsandbox") == {BOX}


def test_a_later_list_enqueues_only_what_changed(store: Store, forward: Forwarder) -> None:
    forward.relist("batchsandbox", [Page([box(), box("s2"), box("s3")], "10")])
    forget(store, POOL, *(Key("batchsandbox", "ns", f"s{n}") for n in (1, 2, 3)))
    forward.relist("batchsandbox", [Page([box(), box("s2", 12, poolRef="other")], "20")])
    assert sorted(store.mirror.names("batchsandbox")) == ["ns/s1", "ns/s2"]
    assert dirty(store) == {POOL, Key("pool", "ns", "other")}
    assert Key("batchsandbox", "ns", "s3") in dirty(store, "batchsandbox")  # gone
    assert BOX not in dirty(store, "batchsandbox")


def test_a_list_of_cordoned_nodes_wakes_the_pools_when_one_came_or_went(store: Store, forward: Forwarder) -> None:
    forward.relist("pool", [Page([pool()], "10")])
    # The first list, and one after a loss: behind live work
    forget(store, POOL)
    forward.relist("node", [Page([cordoned("n1", 3), cordoned("n2", 4)], "10")])
    assert dirty(store) == {POOL} and store.queue.stats("pool").dirty_later == 1
    assert store.queue.begin(POOL, "t").deep
    # A later one that has nothing new
    forget(store, POOL)
    forward.relist("node", [Page([cordoned("n1", 3), cordoned("n2", 14)], "20")])
    assert dirty(store) == set()
    # And one in which a node is free
    forward.relist("node", [Page([cordoned("n1", 3)], "30")])
    assert dirty(store) == {POOL} and store.queue.stats("pool").dirty_later == 0
    assert store.mirror.names("node") == ["/n1"]


def test_a_second_watchers_list_after_a_loss_wakes_the_pools_too(store: Store, forward: Forwarder) -> None:
    # Given two watchers that list anew: the other has put the node already, and the pool has looked since
    forward.relist("pool", [Page([pool()], "10")])

    def pages() -> Iterator[Page]:
        Forwarder(store).put("node", [cordoned("n1", 3)])
        forget(store, POOL)
        yield Page([cordoned("n1", 3)], "10")

    # When the slower one's list has nothing that is newer
    forward.relist("node", pages())
    # Then the pool is asked all the same: after a loss nobody knows which marks there were
    assert dirty(store) == {POOL} and store.queue.begin(POOL, "t").deep


def test_a_cordoned_node_without_any_pool_leaves_nothing_on_the_queue(store: Store, forward: Forwarder) -> None:
    forward.relist("node", [Page([cordoned("n1", 3)], "10")])
    assert store.redis.keys("osb:q:*") == [] and dirty(store) == set()


def test_what_arrives_while_the_list_runs_survives_it(store: Store, forward: Forwarder) -> None:
    other = Forwarder(store)

    def pages() -> Iterator[Page]:
        yield Page([box("s1")], "10")
        other.put("batchsandbox", [box("s2", 12)])
        yield Page([box("s3")], "10")

    forward.relist("batchsandbox", pages())
    assert sorted(store.mirror.names("batchsandbox")) == ["ns/s1", "ns/s2", "ns/s3"]


def test_a_flush_while_the_list_runs_makes_it_start_over(store: Store, forward: Forwarder) -> None:
    def pages() -> Iterator[Page]:
        yield Page([box("s1")], "10")
        store.redis.flushall()
        yield Page([box("s2")], "10")

    with pytest.raises(Gone, match="lost"):
        forward.relist("batchsandbox", pages())
    assert not store.mirror.synced("batchsandbox")
    forward.relist("batchsandbox", [Page([box("s1"), box("s2")], "10")])
    assert store.mirror.synced("batchsandbox") and store.mirror.size("batchsandbox") == 2


def test_lists_of_several_namespaces_count_from_the_oldest(store: Store, forward: Forwarder) -> None:
    assert forward.relist("pool", [Page([pool()], "120"), Page([], "99")]) == "99"
    assert store.redis.hget(keys.mirror("pool", "meta"), "floor") == b"99"


def test_a_list_without_any_page_is_no_empty_cluster(store: Store, forward: Forwarder) -> None:
    forward.put("pool", [pool()])
    with pytest.raises(Gone):
        forward.relist("pool", [])
    assert store.mirror.size("pool") == 1 and not store.mirror.synced("pool")


def test_a_restored_cluster_is_noticed_and_the_next_list_starts_from_nothing(store: Store, forward: Forwarder) -> None:
    forward.relist("pool", [Page([pool(90)], "100")])
    ledger_with(store, {})
    forget(store)
    with pytest.raises(Gone, match="went back"):
        forward.relist("pool", [Page([pool(40)], "50")])
    assert not store.ledger("ns", "warm").meta().ready
    forward.relist("pool", [Page([pool(40)], "50")])
    entry = store.mirror.read("pool", ["ns/warm"]).entries["ns/warm"]
    assert entry is not None and entry.version == "40"
    assert dirty(store) == {POOL}
