"""A simulated API server and a Redis for whole passes in one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from osb.config import Settings
from osb.kube.client import Kube
from osb.kube.client import connect as connect_kube
from osb.kube.install import install_crds
from osb.sim import SimCluster
from osb.store.client import Store
from osb.store.client import connect as connect_store
from tests.doubles.passworld import Passes


@pytest.fixture(scope="package")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    with SimCluster.start(tmp_path_factory.mktemp("sim"), kubelet=False) as running:
        yield running


@pytest.fixture(scope="package")
def client(simulated: SimCluster) -> Iterator[Kube]:
    connected = connect_kube(Settings(kubeconfig=str(simulated.kubeconfig)))
    install_crds(connected)
    yield connected
    connected.close()


@pytest.fixture
def emptied(redis_url: str) -> Iterator[Store]:
    connected = connect_store(redis_url)
    yield connected
    connected.close()


@pytest.fixture
def passes(emptied: Store, client: Kube, simulated: SimCluster) -> Iterator[Passes]:
    one = Passes(emptied, client)
    yield one
    simulated.clear_faults()
    one.close()
