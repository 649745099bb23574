"""A scripted server and a client for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from osb.config import Settings
from osb.kube.client import Kube, connect
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
