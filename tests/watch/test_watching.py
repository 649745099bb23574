"""From the stream to mirror and queue: nothing is missed, nothing is done twice, and blindness is noticed."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from osb.api.key import BATCHSANDBOX, Key
from osb.errors import Gone
from osb.kube.client import Kube
from osb.sim import SimCluster
from osb.store.client import Store
from osb.watch.run import Watcher
from tests.doubles.waiting import wait_until
from tests.watch.conftest import MakeWatcher, a_box

WATCHES = {"methods": ["GET"], "verbs": ["watch"], "path": "batchsandboxes"}


def mirrored(store: Store, ns: str, name: str = "b") -> str:
    """The version of a sandbox in the mirror, "" when it has none."""
    entry = store.mirror.read("batchsandbox", [f"{ns}/{name}"]).entries[f"{ns}/{name}"]
    return entry.version if entry is not None else ""


def stream_of(watcher: Watcher, kind: str = "batchsandbox") -> Any:
    return next(stream for stream in watcher.streams if stream.source.kind == kind)


def asks(store: Store, key: Key) -> bool:
    return store.queue.peek(key).dirty_ms is not None


def run_once(store: Store, key: Key) -> None:
    """What a worker would do: take the key and give it back."""
    token = uuid.uuid4().hex
    assert store.queue.begin(key, token).state == "run"
    store.queue.end(key, token, "done", progress=True)


def test_an_object_that_was_there_and_one_that_comes_are_both_mirrored_and_asked_for(
    watcher: MakeWatcher, kube: Kube, store: Store, ns: str
) -> None:
    a_box(kube, ns, "old")
    watcher()
    new = a_box(kube, ns, "new")
    wait_until(lambda: mirrored(store, ns, "new") == new["metadata"]["resourceVersion"])
    assert mirrored(store, ns, "old")
    assert asks(store, Key(BATCHSANDBOX, ns, "old")) and asks(store, Key(BATCHSANDBOX, ns, "new"))


def test_a_watcher_that_calls_itself_ready_is_seen_by_others(watcher: MakeWatcher, store: Store) -> None:
    one = watcher()
    assert one.ready() and store.duty.watcher_age() < 60


def test_of_two_watchers_only_the_first_to_move_the_mirror_asks_for_a_run(
    watcher: MakeWatcher, kube: Kube, store: Store, ns: str
) -> None:
    # Given two watchers, both listed, and a sandbox whose run is done
    both = [watcher(), watcher()]
    a_box(kube, ns)
    key = Key(BATCHSANDBOX, ns, "b")
    wait_until(lambda: asks(store, key))
    # When both have read the event, and after the run another object's events as well
    kube.create("batchsandbox", ns, {"metadata": {"name": "later"}, "spec": {"replicas": 1}})
    wait_until(lambda: bool(mirrored(store, ns, "later")))
    run_once(store, key)
    last = a_box(kube, ns, "last")
    wait_until(lambda: mirrored(store, ns, "last") == last["metadata"]["resourceVersion"])
    # Then the slower watcher's copy of the same event has asked for nothing
    assert all(one.alive() for one in both)
    assert not asks(store, key)


def test_a_deleted_object_leaves_the_mirror_and_asks_for_a_run(
    watcher: MakeWatcher, kube: Kube, store: Store, ns: str
) -> None:
    a_box(kube, ns)
    watcher()
    run_once(store, Key(BATCHSANDBOX, ns, "b"))
    kube.delete("batchsandbox", ns, "b")
    wait_until(lambda: not mirrored(store, ns))


@pytest.mark.parametrize("how", ["gone", "compacted and cut off"])
def test_after_a_410_it_lists_again_and_misses_nothing(
    watcher: MakeWatcher, kube: Kube, store: Store, sim: SimCluster, ns: str, how: str
) -> None:
    # Given a watcher whose stream is frozen, so that a change and a deletion pass it by
    a_box(kube, ns, "stays")
    a_box(kube, ns, "goes")
    watcher()
    frozen = sim.add_fault(freeze=True, **WATCHES)
    changed = kube.patch("batchsandbox", ns, "stays", {"spec": {"replicas": 2}})
    kube.delete("batchsandbox", ns, "goes")
    assert mirrored(store, ns, "goes")
    # When the server no longer has its version
    if how == "gone":
        sim.add_fault(gone=True, count=1, **WATCHES)
        sim.clear_faults(frozen)
    else:
        sim.compact()
        sim.disconnect()
        sim.clear_faults(frozen)
    # Then the mirror is as the cluster is, and further events arrive
    wait_until(lambda: mirrored(store, ns, "stays") == changed["metadata"]["resourceVersion"], 10)
    wait_until(lambda: not mirrored(store, ns, "goes"), 10)
    new = a_box(kube, ns, "new")
    wait_until(lambda: mirrored(store, ns, "new") == new["metadata"]["resourceVersion"], 10)


def test_a_frozen_stream_is_made_good_by_the_next_list(
    watcher: MakeWatcher, kube: Kube, store: Store, sim: SimCluster, ns: str
) -> None:
    # Given a stream that stays open and silent, while lists work
    a_box(kube, ns, "goes")
    one = watcher(resync_seconds=2.0)
    sim.add_fault(freeze=True, **WATCHES)
    new = a_box(kube, ns, "new")
    kube.delete("batchsandbox", ns, "goes")
    # When the periodic list is due (the stream itself would be given up a minute later)
    stream_of(one).again.set()
    # Then what the stream kept back is in the mirror and asked for; what is gone is gone
    wait_until(lambda: mirrored(store, ns, "new") == new["metadata"]["resourceVersion"], 10)
    wait_until(lambda: not mirrored(store, ns, "goes"), 10)
    assert asks(store, Key(BATCHSANDBOX, ns, "new"))


def test_a_silent_stream_makes_the_watcher_not_ready_then_not_alive(watcher: MakeWatcher) -> None:
    one = watcher()
    assert one.ready() and one.alive()
    stream_of(one).beat = time.monotonic() - 100  # no event, bookmark, list or end of a watch for so long
    assert one.ready() and not one.alive()
    stream_of(one).beat = time.monotonic() - 141  # twice the time that the server may keep a watch open
    assert not one.ready()


def test_a_process_that_stood_still_believes_nothing_it_holds(watcher: MakeWatcher) -> None:
    stream = stream_of(watcher())
    stream.beat = time.monotonic() - 95
    with pytest.raises(Gone):
        stream._stalled()


def test_a_flushed_redis_is_filled_again_within_seconds_though_nothing_happens(
    watcher: MakeWatcher, kube: Kube, store: Store, ns: str
) -> None:
    # Given a quiet cluster
    a_box(kube, ns)
    watcher()
    # When Redis loses everything
    store.redis.flushall()
    assert not store.mirror.synced("batchsandbox")
    # Then the kinds are listed again without an event, and every key is owed a full pass
    wait_until(lambda: bool(mirrored(store, ns)) and store.mirror.synced("batchsandbox"), 10)
    wait_until(lambda: asks(store, Key(BATCHSANDBOX, ns, "b")), 5)
    begun = store.queue.begin(Key(BATCHSANDBOX, ns, "b"), "t")
    assert begun.state == "run" and begun.deep


def test_a_server_that_refuses_for_a_while_stops_nothing_for_good(
    watcher: MakeWatcher, kube: Kube, store: Store, sim: SimCluster, ns: str
) -> None:
    watcher()
    sim.add_fault(methods=["GET"], path="batchsandboxes", status=503, count=8)
    sim.disconnect()
    new = a_box(kube, ns)
    wait_until(lambda: mirrored(store, ns) == new["metadata"]["resourceVersion"], 20)


def test_unreadable_objects_do_not_stop_the_stream(watcher: MakeWatcher, kube: Kube, store: Store, ns: str) -> None:
    watcher()
    marks = {"sandbox.opensandbox.io/alloc-status": "{{{ not json"}
    body = {"metadata": {"name": "odd", "annotations": marks}, "spec": {"replicas": 1, "poolRef": "p"}}
    kube.create("batchsandbox", ns, body)
    new = a_box(kube, ns, "new")
    wait_until(lambda: mirrored(store, ns, "new") == new["metadata"]["resourceVersion"])
    assert mirrored(store, ns, "odd")
