"""How much is measured: the sizes of the full run, of a quick one, and of a given number of pods."""

from __future__ import annotations

from dataclasses import dataclass

ARRIVALS = 45.0  # per second


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`warm` pods serve all rows but the large ones; `large` is the pool of cold start, memory and the full pass;
    `held` pods are in sandboxes when Redis is emptied."""

    singles: int = 200
    batches: int = 10
    batch_size: int = 100
    waiting: int = 1000
    waiting_rounds: int = 2
    poisson_seconds: float = 60.0
    sizes: tuple[int, ...] = (100, 1000, 10_000)
    per_size: int = 60
    event_keys: int = 500
    event_rate: float = 500.0
    event_seconds: float = 10.0
    held: int = 500
    kills: int = 2
    kill_rate: float = 10.0

    @property
    def large(self) -> int:
        return max(self.sizes)

    @property
    def warm(self) -> int:
        """Enough for the waiting and for the arrivals, with 15 % to spare: Poisson arrivals vary."""
        return max(self.waiting, self.batch_size, round(self.poisson_seconds * ARRIVALS * 1.15))


def quick(*, large: int = 1000) -> Plan:
    """About two minutes: enough to see whether something broke, not enough to quote."""
    return Plan(
        singles=60, batches=4, waiting=300, waiting_rounds=1, poisson_seconds=8.0, sizes=(100, large), per_size=30,
        event_seconds=3.0, held=90, kills=1,
    )  # fmt: skip


def full(*, large: int = 10_000) -> Plan:
    return Plan(sizes=tuple(dict.fromkeys((100, min(1000, large), large))))
