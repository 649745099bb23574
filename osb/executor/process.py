"""Real processes: start in a session of its own, recognise after a restart, signal all of it, see what is left.

A process of a task is one of its session, or one that left it (`setsid`) and still carries the task's mark in its
environment. A small shell wrapper leads the session: it outlives SIGTERM, waits for the command to really end, and
writes the exit code. A process is recognised by pid and start time, so that a reused pid is never signalled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from osb.executor.task import Folder, Task
from osb.executor.wire import command_of

TASK_ID = "OSB_TASK_ID"  # another one at each start
SECRET = "OSB_EXECUTOR_TOKEN"  # never passed on to a task

# $0 is the exit file. With a trap set (not ignored) the command keeps the default action for SIGTERM, while
# the wrapper goes on waiting for it: no exit code is written while the command still runs.
WRAPPER = """trap : TERM INT HUP QUIT
"$@"
code=$?
printf %s "$code" > "$0.part" && mv "$0.part" "$0"
"""


class StartError(Exception):
    """The process could not be started."""


class Runner(Protocol):
    """How tasks run; `Processes` for real, `osb.executor.fake` pretends."""

    def start(self, task: Task, folder: Folder) -> None:
        """Start it: fills pid and ticks. Raises StartError."""

    def alive(self, task: Task) -> bool:
        """Is its leading process there, and really that one?"""

    def exited(self, task: Task, folder: Folder) -> tuple[int, float] | None:
        """(exit code, when) if it is known."""

    def left(self, task: Task) -> bool:
        """Is any process of it left, background ones included?"""

    def signal(self, task: Task, number: int) -> None:
        """Signal every process of it."""

    def reap(self) -> None:
        """Collect children that ended."""


class Processes:
    """Processes of this container."""

    def __init__(self) -> None:
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, task: Task, folder: Folder) -> None:
        command = [*self.prefix(task), *command_of(task.process)]
        if not task.process.get("command"):
            raise StartError("process.command is empty")
        task.mark = uuid.uuid4().hex
        where = folder.of(task.name)
        where.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            (where / "exit").unlink()
        try:
            with open(where / "stdout.log", "ab") as out, open(where / "stderr.log", "ab") as err:
                child = subprocess.Popen(
                    ["/bin/sh", "-c", WRAPPER, str(where.absolute() / "exit"), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    cwd=self.folder(task),
                    env=self.environment(task),
                    start_new_session=True,
                )
        except (OSError, ValueError) as failed:
            raise StartError(str(failed)) from failed
        self._children[child.pid] = child
        task.pid, task.ticks = child.pid, _ticks(child.pid) or 0

    def prefix(self, task: Task) -> list[str]:
        """Words before the command; `osb.executor.sidecar` enters another container with them."""
        return []

    def folder(self, task: Task) -> str | None:
        return task.process.get("workingDir")

    def environment(self, task: Task) -> dict[str, str]:
        return merged(os.environ, task)

    def alive(self, task: Task) -> bool:
        self._poll(task.pid)
        return bool(task.pid) and _is(task.pid, task.ticks)

    def exited(self, task: Task, folder: Folder) -> tuple[int, float] | None:
        return folder.exit_file(task)

    def left(self, task: Task) -> bool:
        self._poll(task.pid)
        return any(True for _ in _session(task))

    def signal(self, task: Task, number: int) -> None:
        for pid in list(_session(task)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def reap(self) -> None:
        """Our children, and, as process 1 of a container, whatever was orphaned to us."""
        for pid in list(self._children):
            self._poll(pid)
        if os.getpid() == 1:
            _reap_orphans(frozenset(self._children))

    def _poll(self, pid: int) -> None:
        child = self._children.get(pid)
        if child is not None and child.poll() is not None:
            del self._children[pid]


def merged(base: Mapping[str, str], task: Task) -> dict[str, str]:
    env = {name: value for name, value in base.items() if name != SECRET}
    env.update((item["name"], item["value"]) for item in task.process.get("env", ()))
    if task.mark:
        env[TASK_ID] = task.mark
    return env


def _reap_orphans(known: frozenset[int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (seen := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if seen.si_pid in known:
                return  # its Popen collects it at the next look
            os.waitpid(seen.si_pid, os.WNOHANG)


# -- /proc -----------------------------------------------------------------------------------------------


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on (field 3); the command name may contain anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, ValueError):
        return None
    return text.rpartition(")")[2].split()


def _ticks(pid: int) -> int | None:
    stat = _stat(pid)
    return int(stat[19]) if stat is not None and len(stat) > 19 else None


def _is(pid: int, ticks: int) -> bool:
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX" and int(stat[19]) == ticks


def _session(task: Task) -> Iterator[int]:
    """Living processes of the task's session, and those with its mark.

    When the leader's pid was reused, the session is not ours.
    """
    if not task.pid:
        return
    leader = _stat(task.pid)
    reused = leader is not None and int(leader[19]) != task.ticks
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        stat = _stat(int(name))
        if stat is None or stat[0] in "ZX" or int(stat[19]) < task.ticks:
            continue
        if (int(stat[3]) == task.pid and not reused) or _marked(int(name), task.mark):
            yield int(name)


def _marked(pid: int, mark: str) -> bool:
    """Whether it was started with this mark in its environment. One that we may not read is none of ours."""
    try:
        return bool(mark) and f"{TASK_ID}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


TERM = signal.SIGTERM
KILL = signal.SIGKILL
