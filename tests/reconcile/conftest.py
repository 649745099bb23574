"""A simulated API server and a Redis for whole passes in one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from osb.kube.client import Kube
from osb.sim import SimCluster
from osb.store.client import Store
from tests.doubles.passworld import Passes
from tests.doubles.simulated import client_of


@pytest.fixture(scope="package")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    with SimCluster.start(tmp_path_factory.mktemp("sim"), kubelet=False) as running:
        yield running


@pytest.fixture(scope="package")
def client(simulated: SimCluster) -> Iterator[Kube]:
    with client_of(simulated) as connected:
        yield connected


@pytest.fixture
def passes(store: Store, client: Kube, simulated: SimCluster) -> Iterator[Passes]:
    one = Passes(store, client)
    yield one
    simulated.clear_faults()
    one.close()
