"""The installation under measurement: a cluster, our real processes, the load generator, the observer.

In: which cluster and a folder. Out: `Rig`, on which the rows make pools and sandboxes. Everything that was started is
stopped by `close`, also after an interruption; on a given cluster only the two namespaces of the benchmark are touched.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from osb.api import names
from osb.bench import plane
from osb.bench.observer import Observer
from osb.bench.usage import Processes
from osb.config import Settings
from osb.errors import AlreadyExists, ApiError, ConfigError
from osb.kube.client import Kube, connect
from osb.kube.install import install_crds, make_namespace, serves_our_kinds
from osb.local.redis import die_with_parent
from osb.local.up import Everything, Options

Obj = dict[str, Any]

SPACE = "osb-bench"
BARE = "osb-bench-bare"
POD_READY = "50ms"


@dataclass(slots=True)
class Rig:
    """`cluster` is sim, real or the path of a kubeconfig."""

    cluster: str
    folder: Path
    workers: int = 2
    say: Callable[[str], None] = print
    plane: plane.Plane | None = None
    kubelet: subprocess.Popen[bytes] | None = None
    loader: subprocess.Popen[bytes] | None = None
    everything: Everything = field(init=False)
    kube: Kube = field(init=False)
    observer: Observer = field(init=False)

    @property
    def traces(self) -> Path:
        return self.folder / "trace"

    @property
    def settings(self) -> Settings:
        return Settings.from_env(self.everything.env)

    # -- start and stop ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Cluster, definitions, namespaces, controller, load generator, observer. Raises ConfigError."""
        self.traces.mkdir(parents=True, exist_ok=True)
        self.everything = Everything(self._options(), say=self.say)
        self.everything.start_servers()
        kubeconfig = self.everything.kubeconfig
        self.kube = connect(Settings(kubeconfig=kubeconfig), pool=24)
        self._prepare()
        if self.cluster == "real":
            self.kubelet = self._process("osb.sim", "--kubelet-for", kubeconfig, "--pod-ready", POD_READY)
        self.everything.start_controller(self.settings)
        self.loader = self._process("osb.bench.loader", kubeconfig)
        self.observer = Observer(self.kube, SPACE)
        self.observer.start()
        self.wait(self.everything.ready, "workers and beat to show life", seconds=60)

    def close(self) -> None:
        """Stop everything; safe after a failed `start`."""
        if hasattr(self, "observer"):
            self.observer.close()
        if hasattr(self, "everything"):
            if self.cluster not in ("sim", "real") and hasattr(self, "kube"):
                self._tidy()
            self.everything.stop()
        for process in (self.loader, self.kubelet):
            if process is not None:
                process.terminate()
                process.wait(10)
        if self.plane is not None:
            self.plane.stop()

    def restart_controller(self, *, between: Callable[[], None]) -> None:
        """Stop our processes in order, do something, start them again."""
        self.everything.stop_controller()
        for file in self.everything.supervisor.folder.glob("*.alive"):
            file.unlink()
        between()
        self.everything.start_controller(self.settings)

    def _options(self) -> Options:
        env = {
            "OSB_TRACE": str(self.traces), "OSB_NAMESPACES": SPACE, "OSB_INSTALLATION": "osb-bench",
            "OSB_HEALTH_PROBE_BIND_ADDRESS": "0", "OSB_METRICS_BIND_ADDRESS": "0",
        }  # fmt: skip
        given = "" if self.cluster == "sim" else self.cluster
        if self.cluster == "real":
            self.plane = plane.Plane(plane.assets(), self.folder / "plane")
            given = str(self.plane.start())
        elif given and not Path(given).is_file():
            raise ConfigError(f"--cluster {given}: sim, real or the path of a kubeconfig is accepted")
        return Options(
            folder=self.folder, env=env, kubeconfig=given, simulate=self.cluster == "sim", workers=self.workers,
            threads=8, flower=False, pod_ready=POD_READY,
        )  # fmt: skip

    def _process(self, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{module}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                preexec_fn=die_with_parent,
            )  # fmt: skip

    def _prepare(self) -> None:
        install_crds(self.kube)
        for name in (SPACE, BARE, self.settings.lease_home):
            make_namespace(self.kube, name)
        self.wait(lambda: serves_our_kinds(self.kube), "the API server to serve our kinds", seconds=30)

    def _tidy(self) -> None:
        for name in (SPACE, BARE):
            try:
                self.kube.delete("namespace", None, name)
            except ApiError as error:
                self.say(f"namespace {name} is left: {error}")

    # -- what rows use -------------------------------------------------------------------------------------------

    def wait(self, true: Callable[[], bool], what: str, *, seconds: float) -> None:
        """Look every 50 ms, keep our processes running. Raises ConfigError when it takes too long."""
        end = time.monotonic() + seconds
        while not true():
            self.everything.watch()
            if time.monotonic() > end:
                raise ConfigError(f"waited {seconds:g} s for {what}; logs: {self.everything.supervisor.folder}")
            time.sleep(0.05)

    def load(self, **command: Any) -> Obj:
        """One command of the load generator, to its end."""
        assert self.loader is not None and self.loader.stdin is not None and self.loader.stdout is not None
        self.loader.stdin.write(orjson.dumps(command) + b"\n")
        self.loader.stdin.flush()
        answer = self.loader.stdout.readline()
        if not answer:
            raise ConfigError("the load generator ended; see its log")
        result: Obj = orjson.loads(answer)
        return result

    def pool(self, name: str, size: int, *, seconds: float = 300.0) -> None:
        """A warm pool of exactly `size` pods, which neither grows nor shrinks; waits until all are ready."""
        body = {
            "apiVersion": names.API_VERSION, "kind": "Pool", "metadata": {"name": name, "namespace": SPACE},
            "spec": {
                "template": {"spec": {"terminationGracePeriodSeconds": 0,
                                      "containers": [{"name": "main", "image": "img:1"}]}},
                "capacitySpec": {"bufferMin": 0, "bufferMax": size, "poolMin": size, "poolMax": size},
                "scaleStrategy": {"maxUnavailable": "100%"},
                "recycleStrategy": {"type": "Noop"},
            },
        }  # fmt: skip
        try:
            self.kube.create("pool", SPACE, body)
        except AlreadyExists:
            self.kube.patch("pool", SPACE, name, {"spec": body["spec"]})
        self.full(name, size, seconds=seconds)

    def full(self, name: str, size: int, *, seconds: float = 120.0) -> None:
        """Wait until the pool says that `size` pods are available."""

        def available() -> bool:
            status = self.kube.get("pool", SPACE, name).get("status") or {}
            return bool(status.get("available", 0) >= size)

        self.wait(available, f"{size} available pods in pool {name}", seconds=seconds)

    def drop(self, boxes: list[str]) -> None:
        """Delete sandboxes and wait until they are gone."""
        if boxes:
            self.load(do="delete", namespace=SPACE, names=boxes)
            if not self.observer.gone(boxes, seconds=90):
                raise ConfigError("sandboxes did not go; see the workers' logs")

    def crashes(self) -> int:
        """Reconciles that ended with a bug of ours: what is measured then is the retrying."""
        logs = self.everything.supervisor.folder.glob("worker*.log")
        return sum(path.read_text(errors="replace").count('"a reconcile crashed"') for path in logs)

    def processes(self) -> Processes:
        """Everything whose CPU and memory is shown."""
        pids = {one.program.name: one.pid for one in self.everything.supervisor.running if one.alive}
        if self.everything.redis is not None:
            pids["redis"] = self.everything.redis.pid
        if self.plane is not None:
            pids |= self.plane.pids()
        for name, process in (("load generator", self.loader), ("kubelet", self.kubelet)):
            if process is not None:
                pids[name] = process.pid
        return Processes(pids)


@contextmanager
def running(rig: Rig) -> Iterator[Rig]:
    """`rig`, started; closed whatever happens."""
    try:
        rig.start()
        yield rig
    finally:
        rig.close()
