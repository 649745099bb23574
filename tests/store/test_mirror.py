"""The mirror moves forward and never back, and knows when it knows nothing. Real Redis, several clients."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest

from osb.api.key import Key
from osb.facts.adds import Add
from osb.local.redis import EmbeddedRedis
from osb.store import keys
from osb.store.client import Store, connect
from osb.store.mirror import Delete, Mirror, Put
from tests.doubles.mutant import Mutant

KIND = "batchsandbox"


def put(name: str, version: int | str, expected: int | str = "", **more: Any) -> Put:
    more.setdefault("uid", "u1")
    more.setdefault("doc", f"doc {version}".encode())
    return Put(name=name, version=str(version), expected=str(expected), **more)


def gone(name: str, version: int | str, expected: int | str = "", *adds: Add) -> Delete:
    return Delete(name=name, version=str(version), expected=str(expected), adds=adds)


def pool_key(name: str = "warm") -> Key:
    return Key("pool", "ns", name)


@pytest.fixture
def mirror(store: Store) -> Mirror:
    return store.mirror


def listed(mirror: Mirror, version: int | str, *items: Put, absent: tuple[Delete, ...] = ()) -> str:
    opening = mirror.begin_list(KIND)
    mirror.put(KIND, items)
    mirror.prune(KIND, str(version), opening.epoch, absent)
    return mirror.finish(KIND, str(version), opening.epoch, floor=opening.floor)


def states(moved: Any) -> list[str]:
    return [answer.state for answer in moved.answers]


def version_of(mirror: Mirror, name: str) -> str | None:
    entry = mirror.read(KIND, [name]).entries[name]
    return entry.version if entry else None


# -- forward, never back ------------------------------------------------------------


def test_a_newer_version_replaces_and_an_older_or_equal_one_does_not(mirror: Mirror) -> None:
    assert states(mirror.put(KIND, [put("ns/a", 9)])) == ["applied"]
    assert states(mirror.put(KIND, [put("ns/a", 10, 9)])) == ["applied"]
    assert states(mirror.put(KIND, [put("ns/a", 9, 10), put("ns/a", 10, 10)])) == ["old", "old"]
    assert version_of(mirror, "ns/a") == "10"


def test_versions_beyond_the_precision_of_a_float_are_told_apart(mirror: Mirror) -> None:
    mirror.put(KIND, [put("ns/a", 9007199254740993)])
    assert states(mirror.put(KIND, [put("ns/a", 9007199254740992, 9007199254740993)])) == ["old"]
    assert states(mirror.put(KIND, [put("ns/a", 9007199254740994, 9007199254740993)])) == ["applied"]


def test_a_put_whose_keys_were_computed_from_another_entry_is_asked_to_repeat(mirror: Mirror) -> None:
    mirror.put(KIND, [put("ns/a", 5, uid="u9", doc=b"five")])
    answer = mirror.put(KIND, [put("ns/a", 6)]).answers[0]
    assert answer.state == "retry"
    assert answer.current is not None
    assert (answer.current.version, answer.current.uid, answer.current.doc) == ("5", "u9", b"five")
    assert states(mirror.put(KIND, [put("ns/a", 6, 5)])) == ["applied"]


def test_a_put_that_expects_an_entry_where_there_is_none_is_asked_to_repeat(mirror: Mirror) -> None:
    answer = mirror.put(KIND, [put("ns/a", 6, 5)]).answers[0]
    assert (answer.state, answer.current) == ("retry", None)


def test_binary_documents_and_empty_ones_come_back_as_they_went_in(mirror: Mirror) -> None:
    mirror.put(KIND, [put("ns/a", 1, doc=bytes(range(256))), put("ns/b", 1, doc=b"")])
    entries = mirror.read(KIND, ["ns/a", "ns/b", "ns/c"]).entries
    assert entries["ns/a"] is not None and entries["ns/a"].doc == bytes(range(256))
    assert entries["ns/b"] is not None and entries["ns/b"].doc == b""
    assert entries["ns/c"] is None


def test_what_is_put_and_what_it_concerns_are_marked_in_one_step(store: Store, mirror: Mirror) -> None:
    add = Add(key=pool_key(), reason="sandbox a added")
    mirror.put(KIND, [put("ns/a", 5, adds=(add,))])
    assert store.queue.stats("pool").dirty_now == 1
    assert store.redis.llen("osb.pool.now") == 1


def test_a_put_that_is_not_applied_enqueues_nothing(store: Store, mirror: Mirror) -> None:
    mirror.put(KIND, [put("ns/a", 5)])
    add = Add(key=pool_key())
    mirror.put(KIND, [put("ns/a", 5, 5, adds=(add,)), put("ns/a", 6, 4, adds=(add,))])
    mirror.delete(KIND, [gone("ns/a", 4, 5, add), gone("ns/a", 7, 6, add)])
    assert store.queue.stats("pool").dirty_now == 0


# -- deletions ------------------------------------------------------------


def test_a_late_put_does_not_revive_a_deleted_object(mirror: Mirror) -> None:
    mirror.put(KIND, [put("ns/a", 5)])
    assert states(mirror.delete(KIND, [gone("ns/a", 8, 5)])) == ["applied"]
    assert states(mirror.put(KIND, [put("ns/a", 7)])) == ["old"]
    assert states(mirror.put(KIND, [put("ns/a", 9, uid="u2")])) == ["applied"]


def test_a_late_delete_does_not_take_a_later_incarnation(mirror: Mirror) -> None:
    mirror.put(KIND, [put("ns/a", 9, uid="u2")])
    assert states(mirror.delete(KIND, [gone("ns/a", 8, 9)])) == ["old"]
    assert version_of(mirror, "ns/a") == "9"


def test_the_deletion_of_an_object_that_was_never_seen_is_remembered(store: Store, mirror: Mirror) -> None:
    add = Add(key=pool_key())
    assert states(mirror.delete(KIND, [gone("ns/a", 8, "", add)])) == ["applied"]
    assert states(mirror.delete(KIND, [gone("ns/a", 8)])) == ["old"]
    assert states(mirror.put(KIND, [put("ns/a", 7)])) == ["old"]
    assert store.queue.stats("pool").dirty_now == 1


def test_a_tombstone_lives_until_a_finished_list_passes_it_however_long_that_takes(
    store: Store, mirror: Mirror
) -> None:
    listed(mirror, 3, put("ns/a", 2))
    mirror.delete(KIND, [gone("ns/a", 8, 2), gone("ns/b", 20)])
    assert store.redis.ttl(keys.mirror(KIND, "tomb")) == -1
    assert listed(mirror, 10) == "done"
    assert store.redis.hgetall(keys.mirror(KIND, "tomb")) == {b"ns/b": b"20"}
    # And the floor goes on where the tombstone went.
    assert states(mirror.put(KIND, [put("ns/a", 7)])) == ["old"]


def test_a_name_absent_from_a_finished_list_is_dead_up_to_its_version(mirror: Mirror) -> None:
    listed(mirror, 10)
    assert states(mirror.put(KIND, [put("ns/a", 10), put("ns/b", 11)])) == ["old", "applied"]


# -- lists ------------------------------------------------------------


def test_a_prune_takes_what_the_list_had_not_and_spares_what_is_newer(store: Store, mirror: Mirror) -> None:
    mirror.put(KIND, [put("ns/a", 5), put("ns/b", 12)])
    add = Add(key=pool_key())
    opening = mirror.begin_list(KIND)
    moved = mirror.prune(KIND, "10", opening.epoch, [gone("ns/a", 10, 5, add), gone("ns/b", 10, 12)])
    assert states(moved) == ["applied", "old"]
    assert version_of(mirror, "ns/a") is None and version_of(mirror, "ns/b") == "12"
    assert store.queue.stats("pool").dirty_now == 1


def test_a_prune_computed_from_another_entry_is_asked_to_repeat(mirror: Mirror) -> None:
    mirror.put(KIND, [put("ns/a", 5)])
    opening = mirror.begin_list(KIND)
    mirror.put(KIND, [put("ns/a", 6, 5)])
    assert states(mirror.prune(KIND, "10", opening.epoch, [gone("ns/a", 10, 5)])) == ["retry"]


def test_the_mirror_is_unknown_until_a_list_has_finished(mirror: Mirror) -> None:
    assert not mirror.read(KIND, ["ns/a"]).known
    assert mirror.put(KIND, [put("ns/a", 5)]).unsynced
    assert listed(mirror, 10) == "done"
    assert mirror.synced(KIND)
    assert not mirror.put(KIND, [put("ns/a", 11, 5)]).unsynced


def test_a_flush_makes_the_mirror_unknown_and_every_put_says_so(store: Store, mirror: Mirror) -> None:
    listed(mirror, 10, put("ns/a", 5))
    store.redis.flushall()
    assert not mirror.read(KIND, ["ns/a"]).known
    assert mirror.put(KIND, [put("ns/b", 11)]).unsynced
    assert mirror.delete(KIND, [gone("ns/c", 11)]).unsynced


def test_a_list_begun_before_a_flush_does_not_end_the_unknown_state(store: Store, mirror: Mirror) -> None:
    old = mirror.begin_list(KIND)
    store.redis.flushall()
    mirror.begin_list(KIND)  # another watcher noticed and lists again
    assert mirror.finish(KIND, "10", old.epoch) == "refused"
    assert mirror.prune(KIND, "10", old.epoch, [gone("ns/a", 10)]).unsynced
    assert not mirror.synced(KIND)


def test_two_lists_at_once_both_count_and_the_floor_is_the_higher(mirror: Mirror) -> None:
    one, two = mirror.begin_list(KIND), mirror.begin_list(KIND)
    assert one.epoch == two.epoch
    assert mirror.finish(KIND, "12", two.epoch, floor=two.floor) == "done"
    assert mirror.finish(KIND, "10", one.epoch, floor=one.floor) == "done"
    assert states(mirror.put(KIND, [put("ns/a", 11)])) == ["old"]


def test_a_list_below_the_floor_means_that_the_clusters_store_went_back(store: Store, mirror: Mirror) -> None:
    listed(mirror, 100, put("ns/a", 90, indexes=(("pool", "ns/warm", 1.0),)))
    store.redis.sadd(keys.LEDGERS, "ns/warm")
    store.redis.hset(keys.ledger("ns/warm", "meta"), "state", "ready")
    assert listed(mirror, 50) == "older"
    # When the kind is reset, then nothing of it is left and no ledger is believed.
    assert mirror.reset(KIND) == 1
    assert mirror.names(KIND) == [] and mirror.index(KIND, "pool", "ns/warm") == []
    assert not mirror.synced(KIND)
    assert store.redis.hget(keys.ledger("ns/warm", "meta"), "state") == b"lost"
    assert listed(mirror, 50, put("ns/a", 40)) == "done"


def test_a_restarted_redis_with_all_its_data_is_unknown(redis_server: EmbeddedRedis, store: Store) -> None:
    listed(store.mirror, 10, put("ns/a", 5))
    redis_server.stop()
    redis_server.start()
    again = connect(redis_server.url)
    try:
        reading = again.mirror.read(KIND, ["ns/a"])
        assert not reading.known
        assert again.mirror.put(KIND, [put("ns/b", 11)]).unsynced
        opening = again.mirror.begin_list(KIND)
        assert (opening.known, opening.floor) == (False, "0")
    finally:
        again.close()


# -- indexes and readings ------------------------------------------------------------


def test_indexes_follow_the_object(mirror: Mirror) -> None:
    mirror.put(KIND, [put("ns/a", 1, indexes=(("pool", "ns/x", 5.0), ("wait", "ns/x", 5.0)))])
    mirror.put(KIND, [put("ns/b", 1, indexes=(("pool", "ns/x", 3.0),))])
    assert mirror.index(KIND, "pool", "ns/x") == ["ns/b", "ns/a"]
    mirror.put(KIND, [put("ns/a", 2, 1, uid="u2", indexes=(("pool", "ns/x", 1.0),))])
    assert mirror.index(KIND, "pool", "ns/x") == ["ns/a", "ns/b"]
    assert mirror.index(KIND, "wait", "ns/x") == []
    mirror.delete(KIND, [gone("ns/a", 3, 2)])
    assert mirror.index(KIND, "pool", "ns/x") == ["ns/b"]
    assert mirror.count(KIND, "pool", "ns/x") == 1


def test_load_gives_the_objects_of_an_index_in_its_order(mirror: Mirror) -> None:
    mirror.put(KIND, [put(f"ns/s{n}", 1, indexes=(("wait", "ns/x", float(-n)),)) for n in range(5)])
    assert list(mirror.load(KIND, "wait", "ns/x").entries) == [f"ns/s{n}" for n in (4, 3, 2, 1, 0)]
    assert list(mirror.load(KIND, "wait", "ns/x", limit=2).entries) == ["ns/s4", "ns/s3"]
    assert mirror.load(KIND, "wait", "ns/x", limit=0).entries == {}
    assert mirror.load(KIND, "wait", "ns/other").entries == {}


def test_thousands_of_objects_are_put_and_loaded_in_few_trips(mirror: Mirror) -> None:
    mirror.put(KIND, [put(f"ns/s{n}", 1, indexes=(("pool", "ns/x", float(n)),)) for n in range(3000)])
    assert mirror.size(KIND) == 3000
    assert len(mirror.load(KIND, "pool", "ns/x").entries) == 3000


def test_the_age_counts_from_the_last_sign_of_life_of_the_stream(mirror: Mirror, clock: Any) -> None:
    assert mirror.age_ms(KIND) == -1 and not mirror.read(KIND, []).fresh(1000)
    mirror.touch(KIND)
    clock.forward(3)
    assert mirror.age_ms(KIND) == 3000
    mirror.put(KIND, [put("ns/a", 1)], fresh=False)  # our own answer says nothing about the stream
    assert mirror.age_ms(KIND) == 3000
    mirror.put(KIND, [put("ns/a", 2, 1)])
    assert mirror.age_ms(KIND) == 0


def test_the_sandboxes_with_tasks_are_found_in_all_namespaces(mirror: Mirror) -> None:
    mirror.put(KIND, [put("a/x", 1, indexes=(("tasks", "a", 1.0),)), put("b/y", 1), put("b/z", 1)])
    mirror.put(KIND, [put("b/z", 2, 1, indexes=(("tasks", "b", 1.0),))])
    assert mirror.tasked() == {"a/x", "b/z"}


# -- the stock of a pool ------------------------------------------------------------


def pod(version: int, expected: int | str = "", *, rank: float | None = None, pool: str = "ns/warm") -> Put:
    return put("ns/p1", version, expected, uid="pod-1", pool=pool, rank=rank)


def test_the_stock_of_the_ledger_follows_the_readiness_of_free_pods(store: Store, mirror: Mirror) -> None:
    avail = keys.ledger("ns/warm", "avail")
    store.redis.hset(keys.ledger("ns/warm", "pods"), "p1", "free|pod-1|||-1|0||")
    mirror.put("poolpod", [pod(1)])
    assert store.redis.zrange(avail, 0, -1) == []
    mirror.put("poolpod", [pod(2, 1, rank=7.0)])
    assert store.redis.zrange(avail, 0, -1, withscores=True) == [(b"p1", 7.0)]
    mirror.put("poolpod", [pod(3, 2)])
    assert store.redis.zrange(avail, 0, -1) == [] and store.redis.hgetall(keys.RANK) == {}
    mirror.put("poolpod", [pod(4, 3, rank=8.0)])
    mirror.delete("poolpod", [gone("ns/p1", 5, 4)])
    assert store.redis.zrange(avail, 0, -1) == [] and store.redis.hgetall(keys.RANK) == {}


@pytest.mark.parametrize("entry", [None, "held|pod-1|s|b|0|1||", "free|other|||-1|0||", "dirty|pod-1|||-1|0||"])
def test_only_a_free_pod_of_the_same_uid_enters_the_stock(store: Store, mirror: Mirror, entry: str | None) -> None:
    if entry:
        store.redis.hset(keys.ledger("ns/warm", "pods"), "p1", entry)
    mirror.put("poolpod", [pod(1, rank=7.0)])
    assert store.redis.zrange(keys.ledger("ns/warm", "avail"), 0, -1) == []


def test_a_pod_that_changes_its_owner_leaves_the_first_pools_stock(store: Store, mirror: Mirror) -> None:
    for name in ("warm", "other"):
        store.redis.hset(keys.ledger(f"ns/{name}", "pods"), "p1", "free|pod-1|||-1|0||")
    mirror.put("poolpod", [pod(1, rank=7.0)])
    mirror.put("poolpod", [pod(2, 1, rank=7.0, pool="ns/other")])
    assert store.redis.zrange(keys.ledger("ns/warm", "avail"), 0, -1) == []
    assert store.redis.zrange(keys.ledger("ns/other", "avail"), 0, -1) == [b"p1"]
    mirror.put("poolpod", [pod(3, 2, rank=7.0, pool="")])
    assert store.redis.zrange(keys.ledger("ns/other", "avail"), 0, -1) == []


# -- several writers ------------------------------------------------------------


def test_many_writers_of_one_object_leave_the_newest_and_never_show_an_older_one(redis_url: str, store: Store) -> None:
    """Watchers and workers put and delete the same names in any order; readers never see a version fall."""
    stop, falls = threading.Event(), list[str]()

    def write(offset: int) -> None:
        own = connect(redis_url)
        for version in range(1 + offset, 400, 4):
            expected, again = "", True
            while again:
                answer = own.mirror.put(KIND, [put("ns/a", 1000 + version, expected)]).answers[0]
                again = answer.state == "retry"
                expected = answer.current.version if answer.current else ""
        own.close()

    def read() -> None:
        own, last = connect(redis_url), ""
        while not stop.is_set():
            now = version_of(own.mirror, "ns/a") or ""
            if now < last:
                falls.append(f"{last} then {now}")
            last = now
        own.close()

    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in writers + readers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert falls == []
    assert version_of(store.mirror, "ns/a") == "1399"


# -- the checks above are sharp ------------------------------------------------------------


MUTANTS = {
    "put without version test": (
        "mirror_put_v1", "if e and not mirror_newer(version, e.version) then return 0 end", "",
        test_a_newer_version_replaces_and_an_older_or_equal_one_does_not,
    ),
    "no tombstone, no floor": (
        "mirror_put_v1", "if not e and not mirror_newer(version, mirror_dead(c, name)) then return 0 end", "",
        test_a_late_put_does_not_revive_a_deleted_object,
    ),
    "delete by name": (
        "mirror_delete_v1", "if e and mirror_newer(e.version, version) then", "if false then",
        test_a_late_delete_does_not_take_a_later_incarnation,
    ),
    "prune without version test": (
        "mirror_prune_v1", "or mirror_newer(e.version, ARGV[3])", "",
        test_a_prune_takes_what_the_list_had_not_and_spares_what_is_newer,
    ),
    "expected version ignored": (
        "mirror_put_v1", "if (e and e.version or '') ~= item[4] then return raw or '' end", "",
        test_a_put_whose_keys_were_computed_from_another_entry_is_asked_to_repeat,
    ),
    "a list from before the flush counts": (
        "mirror_finish_v1", "if m[1] ~= ARGV[2] or m[2] ~= mirror_boot() then return 'refused' end", "",
        test_a_list_begun_before_a_flush_does_not_end_the_unknown_state,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_each_broken_script_is_caught(store: Store, name: str) -> None:
    script, old, new, check = MUTANTS[name]
    broken = Mirror(store.redis, Mutant(store, script, old, new))
    wanted = inspect.signature(check).parameters
    with pytest.raises(AssertionError):
        check(**{"mirror": broken} | ({"store": store} if "store" in wanted else {}))
