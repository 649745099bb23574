"""Pretended processes, so that one test process can be a thousand executors.

What a fake task does is told by its environment: OSB_FAKE_SECONDS (how long it runs; none = for ever, unless
the command is `true`, `false`, `echo` or `sleep N`), OSB_FAKE_EXIT (its code), OSB_FAKE_STUBBORN (ignores
SIGTERM; "forever" ignores SIGKILL too).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from osb.executor.process import KILL, TERM, StartError
from osb.executor.task import Folder, Task
from osb.executor.wire import command_of


@dataclass(slots=True)
class _Pretended:
    ends: float
    code: int
    stubborn: str


class Fakes:
    """A Runner without processes. `clock` in seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._next = 0
        self._running: dict[int, _Pretended] = {}

    def start(self, task: Task, folder: Folder) -> None:
        words = command_of(task.process)
        if not words:
            raise StartError("process.command is empty")
        env = {item["name"]: item["value"] for item in task.process.get("env", ())}
        seconds, code = _behaviour([word.rpartition("/")[2] for word in words[:1]] + list(words[1:]), env)
        self._next += 1
        self._running[self._next] = _Pretended(
            ends=self._clock() + seconds, code=code, stubborn=env.get("OSB_FAKE_STUBBORN", "")
        )
        task.pid = task.ticks = self._next

    def alive(self, task: Task) -> bool:
        one = self._running.get(task.pid)
        return one is not None and self._clock() < one.ends

    def exited(self, task: Task, folder: Folder) -> tuple[int, float] | None:
        one = self._running.get(task.pid)
        return (one.code, one.ends) if one is not None and self._clock() >= one.ends else None

    def left(self, task: Task) -> bool:
        return self.alive(task)

    def signal(self, task: Task, number: int) -> None:
        one = self._running.get(task.pid)
        if one is None or not self.alive(task) or one.stubborn == "forever":
            return
        if number == KILL or (number == TERM and not one.stubborn):
            one.ends, one.code = self._clock(), 128 + number

    def reap(self) -> None:
        return


def _behaviour(words: list[str], env: dict[str, str]) -> tuple[float, int]:
    code = int(env.get("OSB_FAKE_EXIT", "1" if words[0] == "false" else "0"))
    if "OSB_FAKE_SECONDS" in env:
        return float(env["OSB_FAKE_SECONDS"]), code
    if words[0] in ("true", "false", "echo"):
        return 0.0, code
    if words[0] == "sleep" and len(words) > 1:
        return float(words[1]), code
    return float("inf"), code
