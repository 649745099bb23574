"""Give memory back to the system after a big pass, so that a worker does not keep the size of its largest one.

The C library keeps freed memory for later. A full pass of 10,000 pods needs some 40 MB for a tenth of a second; without
this the process would hold them for ever. Only glibc has the call; elsewhere nothing happens.
"""

from __future__ import annotations

import ctypes
import gc
import threading
import time

EVERY = 10.0  # seconds between two: it costs some milliseconds

_lock = threading.Lock()
_last = 0.0


def trim() -> bool:
    """Return what is free, at most every ten seconds. True when it was done."""
    global _last
    with _lock:
        if time.monotonic() - _last < EVERY:
            return False
        _last = time.monotonic()
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return False
    return True
