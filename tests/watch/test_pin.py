"""A Redis belongs to one cluster: a second one is refused at its start."""

from __future__ import annotations

import pytest

from osb.config import Settings
from osb.errors import ConfigError
from osb.kube.client import Kube
from osb.reconcile.pin import pin
from osb.sim import SimCluster
from osb.store.client import Store
from osb.watch.run import Watcher


@pytest.fixture
def settings(sim: SimCluster, kube: Kube, redis_url: str) -> Settings:
    return Settings(kubeconfig=str(sim.kubeconfig), redis_url=redis_url, installation="one")


def test_the_first_start_pins_the_cluster_and_a_flushed_redis_is_pinned_anew(
    store: Store, kube: Kube, settings: Settings
) -> None:
    mark = pin(store, kube, settings)
    assert mark.split()[0] == kube.get("namespace", None, "kube-system")["metadata"]["uid"]
    assert store.pinned() == mark == pin(store, kube, settings)
    store.redis.flushall()
    assert pin(store, kube, settings) == store.pinned() == mark


def test_a_watcher_of_another_cluster_is_refused_with_the_remedy(store: Store, settings: Settings) -> None:
    # Given a Redis that another cluster uses
    store.redis.set("osb:cluster", "other-uid theirs")
    # When a watcher of this one starts, then it says whose it is, and changes nothing
    with pytest.raises(ConfigError, match=r"used by cluster other-uid \(installation theirs\).*delete its key"):
        Watcher(settings).start()
    assert [key for key in store.redis.keys("osb:*") if b":m:" in key or b":q:" in key] == []
    assert store.pinned() == "other-uid theirs"


@pytest.mark.parametrize(("name", "fits"), [("two", False), ("", True), ("one", True)])
def test_another_installation_of_the_same_cluster_is_refused_but_not_a_nameless_one(
    store: Store, kube: Kube, settings: Settings, name: str, fits: bool
) -> None:
    uid = pin(store, kube, settings).split()[0]
    store.redis.set("osb:cluster", f"{uid} {name}".rstrip())
    if fits:
        pin(store, kube, settings)
    else:
        with pytest.raises(ConfigError, match="installation two"):
            pin(store, kube, settings)
