"""Sidecar mode: run the task inside the main container of the pod.

The main container is found by its environment: `SANDBOX_MAIN_CONTAINER=<name>`. Its namespaces are entered
with `nsenter`. That needs `shareProcessNamespace: true` on the pod and CAP_SYS_PTRACE plus CAP_SYS_ADMIN (or
`privileged: true`) on the executor's container, and `nsenter` (util-linux) in its image.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from osb.executor.process import Processes, StartError, merged
from osb.executor.task import Task

MARK = "SANDBOX_MAIN_CONTAINER"


class Sidecar(Processes):
    """Processes in the namespaces of the main container, with its environment."""

    def __init__(self, container: str) -> None:
        super().__init__()
        self._container = container
        self._nsenter = shutil.which("nsenter") or ""

    def prefix(self, task: Task) -> list[str]:
        if not self._nsenter:
            raise StartError("sidecar mode needs nsenter (util-linux) in the executor's image")
        pid = self._main()
        root = f"/proc/{pid}/root"
        folder = task.process.get("workingDir") or _main_folder(pid)
        return [
            self._nsenter, f"--target={pid}", "--mount", "--uts", "--ipc", "--net", "--pid",
            f"--wd={root}{folder}", "--",
        ]  # fmt: skip

    def folder(self, task: Task) -> str | None:
        wanted = task.process.get("workingDir")
        if wanted and not Path(f"/proc/{self._main()}/root{wanted}").is_dir():
            raise StartError(f"workingDir {wanted} does not exist in container {self._container}")
        return None

    def environment(self, task: Task) -> dict[str, str]:
        return merged(_environ(self._main()), task)

    def _main(self) -> int:
        """The oldest process with the mark: tasks inherit the mark, so younger ones may be tasks."""
        found = main_process(self._container)
        if found is None:
            raise StartError(f"no process with {MARK}={self._container}; is shareProcessNamespace set?")
        return found


def main_process(container: str) -> int | None:
    candidates: list[tuple[int, int]] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and _environ(int(name)).get(MARK) == container:
            try:
                started = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[19])
            except (OSError, ValueError, IndexError):
                continue
            candidates.append((started, int(name)))
    return min(candidates)[1] if candidates else None


def _environ(pid: int) -> dict[str, str]:
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if b"=" in item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _main_folder(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return "/"
