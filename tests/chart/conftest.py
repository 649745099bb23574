"""A real control plane for the chart's objects; without `--cluster real` (or both) those tests are left out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles import controlplane
from tests.doubles.cluster import Cluster


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Like the acceptance tests: left out with one line, an error where a control plane must exist."""
    real = [item for item in items if "tests/chart" in item.nodeid and item.get_closest_marker("real")]
    wanted = config.getoption("--cluster") in ("real", "both")
    if not real or (wanted and controlplane.find() is not None):
        return
    if wanted and controlplane.must_exist():
        raise pytest.UsageError("CI: the control plane is not built, so the chart was tried on no real API server")
    config.hook.pytest_deselected(items=real)
    items[:] = [item for item in items if item not in real]


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real API server with a fake kubelet that works through it."""
    with Cluster(tmp_path_factory.mktemp("plane"), controlplane.find()) as one:
        yield one
