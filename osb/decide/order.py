"""Who is served next: the waiting line of a pool (spec/additions.md 2.3).

Effective priority (high first), then creation, then UID. Waiting raises the priority by ten a minute, up to
100, so nothing waits for ever. Fair share between tenants is decided while dealing (`osb.decide.allocate`),
because it looks at what was granted a moment ago. Next: `osb.decide.allocate`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from osb.api import names
from osb.api.batchsandbox import BoxSpec

AGEING_PER_MINUTE = 10
PRIORITY_CEILING = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """One sandbox that misses pods. `slots`: wanted and not in the ledger yet. `had`: every name of its record."""

    name: str
    uid: str
    version: str
    slots: tuple[int, ...]
    replicas: int
    created: datetime
    priority: int = 0
    all_or_nothing: bool = False
    timeout: float | None = None  # seconds
    waits_since: datetime | None = None  # Progressing's transition; the creation when unknown
    tenant: str = ""
    had: frozenset[str] = frozenset()

    @property
    def need(self) -> int:
        return len(self.slots)

    def waited(self, now: datetime) -> float:
        """Seconds in the line, never negative (clocks differ)."""
        return max(0.0, (now - (self.waits_since or self.created)).total_seconds())

    def timed_out(self, now: datetime) -> bool:
        return self.timeout is not None and self.waited(now) >= self.timeout


def waiter(
    box: BoxSpec, slots: Iterable[int], *, tenant_label: str = "", waits_since: datetime | None = None
) -> Waiter:
    """A line entry for `box`, which misses `slots`."""
    return Waiter(
        name=box.name,
        uid=box.uid,
        version=box.version,
        slots=tuple(slots),
        replicas=box.replicas,
        created=box.created,
        priority=box.priority,
        all_or_nothing=box.allocation_policy == names.ALLOCATE_ALL,
        timeout=box.allocation_timeout,
        waits_since=waits_since,
        tenant=str(box.labels.get(tenant_label, "")) if tenant_label else "",
        had=frozenset(box.record.pods) if box.record else frozenset(),
    )


def effective_priority(waiter: Waiter, now: datetime) -> int:
    """Its priority, raised by ten for each whole minute since its creation, at most 100."""
    minutes = int(max(0.0, (now - waiter.created).total_seconds()) // 60)
    return min(PRIORITY_CEILING, waiter.priority + AGEING_PER_MINUTE * minutes)


def waiting_line(waiters: Iterable[Waiter], now: datetime) -> list[Waiter]:
    """Those that still want something and have not run into their timeout, in the order of service."""
    line = [w for w in waiters if w.slots and not w.timed_out(now)]
    line.sort(key=lambda w: (-effective_priority(w, now), w.created, w.uid))
    return line
