"""How long a reconcile may run, and how it is told to stop (spec/pitfalls.md 37, 40).

`osb.reconcile.handle` opens one `Deadline` per run: `with deadline.use(): ...`. Every call to the API server
checks it first, so a run that is past its soft limit, was asked to stop or has lost its lease ends before its
next write. Code that hands work to other threads carries it over with `bound(function)`. A run past its hard
limit is not listening: the `Watchdog` ends the whole process then (its supervisor restarts it, the key comes
back by rescue).
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from osb.errors import DeadlinePassed, OsbError

SOFT = 45.0  # seconds until a run ends as Retry
HARD = 60.0  # seconds until its process is ended

P = ParamSpec("P")
R = TypeVar("R")

_current: contextvars.ContextVar[Deadline | None] = contextvars.ContextVar("osb_deadline", default=None)


class Deadline:
    """Soft and hard limit in seconds from now, and a flag that any thread may raise."""

    def __init__(self, soft: float = SOFT, *, hard: float = HARD, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()
        self._soft = soft
        self._hard = hard
        self._cause: OsbError | None = None
        self._raised = threading.Event()

    @property
    def elapsed(self) -> float:
        return self._clock() - self._start

    @property
    def remaining(self) -> float:
        """Seconds until the soft limit, never below 0."""
        return max(0.0, self._soft - self.elapsed)

    @property
    def hard_passed(self) -> bool:
        return self.elapsed >= self._hard

    @property
    def stopped(self) -> bool:
        return self._raised.is_set()

    def stop(self, cause: OsbError | None = None) -> None:
        """Raise the flag: the next `check` raises `cause` (default DeadlinePassed). The first cause stays."""
        if self._cause is None:
            self._cause = cause or DeadlinePassed("asked to stop; the key is handed back")
        self._raised.set()

    def check(self) -> None:
        """Raise when the run must end: the cause given to `stop`, or DeadlinePassed past the soft limit."""
        if self._cause is not None:
            raise self._cause
        if self.elapsed >= self._soft:
            raise DeadlinePassed(f"ran longer than {self._soft:g} s; the rest is done in the next run")

    def wait(self, seconds: float) -> bool:
        """Wait, but not past a stop or the soft limit. True when the full time passed."""
        allowed = min(seconds, self.remaining)
        return not self._raised.wait(allowed) and allowed >= seconds

    def limit(self, seconds: float) -> float:
        """A call's timeout: `seconds`, but not past the hard limit; at least 0.1 s."""
        return max(0.1, min(seconds, self._hard - self.elapsed))

    @contextmanager
    def use(self) -> Iterator[Deadline]:
        """Make this the current deadline of the thread (and of what `bound` carries elsewhere)."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)


def current() -> Deadline | None:
    """The deadline of the running reconcile, None outside of one."""
    return _current.get()


def check() -> None:
    """`current().check()`, nothing outside of a reconcile."""
    deadline = _current.get()
    if deadline is not None:
        deadline.check()


def bound(function: Callable[P, R]) -> Callable[P, R]:
    """`function` to be run by another thread under the deadline that is current here."""
    deadline = _current.get()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if deadline is None:
            return function(*args, **kwargs)
        with deadline.use():
            return function(*args, **kwargs)

    return run


class Watchdog:
    """Ends the process when a watched run passes its hard limit. One thread; `tick` is its body."""

    def __init__(self, leave: Callable[[str], None], *, interval: float = 1.0) -> None:
        self._leave = leave
        self._interval = interval
        self._runs: dict[int, tuple[str, Deadline]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    @contextmanager
    def watching(self, name: str, deadline: Deadline) -> Iterator[None]:
        with self._lock:
            self._runs[id(deadline)] = (name, deadline)
        try:
            yield
        finally:
            with self._lock:
                self._runs.pop(id(deadline), None)

    def tick(self) -> None:
        with self._lock:
            late = [name for name, deadline in self._runs.values() if deadline.hard_passed]
        if late:
            self._leave(f"past the hard limit and not listening: {', '.join(late)}")

    def stop_all(self, cause: OsbError | None = None) -> None:
        """Ask every watched run to stop (graceful shutdown)."""
        with self._lock:
            for _, deadline in self._runs.values():
                deadline.stop(cause)

    def start(self) -> None:
        threading.Thread(target=self._loop, name="osb-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _loop(self) -> None:
        while not self._stopped.wait(self._interval):
            self.tick()
