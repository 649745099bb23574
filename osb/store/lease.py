"""Keep the leases of running reconciles alive, from one thread per process.

In: a key and the token that `begin` accepted. Out: a `Lease` that a pass asks before each write. This is
politeness: safety rests on versions and on the token that every ledger script compares (spec/protocols.md
3, "The holder").
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from osb.api.key import Key
from osb.errors import StoreDown
from osb.store.queue import WorkQueue

RENEW_SECONDS: Final = 4.0
FRESH_SECONDS: Final = 10.0  # below the lease of 12 s by more than a clock can drift meanwhile
_RETRY_SECONDS: Final = 1.0


class Lease:
    """One held lease. `lost`: a renewal was refused; somebody else may run the key."""

    __slots__ = ("_clock", "_renewed", "key", "lost", "token")

    def __init__(self, key: Key, token: str, *, sent: float, clock: Callable[[], float]) -> None:
        self.key = key
        self.token = token
        self.lost = False
        self._renewed = sent
        self._clock = clock

    def fresh(self) -> bool:
        """True while no other holder is possible: renewed less than 10 s ago, counted from when we asked."""
        return not self.lost and self._clock() - self._renewed < FRESH_SECONDS

    def renewed(self, sent: float) -> None:
        self._renewed = max(self._renewed, sent)


class LeaseKeeper:
    """Renews every held lease each 4 s in one trip; starts its thread with the first lease, also after a fork."""

    def __init__(
        self, queue: WorkQueue, *, every: float = RENEW_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._queue = queue
        self._every = every
        self._clock = clock
        self._held: set[Lease] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._pid = 0

    def hold(self, key: Key, token: str, *, sent: float | None = None) -> Lease:
        """Renew from now on.

        `sent` is the monotonic time just before `begin` was called, when the caller knows it.
        """
        lease = Lease(key, token, sent=self._clock() if sent is None else sent, clock=self._clock)
        with self._lock:
            self._held.add(lease)
            if self._pid != os.getpid() and not self._stop.is_set():
                self._pid = os.getpid()
                threading.Thread(target=self._run, name="leases", daemon=True).start()
        return lease

    def drop(self, lease: Lease) -> None:
        """Renew no more; call it before `end`. Safe to call twice."""
        with self._lock:
            self._held.discard(lease)

    def renew(self) -> bool:
        """One round for all leases. False: Redis did not answer; they stay, and go stale by themselves."""
        with self._lock:
            leases = list(self._held)
        sent = self._clock()
        try:
            kept = self._queue.renew_all([(lease.key, lease.token) for lease in leases])
        except StoreDown:
            return False
        for lease, ours in zip(leases, kept, strict=True):
            if ours:
                lease.renewed(sent)
            else:
                lease.lost = True
        return True

    def close(self) -> None:
        """End the thread; held leases run out."""
        self._stop.set()

    def _run(self) -> None:
        wait = self._every
        while not self._stop.wait(wait):
            wait = self._every if self.renew() else min(_RETRY_SECONDS, self._every)
