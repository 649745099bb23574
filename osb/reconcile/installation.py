"""The installation's Lease: the reference controller and this one never act together (spec/operations.md 4).

All our processes are one holder, `osb_<installation>`. The acting beat renews the Lease every 5 s; a watcher stands in
when beat has been silent for 10 s. A copy of its state lies in Redis, where workers look before they write. It is
renewed only while some watcher is fresh, because its renew time says when somebody last watched (spec/pool.md 6.7).
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field

from osb.config import Settings
from osb.errors import ApiError
from osb.kube.client import connect
from osb.kube.lease import InstallationLease
from osb.obs.log import get_logger
from osb.store.client import Store

log = get_logger("lease")

RENEW_SECONDS = 5.0
LOOK_SECONDS = 1.0
BEAT_SILENT_SECONDS = 10.0
WATCH_FRESH_SECONDS = 140.0


@dataclass(slots=True)
class Installation:
    """Renews or observes the Lease; `ours()` is what a watcher asks before it lists or enqueues."""

    store: Store
    settings: Settings
    me: str = field(default_factory=lambda: uuid.uuid4().hex)
    _lease: InstallationLease | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _last: float = 0.0
    _seen: tuple[float, bool] = (float("-inf"), False)
    _said: str = ""

    def ours(self) -> bool:
        """True when the Lease is ours or nobody's; takes it then.

        Cheap enough to be asked for every batch of events: looks into Redis once a second, at the server every 5
        s at most.
        """
        if self.settings.no_lease:
            return True
        looked, ours = self._seen
        if time.monotonic() - looked < LOOK_SECONDS:
            return ours
        with self._turn:
            if self.store.duty.holder_age() < 2 * RENEW_SECONDS:
                ours = self.store.duty.foreign_holder() is None
            else:
                ours = self._renew()
            self._seen = (time.monotonic(), ours)
            return ours

    def stand_in(self, *, fresh: bool) -> None:
        """A watcher's turn: note that a watcher is fresh, and renew when beat has been silent."""
        if fresh:
            self.store.duty.watcher_seen()
        if not self.settings.no_lease and self.store.duty.holder_age() > BEAT_SILENT_SECONDS:
            self.renew()

    def beat(self) -> None:
        """The acting beat's turn, called often: renews every 5 s while some watcher is fresh."""
        if self.settings.no_lease or time.monotonic() - self._last < RENEW_SECONDS:
            return
        if self.store.duty.watcher_age() < WATCH_FRESH_SECONDS:
            self._last = time.monotonic()
            self.renew()

    def renew(self) -> bool:
        """Acquire or renew; writes the copy in Redis; says once who else holds it. False: not ours."""
        with self._turn:
            return self._renew()

    def _renew(self) -> bool:
        lease = self._own()
        try:
            gap = lease.unwatched_since()
            ours = lease.acquire_or_renew()
            holder = "" if ours else lease.holder()
        except ApiError as error:
            self._say(f"the Lease cannot be read or written: {error}")
            return False
        if ours and gap is not None:
            self.store.duty.note_unwatched(gap)
        self.store.duty.publish_holder(holder)
        self._say("" if ours else f"the Lease is held by {holder}: nothing is enqueued or written until it is free")
        return ours

    def release(self) -> None:
        """Give the Lease up, so that another controller may act at once (clean exit of `osbctl up`, uninstall)."""
        if not self.settings.no_lease:
            self._own().release()

    def _own(self) -> InstallationLease:
        """The Lease has its own client: neither a throttled window nor the budget of others may delay a renewal."""
        if self._lease is None:
            self._lease = InstallationLease(connect(self.settings, pool=2, limited=False), self.settings)
        return self._lease

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            (log.error if text else log.info)(text or "the Lease is ours")
