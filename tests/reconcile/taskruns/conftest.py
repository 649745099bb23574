"""A simulated API server, a Redis, and sandboxes with tasks on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osb.config import Settings
from osb.kube.client import Kube
from osb.kube.client import connect as connect_kube
from osb.kube.install import install_crds
from osb.sim import SimCluster
from osb.store.client import Store
from osb.store.client import connect as connect_store
from tests.doubles.taskworld import TaskWorld

Make = Callable[..., TaskWorld]
QUICK = {"spec": {"process": {"command": ["true"]}}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    with SimCluster.start(tmp_path_factory.mktemp("sim"), kubelet=False) as running:
        yield running


@pytest.fixture(scope="module")
def kube(cluster: SimCluster) -> Iterator[Kube]:
    client = connect_kube(Settings(kubeconfig=str(cluster.kubeconfig)))
    install_crds(client)
    yield client
    client.close()


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    connected = connect_store(redis_url)
    yield connected
    connected.close()


@pytest.fixture
def make(store: Store, kube: Kube, cluster: SimCluster) -> Iterator[Make]:
    made: list[TaskWorld] = []

    def world(**changes: Any) -> TaskWorld:
        made.append(TaskWorld(store, kube, **changes))
        return made[-1]

    yield world
    cluster.clear_faults()
    for one in made:
        one.close()
