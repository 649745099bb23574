"""How the bench measures: by a watch, from the create's answer, with real concurrency; it notices shared pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from osb.api import names
from osb.bench.loader import Loader
from osb.bench.observer import Observer
from osb.kube.client import Kube
from osb.sim import SimCluster
from tests.doubles.simulated import client_of

SPACE = "measured"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    folder: Path = tmp_path_factory.mktemp("sim")
    with SimCluster.start(folder, kubelet=False) as running:
        yield running


@pytest.fixture(scope="module")
def kube(cluster: SimCluster) -> Iterator[Kube]:
    with client_of(cluster, SPACE, pool=40) as client:
        yield client


@pytest.fixture
def observer(kube: Kube) -> Iterator[Observer]:
    one = Observer(kube, SPACE)
    one.start()
    yield one
    one.close()


def give(kube: Kube, box: str, *pods: str) -> None:
    """What the controller writes when it hands out pods."""
    notes = {
        names.ALLOC_STATUS: orjson.dumps({"pods": pods}).decode(),
        names.ENDPOINTS: orjson.dumps(["10.0.0.1"] * len(pods)).decode(),
    }
    kube.patch("batchsandbox", SPACE, box, {"metadata": {"annotations": notes}})


def test_creates_are_really_concurrent_and_errors_are_counted(kube: Kube, cluster: SimCluster) -> None:
    cluster.add_fault(path=f"/namespaces/{SPACE}/batchsandboxes", methods=["POST"], latency=0.2, count=8)
    wanted = [f"together-{number}" for number in range(8)]
    loader = Loader(kube)
    answer = loader.run({"do": "create", "namespace": SPACE, "names": wanted, "threads": 8})
    cluster.clear_faults()
    first, last = min(call[1] for call in answer["calls"]), max(call[2] for call in answer["calls"])
    assert (last - first) / 1e9 < 1.2  # one after the other they would need 1.6 s
    assert answer["errors"] == 0
    assert loader.run({"do": "create", "namespace": SPACE, "names": wanted[:1]})["errors"] == 1


def test_the_time_to_delivery_is_seen_by_a_watch(kube: Kube, observer: Observer) -> None:
    [(name, _, answered)] = Loader(kube).run({"do": "create", "namespace": SPACE, "names": ["timed"]})["calls"]
    give(kube, name, "p1")
    assert observer.delivered([name], seconds=10)
    assert observer.seen[name].delivered > answered
    assert observer.seen[name].writes == 1
    assert not observer.delivered(["never made"], seconds=0.05)


def test_a_pod_in_two_records_at_once_is_noticed(kube: Kube, observer: Observer) -> None:
    Loader(kube).run({"do": "create", "namespace": SPACE, "names": ["one", "two", "three"]})
    give(kube, "one", "shared")
    give(kube, "two", "shared")
    give(kube, "three", "alone")
    assert observer.delivered(["one", "two", "three"], seconds=10)
    assert observer.twice == {"shared"}
