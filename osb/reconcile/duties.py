"""Time, as small duties: move what is due, rescue what was lost, offer every key again, find lost ledgers.

Run by the beat that acts and, when beat is silent, by every worker (spec/protocols.md 3, spec/pitfalls.md 39). Each
duty is safe to run twice; the sweep is deduplicated by time slot. Next: keys on the queue.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from osb.api.key import BATCHSANDBOX, KINDS, POOL, SNAPSHOT, TASKS, Key, of_member
from osb.errors import StoreDown
from osb.facts.adds import Add
from osb.obs import metrics
from osb.obs.log import get_logger
from osb.reconcile import gauges, report
from osb.store.client import Store
from osb.store.queue import Peek

log = get_logger("beat")

DUE_SECONDS = 0.1
RESCUE_SECONDS = 1.0
SWEEP_SLOT_SECONDS = 10
LEDGER_SLOT_SECONDS = 5
GAUGE_SECONDS = 5.0
POOL_GAUGE_SECONDS = 15.0
BOX_GAUGE_SECONDS = 60.0
SILENT_MS = 2000


@dataclass(slots=True)
class Duties:
    """`tick()` runs what is due by its own clock and returns the seconds until the next call.

    `state_gauges`: this process is scraped, so it also counts pools and sandboxes.
    """

    store: Store
    sweep_seconds: int = 600
    state_gauges: bool = False
    quarantined: Callable[[Key], None] | None = None
    _next: dict[str, float] = field(default_factory=dict)

    def tick(self) -> float:
        """Never raises for a Redis that is away: that is counted, and tried again a second later."""
        try:
            self.store.queue.set_tick()
            for kind in KINDS:
                self.store.queue.due(kind)
            if self._turn("rescue", RESCUE_SECONDS):
                self.rescue()
            if self._turn("sweep", SWEEP_SLOT_SECONDS / 2):
                self.sweep()
            if self._turn("ledgers", LEDGER_SLOT_SECONDS / 2):
                self.ledgers()
            if self._turn("gauges", GAUGE_SECONDS):
                self.gauges()
            if self.state_gauges and self._turn("pools", POOL_GAUGE_SECONDS):
                gauges.pools(self.store)
            if self.state_gauges and self._turn("sandboxes", BOX_GAUGE_SECONDS):
                gauges.sandboxes(self.store)
        except StoreDown as down:
            log.warning("Redis is away, time stands still", error=str(down))
            return 1.0
        return DUE_SECONDS

    def stand_in(self) -> None:
        """A worker's turn, every second: does nothing while beat is alive."""
        age = self.store.queue.tick_age_ms()
        if age is not None and age < SILENT_MS:
            return
        for kind in KINDS:
            self.store.queue.due(kind)
        self.rescue()
        self.sweep()
        self.ledgers()

    def _turn(self, name: str, period: float) -> bool:
        now = time.monotonic()
        if now < self._next.get(name, 0.0):
            return False
        self._next[name] = now + period
        return True

    def rescue(self) -> None:
        """Keys of vanished workers and wake-ups that got lost come back."""
        for kind in KINDS:
            rescued = self.store.queue.rescue(kind)
            if rescued.broken:
                metrics.inc("opensandbox_queue_rescued_total", rescued.broken, kind=kind, what="lease_expired")
                log.warning("keys came back from vanished workers", kind=kind, count=rescued.broken)
            for key in rescued.quarantined:
                if self.quarantined is not None:
                    self.quarantined(key)

    def sweep(self) -> None:
        """One slice of all keys, class later, deep: every key once in `sweep_seconds`, spread evenly.

        It repairs what no event can: a missed event, markers deleted by hand (spec/pitfalls.md 3).
        """
        slots = max(1, self.sweep_seconds // SWEEP_SLOT_SECONDS)
        slot = int(time.time() // SWEEP_SLOT_SECONDS)
        if not self.store.duty.slot("sweep", slot, ttl=2 * SWEEP_SLOT_SECONDS):
            return
        for kind in (POOL, BATCHSANDBOX, SNAPSHOT):
            members = [m for m in self.store.mirror.names(kind) if zlib.crc32(m.encode()) % slots == slot % slots]
            adds = [Add(key=of_member(kind, m), cls="later", deep=True, reason="sweep") for m in members]
            if kind == BATCHSANDBOX:
                with_tasks = set(self.store.mirror.tasked())
                adds += [_tasks(m) for m in members if m in with_tasks]
            if adds:
                self.store.queue.add(adds)

    def ledgers(self) -> None:
        """Pools whose ledger may not be believed, and that nobody is about to rebuild, are asked to.

        Whatever took the ledger (keys deleted by hand, another installation, a restarted Redis) was no event of theirs.
        """
        if not self.store.duty.slot("ledgers", int(time.time() // LEDGER_SLOT_SECONDS), ttl=2 * LEDGER_SLOT_SECONDS):
            return
        unready = [of_member(POOL, member) for member in self.store.unready_ledgers()]
        idle = [key for key in unready if _idle(self.store.queue.peek(key))]
        if idle:
            log.warning("ledgers are not ready", pools=[key.member for key in idle[:20]], count=len(idle))
            self.store.queue.add(Add(key=key, deep=True, reason="its ledger is not ready") for key in idle)

    def gauges(self) -> None:
        """Queue sizes and ages for the metrics of this process."""
        for kind in KINDS:
            report.queue(kind, self.store.queue.stats(kind))


def _idle(peek: Peek) -> bool:
    """Nothing brings the key soon: no run, no wake-up, no back-off and no quarantine."""
    busy = peek.running or peek.dirty_ms is not None or peek.quarantined_ms is not None
    return not busy and not (peek.failures and peek.due_ms is not None)


def _tasks(member: str) -> Add:
    namespace, _, name = member.partition("/")
    return Add(key=Key(TASKS, namespace, name), cls="later", deep=True, reason="sweep")
