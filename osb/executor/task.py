"""One task: what was asked, which process it became, and its folder on disk.

Folder `<data>/<name>/`: `task.json` (this record, replaced atomically), `pid`, `exit` (the exit code, written by
the wrapper around the command), `stdout.log`, `stderr.log`. An executor that restarts finds everything there. A name
that no file system takes is cut for it, and marked with its hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from osb.executor.wire import Obj, read_task, stamp

PENDING = "Pending"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"
TIMEOUT = "Timeout"

FOLDER_LIMIT = 255  # bytes; names are ASCII
KILLED = 137
LATEST = 253402300799.0  # the last second that a time stamp can name
CRASHED = "ProcessCrashed"
TASK_TIMEOUT = "TaskTimeout"


@dataclass(slots=True)
class Task:
    """One task. Times in seconds since the epoch, 0 = not yet.

    `pid`: 0 means no process yet.
    `ticks`: the process's start time in clock ticks, so that a reused pid is not taken for it.
    """

    name: str
    process: Obj
    pid: int = 0
    ticks: int = 0
    started: float = 0.0
    finished: float = 0.0
    exit_code: int | None = None
    deleting: float = 0.0
    timed_out: float = 0.0
    failure: str = ""
    signalled: float = 0.0
    mark: str = ""  # stands in the environment of all its processes, detached ones included

    @property
    def timeout(self) -> int:
        return int(self.process.get("timeoutSeconds") or 0)

    @property
    def state(self) -> str:
        """By what is known now; `osb.executor.table` refreshes it before anybody looks."""
        if self.timed_out:
            return TIMEOUT
        if self.exit_code is not None:
            return SUCCEEDED if self.exit_code == 0 else FAILED
        return RUNNING if self.pid else PENDING

    @property
    def active(self) -> bool:
        """Counts for the limit of one active task."""
        return not self.deleting and self.state in (PENDING, RUNNING)

    def json(self) -> Obj:
        """The task on the wire. One that is being stopped says so with its deletionTimestamp."""
        shown: Obj = {"name": self.name}
        if self.deleting:
            shown["deletionTimestamp"] = stamp(self.deleting)
        shown["process"] = self.process
        shown["processStatus"] = self._status()
        return shown

    def _status(self) -> Obj:
        state = self.state
        if state == PENDING:
            return {"waiting": {"reason": PENDING}}
        if state == RUNNING:
            return {"running": {"startedAt": stamp(self.started)}}
        ended: Obj = {"exitCode": self.exit_code if self.exit_code is not None else KILLED}
        if state == TIMEOUT:
            ended = {
                "exitCode": KILLED,
                "reason": TASK_TIMEOUT,
                "message": f"Task exceeded timeout of {self.timeout} seconds",
            }
        else:
            ended["reason"] = self.failure or state
        ended["startedAt"] = stamp(self.started)
        ended["finishedAt"] = stamp(self.finished)
        return {"terminated": ended}


class Folder:
    """The tasks on disk. `root` None keeps everything in memory."""

    def __init__(self, root: Path | None) -> None:
        self.root = root
        if root is not None:
            root.mkdir(parents=True, exist_ok=True)

    def of(self, name: str) -> Path:
        assert self.root is not None
        return self.root / folder_name(name)

    def save(self, task: Task) -> None:
        if self.root is None:
            return
        folder = self.of(task.name)
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / "task.json", json.dumps(asdict(task)))
        if task.pid:
            _replace(folder / "pid", str(task.pid))

    def remove(self, task: Task) -> None:
        if self.root is not None:
            shutil.rmtree(self.of(task.name), ignore_errors=True)

    def exit_file(self, task: Task) -> tuple[int, float] | None:
        """(exit code, when) once the wrapper has written it."""
        if self.root is None:
            return None
        path = self.of(task.name) / "exit"
        try:
            return int(path.read_text()), path.stat().st_mtime
        except (OSError, ValueError):
            return None

    def load(self) -> list[Task]:
        """Every usable task; a folder without one is told and left as it is."""
        if self.root is None:
            return []
        found: list[Task] = []
        for path in sorted(self.root.iterdir()):
            if not path.is_dir() or not (path / "task.json").exists():
                continue
            task = _read(path / "task.json")
            if task is not None:
                found.append(task)
            else:
                sys.stderr.write(f"stored task {path.name} is unusable and skipped\n")
        return found


def folder_name(name: str) -> str:
    """The name itself within the 255 bytes of a file system; a longer one's stand-in is no task's name ("~")."""
    if len(name) <= FOLDER_LIMIT:
        return name
    return f"{name[: FOLDER_LIMIT - 65]}~{hashlib.sha256(name.encode()).hexdigest()}"


def _read(path: Path) -> Task | None:
    """The stored task; None for anything that `save` did not write."""
    try:
        raw: Any = json.loads(path.read_text())
        known = {item.name for item in fields(Task)}
        task = Task(**{key: value for key, value in dict(raw).items() if key in known})
        task.process = read_task({"name": task.name, "process": task.process or {}})["process"]
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    whole = (task.pid, task.ticks, task.exit_code or 0)
    times = (task.started, task.finished, task.deleting, task.timed_out, task.signalled)
    sound = folder_name(task.name) == path.parent.name and isinstance(task.failure, str) and isinstance(task.mark, str)
    sound = sound and all(isinstance(number, int) for number in whole)
    return task if sound and all(isinstance(t, int | float) and 0 <= t <= LATEST for t in times) else None


def _replace(path: Path, text: str) -> None:
    """Write so that a reader, or a crash, sees the old or the new text, never half of it."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    os.replace(part, path)
