"""Real processes in the plural on a cluster of their own, to be killed. The long run is asked for by its marker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles import controlplane
from tests.doubles.cluster import Cluster, Space
from tests.doubles.controller import Controller

WANTED = {"sim": ("sim",), "real": ("real",), "both": ("sim", "real")}
MORE = ("watcher-2", "worker-3", "beat-2")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cluster" in metafunc.fixturenames:
        kinds = WANTED[metafunc.config.getoption("--cluster")]
        metafunc.parametrize("cluster", kinds, indirect=True, scope="module")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long run only when `-m` names it."""
    if "faults" in config.getoption("-m"):
        return
    long = [item for item in items if "tests/faults" in str(item.path) and item.get_closest_marker("faults")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = controlplane.find() if request.param == "real" else None
    assert request.param == "sim" or found is not None, "there is no real control plane to test on"
    with Cluster(tmp_path_factory.mktemp(request.param), found) as one:
        yield one


@pytest.fixture(scope="module")
def controller(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """Two watchers, three workers, two beats, one Redis; all of them have begun to work."""
    with Controller(tmp_path_factory.mktemp("controller"), cluster.kubeconfig) as one:
        for name in MORE:
            one.spawn(name)
        one.warm_up(cluster.space("first"))
        yield one


@pytest.fixture
def space(cluster: Cluster, controller: Controller) -> Space:
    return cluster.space("faults")
