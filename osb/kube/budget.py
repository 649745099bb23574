"""A client-side limit on calls to the API server, off unless an operator sets `--kube-client-qps`.

Without one, 429 and the server's own fairness hold us back. The limit is this process's part: who divides the
operator's number by the number of processes is the process's start (`workers.signals`). The installation's
Lease is renewed without it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable


class Budget:
    """A token bucket: `rate` calls a second, at most `burst` at once. Rate 0 means no limit. Thread-safe."""

    def __init__(self, rate: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = max(1.0, float(burst))
        self._clock = clock
        self._tokens = self._burst
        self._at = clock()
        self._lock = threading.Lock()

    def take(self, longest: float = math.inf) -> float:
        """Take one call and return the seconds to wait before making it (0.0 at once).

        When that is more than `longest`, nothing is taken: callers that give up leave no debt behind. Otherwise
        waiting callers queue up in the order they came.
        """
        if self._rate <= 0:
            return 0.0
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
            self._at = now
            wait = max(0.0, (1.0 - self._tokens) / self._rate)
            if wait <= longest:
                self._tokens -= 1.0
            return wait
