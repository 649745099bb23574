"""The same work in many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def together(work: Callable[[T], object], each: Iterable[T], timeout: float = 60.0) -> None:
    """One thread for each; returns when all have ended, fails the test when one has not after `timeout` seconds."""
    threads = [threading.Thread(target=work, args=(one,), daemon=True) for one in each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
        assert not thread.is_alive(), "a thread did not end in time"
