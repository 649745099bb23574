"""Watchers in this process, on a simulated API server whose streams can be frozen, cut and made to forget."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osb.config import Settings
from osb.kube.client import Kube
from osb.sim import SimCluster
from osb.store.client import Store
from osb.watch.run import Watcher
from tests.doubles.simulated import client_of
from tests.doubles.waiting import wait_until

MakeWatcher = Callable[..., Watcher]
_COUNT = itertools.count(1)


@pytest.fixture(scope="package")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    with SimCluster.start(tmp_path_factory.mktemp("sim"), kubelet=False) as running:
        yield running


@pytest.fixture(scope="package")
def kube(sim: SimCluster) -> Iterator[Kube]:
    with client_of(sim, "opensandbox-system") as client:
        yield client


@pytest.fixture
def ns(kube: Kube, sim: SimCluster) -> Iterator[str]:
    name = f"w{next(_COUNT)}"
    kube.create("namespace", None, {"metadata": {"name": name}})
    yield name
    sim.clear_faults()


@pytest.fixture
def watcher(sim: SimCluster, kube: Kube, ns: str, store: Store, redis_url: str) -> Iterator[MakeWatcher]:
    """`watcher()` starts one and waits for its first lists; `listed=False` does not wait."""
    made: list[Watcher] = []

    def make(*, listed: bool = True, **settings: Any) -> Watcher:
        wanted = {"no_lease": True, "kubeconfig": str(sim.kubeconfig), "redis_url": redis_url, **settings}
        one = Watcher(Settings(**wanted))
        made.append(one)
        one.start()
        if listed:
            wait_until(lambda: all(stream.synced.is_set() for stream in one.streams), 10)
        return one

    yield make
    sim.clear_faults()
    for one in made:
        one.close()


def a_box(kube: Kube, ns: str, name: str = "b", **spec: Any) -> dict[str, Any]:
    return kube.create("batchsandbox", ns, {"metadata": {"name": name}, "spec": {"replicas": 1, **spec}})
