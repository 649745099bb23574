"""Temporary folders that name their owner, so that the next start removes what a killed one left behind."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path


def make(prefix: str) -> Path:
    """A new folder `<prefix>-<pid>-…`; those of the same prefix whose process is gone are removed."""
    for old in Path(tempfile.gettempdir()).glob(f"{prefix}-*"):
        owner = re.match(rf"{re.escape(prefix)}-(\d+)-", old.name)
        if owner and not _lives(int(owner[1])):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}-{os.getpid()}-"))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's: not ours to remove
    return True
