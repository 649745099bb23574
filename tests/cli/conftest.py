"""One whole installation for all tests of the command line: own Redis, simulated cluster, watcher, worker, beat."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from osb.cli import main
from osb.cli.install import install_definitions, wait_ready
from osb.config import Settings
from osb.kube.client import Kube, connect
from osb.local.demo import box_body, pool_body
from osb.local.up import Everything, Options
from osb.obs import log

Obj = dict[str, Any]


@dataclass
class Installation:
    """What a test acts on: the processes, an API client, and the two addresses."""

    everything: Everything
    kube: Kube
    settings: Settings

    def until(self, what: str, condition: Callable[[], Any], seconds: float = 20.0) -> Any:
        """The first true answer; fails when the deadline passes."""
        end, pause = time.monotonic() + seconds, threading.Event()
        while not (found := condition()):
            assert time.monotonic() < end, f"never happened: {what}"
            pause.wait(0.02)
        return found

    def status(self, kind: str, name: str) -> Obj:
        return self.kube.get(kind, "default", name).get("status") or {}


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    env = {"OSB_INSTALLATION": "cli-test", "OSB_HEALTH_PROBE_BIND_ADDRESS": "0", "OSB_RESUME_TIMEOUT": "40s"}
    options = Options(folder=tmp_path_factory.mktemp("up"), env=env, simulate=True, workers=1, threads=8, flower=False,
                      pod_ready="0.05s")  # fmt: skip
    everything = Everything(options)
    try:
        everything.start_servers()
        settings = Settings.from_env({**everything.env})
        install_definitions(settings)
        everything.start_controller(settings)
        wait_ready(everything, threading.Event())
        kube = connect(settings, pool=4)
        yield _with_objects(Installation(everything, kube, settings))
        kube.close()
    finally:
        everything.stop_controller()
        everything.stop()


def _with_objects(one: Installation) -> Installation:
    """A warm pool, a sandbox of two that is served, and a pool at its maximum with two sandboxes in line."""
    one.kube.create("pool", "default", pool_body())
    one.until("the pool is warm", lambda: one.status("pool", "warm").get("available", 0) >= 5)
    one.kube.create("batchsandbox", "default", box_body("pair", 2))
    one.until("pair is served", lambda: one.status("batchsandbox", "pair").get("ready") == 2)
    small = pool_body()
    small["metadata"]["name"] = "small"
    small["spec"]["capacitySpec"] = {"bufferMin": 0, "bufferMax": 0, "poolMin": 0, "poolMax": 1}
    one.kube.create("pool", "default", small)
    for name in ("first", "second", "third"):
        body = box_body(name, 1)
        body["spec"] |= {"poolRef": "small", "expireTime": "2099-01-01T00:00:00Z"}
        one.kube.create("batchsandbox", "default", body)
        if name == "first":
            one.until("first is served", lambda: one.status("batchsandbox", "first").get("ready") == 1)
    one.until("the line is known", lambda: one.status("pool", "small").get("waiting") == 2)
    return one


@dataclass
class Called:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def osbctl(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Called]]:
    """Call the command line in this process, with the installation's addresses in the environment."""
    monkeypatch.setenv("REDIS_URL", installation.everything.redis_url)
    monkeypatch.setenv("KUBECONFIG", installation.everything.kubeconfig)
    monkeypatch.setenv("OSB_INSTALLATION", "cli-test")

    def call(*arguments: str) -> Called:
        code = main.run(list(arguments))
        said = capsys.readouterr()
        return Called(code, said.out, said.err)

    yield call
    log.setup(Settings())
