"""A scripted server and a client for it; whole clusters, simulated and real."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from osb.config import Settings
from osb.kube.client import Kube, connect
from osb.sim import SimCluster
from tests.doubles.http_fault import FaultServer, Script

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{token: {token}}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


@pytest.fixture
def settings_for(tmp_path: Path) -> Callable[..., Settings]:
    def make(url: str, token: str = "t0ken", **more: object) -> Settings:
        path = tmp_path / "kubeconfig"
        path.write_text(KUBECONFIG.format(url=url, token=token))
        return Settings(kubeconfig=str(path), **more)  # type: ignore[arg-type]  # a test names real fields

    return make


@pytest.fixture
def serving(settings_for: Callable[..., Settings]) -> Iterator[Callable[..., tuple[FaultServer, Kube]]]:
    """`serving(script)` → (server, client); both end with the test."""
    made: list[tuple[FaultServer, Kube]] = []

    def make(script: Script, **settings: object) -> tuple[FaultServer, Kube]:
        server = FaultServer(script)
        kube = connect(settings_for(server.url, **settings))
        made.append((server, kube))
        return server, kube

    yield make
    for server, kube in made:
        kube.close()
        server.close()


REAL = os.environ.get("OSB_TEST_KUBECONFIG") if os.environ.get("OSB_TEST_CLUSTER_DISPOSABLE") == "1" else None


@pytest.fixture(scope="session")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    with SimCluster.start(tmp_path_factory.mktemp("sim"), pod_ready=0.05) as cluster:
        yield cluster


@pytest.fixture(params=["sim", *(["real"] if REAL else [])])
def cluster(request: pytest.FixtureRequest) -> Iterator[tuple[Kube, str]]:
    """(client, a fresh namespace) of the simulated cluster, and of a disposable real one when it is named."""
    path = REAL if request.param == "real" else str(request.getfixturevalue("sim").kubeconfig)
    kube = connect(Settings(kubeconfig=str(path)))
    namespace = f"kube-{uuid.uuid4().hex[:8]}"
    kube.create("namespace", None, {"metadata": {"name": namespace}})
    yield kube, namespace
    kube.delete("namespace", None, namespace)
    kube.close()
