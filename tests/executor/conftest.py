"""A running executor per test: real processes, its own data folder, its own port on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from osb.local.redis import free_port

Obj = dict[str, Any]


@dataclass(slots=True)
class Running:
    """One executor process and a plain client for it."""

    folder: Path
    port: int
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None

    def start(self) -> Running:
        command = [sys.executable, "-m", "osb.executor", "--listen-addr", f"127.0.0.1:{self.port}"]
        command += ["--data-dir", str(self.folder), *self.args]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **self.env})
        assert self.process.stdout is not None
        assert "ready" in self.process.stdout.readline()
        return self

    def stop(self, *, kill: bool = False) -> None:
        if self.process is None:
            return
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None

    def call(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data=data, method=method, headers=headers
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def set(self, *tasks: Obj) -> list[Obj]:
        status, text = self.call("POST", "/setTasks", list(tasks))
        assert status == 200, text
        found: list[Obj] = json.loads(text)
        return found

    def get(self) -> list[Obj]:
        status, text = self.call("GET", "/getTasks")
        assert status == 200, text
        found: list[Obj] = json.loads(text)
        return found

    def clear(self) -> None:
        """Take all tasks back; returns when nothing of them is left."""
        self.set()
        self.until(lambda found: not found)

    def until(self, true: Callable[[list[Obj]], bool], *, seconds: float = 15) -> list[Obj]:
        """The first list for which `true` holds."""
        end = time.monotonic() + seconds
        pause = threading.Event()
        while time.monotonic() < end:
            if true(found := self.get()):
                return found
            pause.wait(0.05)
        raise AssertionError(f"not within {seconds} s; last: {found}")


def task(name: str, *words: str, **process: Any) -> Obj:
    return {"name": name, "process": {"command": list(words), **process}}


def shell(name: str, script: str, **process: Any) -> Obj:
    return task(name, "/bin/sh", args=["-c", script], **process)


def ended(found: list[Obj]) -> bool:
    return bool(found) and all("terminated" in item["processStatus"] for item in found)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "tasks", free_port(), args=["--stop-grace", "1"]).start()
    yield running
    if running.process is None:
        running.start()
    running.clear()
    running.stop()
