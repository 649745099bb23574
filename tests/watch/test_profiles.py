"""The ConfigMap of assign profiles: a change wakes who waits for the choice of a pool, and good ones are remembered."""

from __future__ import annotations

import orjson
import pytest

from osb.api.key import BATCHSANDBOX, Key
from osb.config import Settings
from osb.kube.client import Kube
from osb.reconcile.profiles import NAME, Profiles
from osb.sim import SimCluster
from osb.store.client import Store
from osb.watch import feed
from tests.doubles.waiting import wait_until
from tests.watch.conftest import MakeWatcher

GOLD = orjson.dumps([{"name": "gold"}]).decode()


@pytest.fixture
def waiting(kube: Kube, ns: str) -> Key:
    """A sandbox that waits for the choice of a pool, in a namespace that has one."""
    spec = {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
            "capacitySpec": {"bufferMin": 0, "bufferMax": 0, "poolMin": 0, "poolMax": 1}}  # fmt: skip
    kube.create("pool", ns, {"metadata": {"name": "warm"}, "spec": spec})
    kube.create("batchsandbox", ns, {"metadata": {"name": "b"}, "spec": {"poolRef": "*", "replicas": 5}})
    kube.create("batchsandbox", ns, {"metadata": {"name": "served"}, "spec": {"poolRef": "warm", "replicas": 5}})
    return Key(BATCHSANDBOX, ns, "b")


def write(kube: Kube, ns: str, text: str) -> None:
    kube.patch("configmap", ns, NAME, {"data": {"profiles": text}})


def test_a_change_wakes_who_waits_for_the_choice_of_a_pool_and_nobody_else(
    watcher: MakeWatcher, kube: Kube, store: Store, ns: str, waiting: Key
) -> None:
    kube.create("configmap", ns, {"metadata": {"name": NAME}, "data": {"profiles": "[]"}})
    kube.create("configmap", ns, {"metadata": {"name": "other"}, "data": {"profiles": "[]"}})
    watcher(pod_namespace=ns)
    wait_until(lambda: store.queue.peek(waiting).dirty_ms is not None)
    store.queue.forget(waiting)
    served = Key(BATCHSANDBOX, ns, "served")
    store.queue.forget(served)
    # When the profiles change
    write(kube, ns, GOLD)
    wait_until(lambda: store.queue.peek(waiting).reason == "the assign profiles changed", 2)
    assert store.queue.peek(served).dirty_ms is None
    assert store.mirror.names("configmap") == [f"{ns}/{NAME}"]


def test_what_was_good_while_nobody_asked_stays_in_force_when_it_breaks(
    watcher: MakeWatcher, kube: Kube, store: Store, ns: str
) -> None:
    kube.create("configmap", ns, {"metadata": {"name": NAME}, "data": {"profiles": GOLD}})
    watcher(pod_namespace=ns)
    write(kube, ns, "{")
    settings = Settings(pod_namespace=ns)
    wait_until(lambda: bool(Profiles().table(store, kube, settings).problems), 2)
    assert "gold" in Profiles().table(store, kube, settings).profiles


def test_without_the_right_to_follow_it_the_watcher_is_ready_all_the_same(
    watcher: MakeWatcher, sim: SimCluster, ns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "REFUSED_SECONDS", (0.2, 0.3))
    sim.add_fault(path=f"/namespaces/{ns}/configmaps", status=403)
    one = watcher(listed=False, pod_namespace=ns)
    wait_until(one.ready, 10)
    stream = next(stream for stream in one.streams if stream.source.kind == "configmap")
    wait_until(lambda: stream.off > 0, 5)
    assert not stream.synced.is_set()


def test_an_older_good_text_never_replaces_a_newer_one(store: Store) -> None:
    assert store.profiles.keep("u", "10", "new")
    assert not store.profiles.keep("u", "9", "old")
    assert store.profiles.last("u") == "new"
    assert store.profiles.last("another") is None
