"""Start processes, restart those that end, stop all of them; nothing is left when this process is gone.

Each program gets a session of its own, so that Ctrl-C in the terminal reaches only the supervisor, which then stops
its programs in the reverse order of their start. When the supervisor itself is killed the kernel kills them
(PDEATHSIG, Linux; a killed process of ours loses nothing, that is what the queue is for). PDEATHSIG belongs to the
*thread* that forked: `start` and `watch` run in the main thread, or in one that lives as long as the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from osb.errors import ConfigError

_PR_SET_PDEATHSIG = 1
FIRST_PAUSE = 0.5  # seconds before the first restart; doubles up to the last
LAST_PAUSE = 15.0
HURRY_SECONDS = 0.1  # between two looks whether somebody lost patience
STEADY = 20.0  # a program that ran this long starts over with the first pause


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run. `grace`: seconds between SIGTERM and SIGKILL. `vital`: when it ends, restarting is no use."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    grace: float = 10.0
    vital: bool = False


@dataclass(slots=True)
class Running:
    """One program and its present process."""

    program: Program
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = FIRST_PAUSE
    again: float = 0.0  # monotonic time of the next start
    restarts: int = 0
    begins: int = 0  # of its log: what stands before is of an earlier run

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0

    def tail(self, count: int = 400) -> str:
        """The last words of its log, in bytes at most."""
        with contextlib.suppress(OSError), self.log.open("rb") as log:
            log.seek(max(self.begins, log.seek(0, os.SEEK_END) - count))
            return log.read().decode(errors="replace").strip()
        return ""


class Supervisor:
    """`start` programs, call `watch` often, `stop` at the end. `say` gets one line for each thing that happens.

    `hurry` is asked while the end of a program is awaited: once True, nothing gets its grace any more.
    """

    def __init__(
        self, folder: Path, *, say: Callable[[str], None] = lambda line: None, hurry: Callable[[], bool] = lambda: False
    ) -> None:
        self.folder = folder
        self._hurry = hurry
        self.running: list[Running] = []
        self._say = say
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, program: Program) -> Running:
        """Start it now and keep it running. Raises ConfigError when the command cannot be started at all."""
        one = Running(program, self.folder / f"{program.name}.log")
        with contextlib.suppress(FileNotFoundError):
            one.begins = one.log.stat().st_size
        self._spawn(one)
        self.running.append(one)
        return one

    def watch(self) -> None:
        """One look: start again what ended, after a pause that grows. Raises ConfigError when a vital one ended."""
        now = time.monotonic()
        for one in self.running:
            if one.alive:
                continue
            if one.program.vital:
                raise ConfigError(f"{one.program.name} ended ({_how(one)}): {one.tail() or one.log}")
            if not one.again:
                self._note_end(one, now)
            elif now >= one.again:
                one.again = 0.0
                one.restarts += 1
                self._spawn(one)

    def _note_end(self, one: Running, now: float) -> None:
        one.pause = FIRST_PAUSE if now - one.started > STEADY else one.pause
        one.again = now + one.pause
        self._say(f"{one.program.name} ended ({_how(one)}), starts again in {one.pause:g} s; log: {one.log}")
        one.pause = min(one.pause * 2, LAST_PAUSE)

    def stop(self) -> None:
        """Stop everything in the reverse order of the start; SIGKILL for what outlives its grace. Safe to repeat."""
        for one in reversed(self.running):
            stop_process(one.process, grace=one.program.grace, hurry=self._hurry)
        self.running.clear()

    def _spawn(self, one: Running) -> None:
        parent = os.getpid()
        env = {**os.environ, **one.program.env, "PYTHONUNBUFFERED": "1"}
        with one.log.open("ab") as out:
            try:
                one.process = subprocess.Popen(
                    list(one.program.command), env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                    start_new_session=True, preexec_fn=lambda: _bound_to(parent),
                )  # fmt: skip
            except OSError as error:
                raise ConfigError(f"{one.program.name} cannot be started: {error}") from error
        one.started = time.monotonic()


def stop_process(
    process: subprocess.Popen[bytes] | None, *, grace: float, hurry: Callable[[], bool] = lambda: False
) -> None:
    """SIGTERM to the process group, then SIGKILL to whatever of the group is left."""
    if process is None:
        return
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        end = time.monotonic() + grace
        while process.returncode is None and time.monotonic() < end and not hurry():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(HURRY_SECONDS)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _bound_to(parent: int) -> None:
    """In the child, before exec: be killed when the parent ends, also if it has ended already (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _how(one: Running) -> str:
    code = one.process.returncode if one.process is not None else None
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit {code}"
