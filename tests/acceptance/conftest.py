"""One cluster and one set of processes a session; one namespace a test. The same tests run on both kinds of cluster."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.doubles import controlplane
from tests.doubles.cluster import Cluster, Space
from tests.doubles.controller import Controller

WANTED = {"sim": ("sim",), "real": ("real",), "both": ("sim", "real")}
CONTROLLER = pytest.StashKey[Controller]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "cluster" in metafunc.fixturenames:
        kinds = WANTED[metafunc.config.getoption("--cluster")]
        marked = [pytest.param(kind, marks=[pytest.mark.real] if kind == "real" else []) for kind in kinds]
        metafunc.parametrize("cluster", marked, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a real cluster its tests are left out, with one line; in CI that is an error."""
    real = [item for item in items if "acceptance" in item.nodeid and item.get_closest_marker("real")]
    if not real or controlplane.find() is not None:
        return
    if controlplane.must_exist():
        raise pytest.UsageError("CI: the control plane is not built, so nothing was tested on a real API server")
    config.hook.pytest_deselected(items=real)
    items[:] = [item for item in items if item not in real]
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(
            f"no real control plane: {len(real)} tests left out (name one by KUBEBUILDER_ASSETS or OSB_TEST_KUBECONFIG)"
        )


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server with our CRDs and a fake kubelet that works through it."""
    found = controlplane.find() if request.param == "real" else None
    with Cluster(tmp_path_factory.mktemp(request.param), found) as one:
        yield one


@pytest.fixture(scope="session")
def controller(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Controller]:
    """Redis, a watcher, two workers and beat; they have served a first sandbox when the first test begins."""
    with Controller(tmp_path_factory.mktemp("controller"), cluster.kubeconfig) as one:
        request.config.stash[CONTROLLER] = one
        first = cluster.space("first")
        one.warm_up(first)
        first.delete("pool", "warm")
        first.gone("pool")
        first.gone("pod", seconds=90)  # a real garbage collector learns of new kinds within half a minute
        yield one
        assert one.crashes() == []


@pytest.fixture
def space(cluster: Cluster, controller: Controller) -> Iterator[Space]:
    """A namespace of its own. Afterwards no pod had two owners at any moment, and all of it can be deleted."""
    one = cluster.space()
    yield one
    if not one.forged:
        assert one.double_owners() == []
    for kind in ("batchsandbox", "pool"):
        for obj in one.all(kind):
            if not obj["metadata"].get("deletionTimestamp"):
                one.delete(kind, obj["metadata"]["name"])
    one.gone("batchsandbox")
    one.gone("pool")
    cluster.kube.delete("namespace", None, one.name)
    cluster.recorder.forget(one.name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the last words of every process."""
    report = yield
    running = item.config.stash.get(CONTROLLER, None)
    if report.failed and running is not None:
        report.sections += [(f"log of {name}", text) for name, text in running.tails()]
    return report
