"""Being asked to end: the signals of a program that runs until SIGTERM or Ctrl-C, without a lock in their handlers.

Python runs a handler in the main thread, between any two steps of what that thread does. A handler that takes a lock
(`threading.Event.set`, a log line, a metric) waits for ever when the main thread holds that lock just then. So the
handler of `Ending` sets plain attributes and writes one byte into a pipe, and `aside` gives anything more to a thread.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import time
from collections.abc import Callable
from types import FrameType

SAME_PRESS = 0.5
"""Signals this close together are one wish: a launcher often passes on the Ctrl-C that the terminal sent to both."""


class Ending:
    """`wait` and `is_set` as of an Event that the first signal sets. Make it in the main thread.

    The second Ctrl-C ends the process at once, unless it `hurries` by itself: then `urgent` tells it to leave out what
    takes time, and the third ends it.
    """

    def __init__(self, *numbers: signal.Signals, hurries: bool = False) -> None:
        self.urgent = False
        self._asked = 0.0  # monotonic time of the first signal
        self._hurries = hurries
        self._reader, self._writer = os.pipe()
        for number in numbers or (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._arrived)

    def is_set(self) -> bool:
        return bool(self._asked)

    def wait(self, seconds: float | None = None) -> bool:
        """Until a signal, or so long; True when there was one. Any thread may wait."""
        if not self._asked:
            look = select.poll()
            look.register(self._reader, select.POLLIN)
            look.poll(None if seconds is None else max(0.0, seconds) * 1000)
        return bool(self._asked)

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        if not self._asked:
            self._asked = time.monotonic()
            os.write(self._writer, b"!")  # nobody reads it: every wait from now on returns at once
        elif number == signal.SIGINT and time.monotonic() - self._asked > SAME_PRESS:
            self.urgent = True
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if not self._hurries:
                os.kill(os.getpid(), signal.SIGINT)


def aside(work: Callable[[], object]) -> None:
    """Do it in a thread of its own; for signal handlers, whose own thread may hold any lock that the work needs.

    `threading.Thread` is no help there: its start takes locks too.
    """
    _thread.start_new_thread(work, ())
