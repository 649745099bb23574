"""The real processes of the controller for acceptance tests: Redis, watchers, workers, beat; killable by name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import redis

from osb.local.redis import EmbeddedRedis, die_with_parent, wait_or_kill
from tests.doubles.cluster import Space, condition
from tests.doubles.waiting import wait_until
from workers.routes import all_queues

BIN = Path(sys.executable).parent
HOME = "opensandbox-system"  # our own namespace, of the Lease and the assign profiles
SETTINGS = {
    "OSB_SNAPSHOT_REGISTRY": "registry.example:5000/saved",
    "OSB_TASK_STOP_TIMEOUT": "13s",
    "OSB_POD_NAMESPACE": HOME,
}


FIRST = ("watcher-1", "worker-1", "worker-2", "beat-1")


@dataclass
class Controller:
    """Within `with`, one of each and two workers run; `kill` and `spawn` change that while tests run."""

    folder: Path
    kubeconfig: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=lambda: dict(SETTINGS))

    def __enter__(self) -> Controller:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.redis_server = EmbeddedRedis(self.folder / "redis")
        self.redis_server.start()
        self.redis = redis.Redis.from_url(self.redis_server.url, decode_responses=True, encoding_errors="replace")
        for name in FIRST:
            self.spawn(name)

    def warm_up(self, space: Space) -> None:
        """Returns when it has filled a first pool, `warm`: every kind of process has begun to work."""
        space.pool("warm", 1, 1, 0, 2)
        space.until_pool("warm", lambda p: self.alive() and condition(p, "Ready"), seconds=60)

    def spawn(self, name: str) -> None:
        """Start a process; the part before the dash says which: watcher, worker, beat, flower."""
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self._command(name), env=self.env(), cwd=self.folder, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
            )  # fmt: skip

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Signal a process and wait for its end; its exit code."""
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(30)

    def signal(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            wait_or_kill(process, 15)
        self.redis.close()
        self.redis_server.stop()

    def restore(self) -> None:
        """The processes of the start, each running."""
        for name in FIRST:
            process = self.processes.get(name)
            if process is None or process.poll() is not None:
                self.spawn(name)
            else:
                process.send_signal(signal.SIGCONT)

    def alive(self) -> bool:
        """Fails with the last words of a process that ended by itself."""
        for name, process in self.processes.items():
            assert process.poll() is None, f"{name} ended: {self.log(name).read_text(errors='replace')[-1500:]}"
        return True

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def tails(self, size: int = 4000) -> list[tuple[str, str]]:
        """(process, last words) of everything that ran."""
        logs = sorted(self.folder.glob("*.log"))
        return [(path.stem, path.read_text(errors="replace")[-size:]) for path in logs]

    def env(self) -> dict[str, str]:
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith(("OSB_", "PYTEST_"))},
            "REDIS_URL": self.redis_server.url,
            "KUBECONFIG": str(self.kubeconfig),
            "OSB_INSTALLATION": "acceptance",
            "OSB_HEALTH_PROBE_BIND_ADDRESS": "0",
            "PYTHONUNBUFFERED": "1",
            **self.settings,
        }

    def crashes(self) -> list[str]:
        """Lines of any log that tell of a bug: a reconcile or a process that ended in an exception nobody expected."""
        told = ("a reconcile crashed", "Unrecoverable error")
        lines = (line for path in self.folder.glob("*.log") for line in path.read_text(errors="replace").splitlines())
        return [line[:600] for line in lines if any(text in line for text in told)]

    def celery(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """A celery command of a person at a terminal."""
        return subprocess.run(
            [str(BIN / "celery"), "-A", "workers", *arguments], env=self.env(), cwd=self.folder,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip

    def reconcile(self, kind: str, member: str) -> None:
        """Ask for one more pass by hand and wait until exactly that one has run, and what followed from it."""
        namespace, name = member.split("/")
        wait_until(lambda: self.at_rest(kind, member), 20)
        reason = f"by hand, {uuid.uuid4().hex[:8]}"
        sent = self.celery("call", f"osb.reconcile.{kind}", f"--args={json.dumps([namespace, name, reason])}")
        assert sent.returncode == 0, sent.stderr
        ran = f'"key":"{kind}/{member}","reason":"{reason}"'
        wait_until(lambda: self.told("worker", ran) and self.at_rest(kind, member), 20)
        assert self.told("worker", ran) == 1

    def at_rest(self, kind: str, member: str) -> bool:
        """The key neither asks for a pass nor runs, and no timer of the next moments is set."""
        soon = (time.time() + 2) * 1000
        dirty, run, due = (self.redis.zscore(f"osb:q:{kind}:{part}", member) for part in ("dirty", "run", "due"))
        return dirty is None and run is None and (due is None or due > soon)

    def told(self, role: str, text: str) -> int:
        """How often the logs of these processes have `text`."""
        return sum(log.read_text(errors="replace").count(text) for log in self.folder.glob(f"{role}-*.log"))

    def _command(self, name: str) -> list[str]:
        role = name.partition("-")[0]
        celery = str(BIN / "celery")
        if role == "watcher":
            return [str(BIN / "osbctl"), "watch"]
        if role == "worker":
            queues = ",".join(all_queues())
            quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
            return [
                celery,
                "-A",
                "workers",
                "worker",
                "-n",
                f"{name}@%h",
                "-Q",
                queues,
                "-P",
                "threads",
                "-c",
                "8",
                *quiet,
            ]
        if role == "flower":
            return [celery, "-A", "workers", "flower", "--address=127.0.0.1"]
        if role == "beat":
            return [celery, "-A", "beat", "beat", "--pidfile="]
        raise KeyError(name)
