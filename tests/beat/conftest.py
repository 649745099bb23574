"""Schedulers as `celery -A beat beat` makes them, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from beat.schedule import Scheduler
from osb.sim import SimCluster

MakeScheduler = Callable[..., Scheduler]


@pytest.fixture(scope="package")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    with SimCluster.start(tmp_path_factory.mktemp("sim"), kubelet=False) as running:
        yield running


@pytest.fixture
def scheduler(sim: SimCluster, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeScheduler]:
    from beat.app import app

    made: list[Scheduler] = []

    def make(url: str = redis_url) -> Scheduler:
        monkeypatch.setenv("REDIS_URL", url)
        monkeypatch.setenv("KUBECONFIG", str(sim.kubeconfig))
        monkeypatch.setenv("OSB_NO_LEASE", "true")
        made.append(Scheduler(app=app, lazy=True))
        return made[-1]

    yield make
    for one in made:
        one.close()
