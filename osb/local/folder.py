"""Whose folder is it: temporary ones name their owner, kept ones are locked while somebody works in them.

The next start removes the temporary folders that a killed one left behind.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from pathlib import Path

from osb.errors import ConfigError

LOCK = "lock"  # has the PID of whoever holds it; it stays, since removing a locked file would let two hold one each


def make(prefix: str) -> Path:
    """A new folder `<prefix>-<pid>-…`; those of the same prefix whose process is gone are removed."""
    for old in Path(tempfile.gettempdir()).glob(f"{prefix}-*"):
        owner = re.match(rf"{re.escape(prefix)}-(\d+)-", old.name)
        if owner and not _lives(int(owner[1])):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}-{os.getpid()}-"))


def hold(folder: Path, flag: str) -> int:
    """Lock the folder until this process ends. Raises ConfigError that names the flag and the PID of the holder.

    The result is an open file that no child inherits.
    """
    where = folder / LOCK
    try:
        file = os.open(where, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(file, 32).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise ConfigError(f"{flag}={folder}: process {holder} works in this folder; "
                              "stop it first, or name another folder") from error  # fmt: skip
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
    except OSError as error:
        raise ConfigError(
            f"{flag}={folder}: {error.strerror or error}; a folder that can be locked is needed"
        ) from error
    return file


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's: not ours to remove
    return True
