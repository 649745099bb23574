"""The idle target and the floor of a pool: bufferMin and poolMin, raised by demand and schedules.

Rules: spec/additions.md 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from osb.api.pool import PoolSpec

UNKNOWN_LEAD = 30.0  # seconds from create to Ready while nothing was measured


@dataclass(frozen=True, slots=True)
class Target:
    """What the pool aims at.

    `idle`: pods to keep ready, with `reason`.
    `floor`: pods in all.
    `again`: seconds until a schedule may change it.
    """

    idle: int
    reason: str
    floor: int
    again: float | None = None


def target(
    pool: PoolSpec, now: datetime, *, per_second: float = 0.0, lead: float | None = None, held: int = 0
) -> Target:
    """The largest of bufferMin, demand and active schedules, at most bufferMax; then what poolMax leaves."""
    idle, reason, floor, again = pool.buffer_min, "bufferMin", pool.pool_min, None
    demand = _demand(pool, per_second, lead)
    if demand > idle:
        idle, reason = demand, "demand"
    for schedule in pool.sizing.schedules:
        until = schedule.active_until(now)
        left_seconds = (until - now).total_seconds() if until else 60.0
        again = min(again or 60.0, max(1.0, left_seconds))
        if until is None:
            continue
        floor = max(floor, schedule.total)
        if schedule.idle > idle:
            idle, reason = schedule.idle, f"schedule {schedule.name}"
    idle = min(idle, pool.buffer_max)
    left = max(0, pool.pool_max - held)
    if left < idle:
        idle, reason = left, "poolMax"
    return Target(idle, reason, min(floor, pool.pool_max), again)


def _demand(pool: PoolSpec, per_second: float, lead: float | None) -> int:
    """Pods used up while a new one gets ready, plus headroom. Float noise does not add a pod."""
    if pool.sizing.demand is None or per_second <= 0:
        return 0
    seconds = UNKNOWN_LEAD if lead is None else lead
    return math.ceil(round(per_second * seconds * (1 + pool.sizing.demand.headroom / 100), 6))
