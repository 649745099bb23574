"""Wait for something to become true, with a limit, without sleeping blindly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_tick = threading.Event()  # never set: its wait is a pause that does not hold anything


def wait_until(condition: Callable[[], object], timeout: float = 5.0) -> None:
    """Return as soon as `condition` is true; fail the test after `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "did not become true in time"
        _tick.wait(0.005)
