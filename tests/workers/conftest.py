"""Tasks in this process, with the process's World on a simulated cluster; and real workers, to be signalled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from osb.kube.client import Kube
from osb.reconcile.world import World
from osb.sim import SimCluster
from tests.doubles.simulated import client_of


@pytest.fixture(scope="package")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    with SimCluster.start(tmp_path_factory.mktemp("sim"), pod_ready=0.05) as running:
        yield running


@pytest.fixture(scope="package")
def kube(sim: SimCluster) -> Iterator[Kube]:
    with client_of(sim, "opensandbox-system") as client:
        yield client


@pytest.fixture
def world(
    sim: SimCluster, kube: Kube, redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[World]:
    """The World that `workers.process` makes for this process, from the environment as in production."""
    from workers import process

    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.setenv("KUBECONFIG", str(sim.kubeconfig))
    monkeypatch.setenv("OSB_NO_LEASE", "true")
    process.close()
    made = process.world()
    made.store.queue.set_tick()  # beat is alive: this process has no duties
    yield made
    process.close()
    sim.clear_faults()
