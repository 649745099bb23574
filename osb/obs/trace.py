"""Where the time of one sandbox goes: marks with monotonic nanoseconds, for `osbctl bench`.

Off unless OSB_TRACE names a folder; then every process appends to its own file there. Monotonic clocks agree between
the processes of one machine, so the marks of watcher, worker and load generator can be laid side by side. Callers ask
`on` first, so that a production process pays one look at a constant.

One line per mark, tabs between: stage, name, monotonic ns, CPU ns of the thread, detail.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

FOLDER = os.environ.get("OSB_TRACE", "")
on = bool(FOLDER)

_file = -1
_pid = 0


def mark(stage: str, name: str, detail: str = "") -> None:
    """Append one mark; never raises (a full disk must not stop a reconcile)."""
    line = f"{stage}\t{name}\t{time.monotonic_ns()}\t{time.thread_time_ns()}\t{detail}\n"
    try:
        os.write(_opened(), line.encode())
    except OSError:
        return


def _opened() -> int:
    """This process's file; a child after fork opens its own."""
    global _file, _pid
    if _pid != os.getpid():
        _pid = os.getpid()
        path = Path(FOLDER) / f"{_pid}.trace"
        _file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    return _file
