"""Where log lines go: a stream, or a file that is rotated by size and pruned by number and age."""

from __future__ import annotations

import gzip
import shutil
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import IO, BinaryIO, Protocol


class Output(Protocol):
    """Takes whole lines. Never raises: a full disk must not stop a reconcile."""

    def write(self, line: bytes) -> None: ...

    def close(self) -> None: ...


class Stream:
    """stdout or stderr, looked up at each line (tests and supervisors replace them)."""

    def __init__(self, stream: IO[str]) -> None:
        self._name = "stdout" if stream is sys.stdout else "stderr"

    def write(self, line: bytes) -> None:
        stream = getattr(sys, self._name)
        try:
            stream.write(line.decode("utf-8", "replace"))
            stream.flush()
        except (OSError, ValueError):
            pass  # the reader went away

    def close(self) -> None:
        pass


class RotatedFile:
    """A file that is renamed to `<stem>-<local time>.log` at `size` bytes; older ones are pruned."""

    def __init__(self, path: str, *, size: int, keep: int, days: int, compress: bool) -> None:
        self._path = Path(path)
        self._size = size
        self._keep = keep
        self._days = days
        self._compress = compress
        self._file: BinaryIO | None = None
        self._written = 0

    def write(self, line: bytes) -> None:
        try:
            if self._file is None:
                self._open()
            elif self._written + len(line) > self._size:
                self._rotate()
            assert self._file is not None
            self._file.write(line)
            self._file.flush()
            self._written += len(line)
        except OSError as error:
            print(f"the log file cannot be written: {error}", file=sys.stderr)  # noqa: T201 - nowhere else to say it

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("ab")
        self._written = self._path.stat().st_size

    def _rotate(self) -> None:
        self.close()
        stamp = datetime.now().astimezone().strftime("%Y-%m-%dT%H-%M-%S.%f")[:-3]
        backup = self._path.with_name(f"{self._path.stem}-{stamp}{self._path.suffix}")
        self._path.rename(backup)
        if self._compress:
            with backup.open("rb") as source, gzip.open(f"{backup}.gz", "wb") as target:
                shutil.copyfileobj(source, target)
            backup.unlink()
        self._prune()
        self._open()

    def _prune(self) -> None:
        backups = sorted(self._path.parent.glob(f"{self._path.stem}-*{self._path.suffix}*"), reverse=True)
        oldest = time.time() - self._days * 86_400
        for index, backup in enumerate(backups):
            too_many = self._keep and index >= self._keep
            too_old = self._days and backup.stat().st_mtime < oldest
            if too_many or too_old:
                backup.unlink(missing_ok=True)
