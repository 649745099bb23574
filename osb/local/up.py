"""Everything in one: Redis, a simulated cluster, watcher, workers, beat and Flower, supervised.

In: settings as environment variables and `Options`. Out: running processes with their addresses. `osbctl up` and
`osbctl demo` drive it. What of it must know the API server or Redis (the CRDs, the Lease) is done by the caller
between `start_servers` and `start_controller`, because this package knows neither.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path

from osb.config import Settings
from osb.errors import ConfigError
from osb.local.redis import EmbeddedRedis, free_port
from osb.local.supervise import Program, Running, Supervisor

QUEUES = (
    "osb.pool.now,osb.batchsandbox.now,osb.snapshot.now,osb.recycle,osb.tasks,"
    "osb.pool.later,osb.batchsandbox.later,osb.snapshot.later"
)
FLOWER_USER = "osb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`env`: settings for all. `redis_url` "" = start one. `kubeconfig` "" without `simulate` = in-cluster."""

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    redis_url: str = ""
    kubeconfig: str = ""
    simulate: bool = False
    workers: int = 2
    threads: int = 0  # of each worker; 0 = what the settings' concurrency asks for
    flower: bool = True
    flower_port: int = 0
    pod_ready: str = "0.5s"
    task_events: bool = False
    executors: int = 0  # addresses of simulated pods on which a task executor listens (Linux: loopback has them all)


class Everything:
    """The processes of one installation on this machine. Call `stop` in any case; it may be repeated."""

    def __init__(
        self,
        options: Options,
        *,
        say: Callable[[str], None] = lambda line: None,
        hurry: Callable[[], bool] = lambda: False,
    ) -> None:
        self.options = options
        self.supervisor = Supervisor(options.folder / "logs", say=say, hurry=hurry)
        self._say = say
        self.redis: EmbeddedRedis | None = None
        self.redis_url = options.redis_url
        self.kubeconfig = options.kubeconfig
        self.health_port = 0
        self.flower_url = ""
        self.flower_password = ""

    @property
    def env(self) -> dict[str, str]:
        """What every process of the installation, and a person's other terminal, needs."""
        env = {**self.options.env, "REDIS_URL": self.redis_url, "OSB_REDIS_URL": self.redis_url}
        if self.kubeconfig:
            env |= {"KUBECONFIG": self.kubeconfig, "OSB_KUBECONFIG": self.kubeconfig}
        return env

    def start_servers(self, *, timeout: float = 30.0) -> None:
        """Redis and the simulated cluster, where none was given. Raises ConfigError."""
        if not self.redis_url:
            self.redis = EmbeddedRedis(self.options.folder / "redis")
            self.redis_url = self.redis.start()
        if self.options.simulate:
            folder = self.options.folder / "cluster"
            command = [sys.executable, "-m", "osb.sim", "--dir", str(folder), "--pod-ready", self.options.pod_ready]
            if self.options.executors:
                command += ["--first-address", self._executors()]
            one = self.supervisor.start(Program(name="cluster", command=command, grace=5.0, vital=True))
            self.kubeconfig = str(folder / "kubeconfig")
            self._wait(lambda: "ready http" in one.tail(4000), one, timeout)

    def start_controller(self, settings: Settings) -> None:
        """Watcher, workers, beat, Flower. `settings` are those of `env`, checked."""
        self.health_port = self._probe_port(settings)
        ports = _ports(settings)
        self._start("watcher", _osbctl("watch"), metrics=ports(0), health=f"127.0.0.1:{self.health_port}")
        for number in range(1, self.options.workers + 1):
            self._start(f"worker{number}", self._worker(number, settings), metrics=ports(number), grace=15.0)
        self._start("beat", _celery("beat", "beat"), metrics=ports(self.options.workers + 1))
        if self.options.flower:
            self._flower()

    def _probe_port(self, settings: Settings) -> int:
        """The one that was asked for; the default one only if it is free, since many programs use it."""
        if settings.health_port and (settings.health_address != ":8081" or _is_free(settings.health_port)):
            return settings.health_port
        return free_port()

    def ready(self, names: tuple[str, ...] = ("worker", "beat")) -> bool:
        """True when every process of these kinds has shown its heartbeat."""
        files = [self._heartbeat(one.program.name) for one in self.supervisor.running
                 if one.program.name.startswith(names)]  # fmt: skip
        return bool(files) and all(file.exists() for file in files)

    def watch(self) -> None:
        """One look at all of it: what ended starts again. Raises ConfigError when that is no use or impossible."""
        if self.redis is not None and (how := self.redis.ended):
            self.redis.start()  # the same port and folder: its append-only file has everything
            self._say(f"redis ended ({how}) and was started again on its port, with its data; log: {self.redis.log}")
        self.supervisor.watch()

    def stop(self) -> None:
        """Stop the controller, then the servers."""
        self.supervisor.stop()
        if self.redis is not None:
            self.redis.stop()
            self.redis = None

    def _executors(self) -> str:
        """Start the task executor of all simulated pods; the first of their addresses, drawn by lot."""
        first = IPv4Address("127.16.1.1") + secrets.randbelow(3000) * 256
        last = first + self.options.executors - 1
        command = [
            sys.executable, "-m", "osb.executor", "--addresses", f"{first}-{last}",
            "--data-dir", str(self.options.folder / "tasks"), "--stop-grace", "2",
        ]  # fmt: skip
        self.supervisor.start(Program(name="executors", command=command, grace=3.0))
        return str(first)

    def stop_controller(self) -> None:
        """Stop everything but the servers, so that the caller can still release the Lease."""
        keep = [one for one in self.supervisor.running if one.program.name in ("cluster", "executors")]
        self.supervisor.running = [one for one in self.supervisor.running if one not in keep]
        self.supervisor.stop()
        self.supervisor.running = keep

    # -- commands --------------------------------------------------------------------------------------------

    def _worker(self, number: int, settings: Settings) -> list[str]:
        threads = self.options.threads or max(4, -(-sum(settings.concurrency.values()) // self.options.workers))
        command = _celery(
            "workers", "worker", "-n", f"worker{number}@{self._node}", "-Q", QUEUES, "-P", "threads",
            "-c", str(threads), "--without-gossip", "--without-mingle",
        )  # fmt: skip
        return [*command, "-E"] if self._events else command

    @property
    def _node(self) -> str:
        """After the @ of Celery's names: this machine, and on a Redis that others use too, this process.

        Two workers of one name would answer for each other, in Flower and to remote control.
        """
        return f"%h-{os.getpid()}" if self.options.redis_url else "%h"

    @property
    def _events(self) -> bool:
        return self.options.task_events or self.options.env.get("OSB_TASK_EVENTS", "") in ("1", "true")

    def _flower(self) -> None:
        if importlib.util.find_spec("flower") is None:
            return
        port = self.options.flower_port or free_port()
        self.flower_password = secrets.token_urlsafe(12)
        self.flower_url = f"http://127.0.0.1:{port}"
        env = {
            # The password travels in the environment: a command line can be read by every user of the machine.
            "FLOWER_BASIC_AUTH": f"{FLOWER_USER}:{self.flower_password}",
            "FLOWER_MAX_TASKS": "5000",
            "FLOWER_TASKS_COLUMNS": "name,args,result,state,received,runtime,worker",
            "FLOWER_PURGE_OFFLINE_WORKERS": "60",
            "FLOWER_UNAUTHENTICATED_API": "",
        }
        command = _celery("workers", "flower", "--address=127.0.0.1", f"--port={port}")
        self._start("flower", command, env=env, grace=3.0)

    def _start(
        self, name: str, command: list[str], *, metrics: str = "0", health: str = "0",
        env: Mapping[str, str] | None = None, grace: float = 10.0,
    ) -> Running:  # fmt: skip
        own = {
            "OSB_METRICS_BIND_ADDRESS": metrics,
            "OSB_HEALTH_PROBE_BIND_ADDRESS": health,
            "OSB_HEARTBEAT_FILE": str(self._heartbeat(name)),
            **({"OSB_TASK_EVENTS": "true"} if self._events else {}),
        }
        self._heartbeat(name).unlink(missing_ok=True)  # an earlier run's in a kept folder
        program = Program(name=name, command=command, env={**self.env, **own, **(env or {})}, grace=grace)
        return self.supervisor.start(program)

    def _heartbeat(self, name: str) -> Path:
        return self.supervisor.folder / f"{name}.alive"

    def _wait(self, condition: Callable[[], bool], one: Running, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if not one.alive or time.monotonic() > deadline:
                raise ConfigError(f"{one.program.name} did not start: {one.tail() or one.log}")
            time.sleep(0.02)


def given_cluster(env: Mapping[str, str] | None = None) -> str:
    """The kubeconfig that somebody named, "in-cluster" inside a pod, or "" when none was: then simulate one.

    `~/.kube/config` alone does not count: trying the program must not touch a real cluster by accident.
    """
    env = os.environ if env is None else env
    named = env.get("OSB_KUBECONFIG") or env.get("KUBECONFIG") or ""
    return named or ("in-cluster" if env.get("KUBERNETES_SERVICE_HOST") else "")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _celery(app: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "celery", "-A", app, *arguments]


def _osbctl(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "osb.cli", *arguments]


def _ports(settings: Settings) -> Callable[[int], str]:
    """Metrics addresses: the given port for the watcher, the next ones for the other processes."""
    if not settings.metrics_port:
        return lambda number: "0"
    host = settings.metrics_address.rpartition(":")[0]
    return lambda number: f"{host}:{settings.metrics_port + number}"
