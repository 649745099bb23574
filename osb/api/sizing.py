"""The optional parts of a Pool that raise its idle target or order its waiters (spec/additions.md 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from osb.api import cron
from osb.api.cron import Cron
from osb.api.reading import Reader
from osb.errors import InvalidInput

MAX_SCHEDULES = 16
MAX_MINUTES = 10080


@dataclass(frozen=True, slots=True)
class Fairness:
    """Fair share by the value of one label of the sandboxes; a missing label is the tenant ""."""

    label: str
    weights: Mapping[str, int] = field(default_factory=dict)

    def weight(self, tenant: str) -> int:
        return self.weights.get(tenant, 1)


@dataclass(frozen=True, slots=True)
class Demand:
    window: int = 300  # seconds
    headroom: int = 20  # percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    name: str
    start: Cron
    zone: tzinfo = UTC
    duration: timedelta
    idle: int = 0
    total: int = 0

    def active_until(self, now: datetime) -> datetime | None:
        """When the running period of this schedule ends; None while it does not run."""
        started = self.start.last_start(now, zone=self.zone, within=self.duration)
        end = started + self.duration if started is not None else None
        return end if end is not None and end > now else None


@dataclass(frozen=True, slots=True)
class Sizing:
    """`demand` is None unless asked for."""

    demand: Demand | None = None
    schedules: tuple[Schedule, ...] = ()


NO_SIZING = Sizing()


def parse_fairness(read: Reader, spec: Mapping[str, Any]) -> Fairness | None:
    """None without a tenant label: then there is no fair share."""
    data = read.mapping(spec, "fairness", at="spec") or {}
    label = read.text(data, "tenantLabel", at="spec.fairness")
    raw = read.mapping(data, "weights", at="spec.fairness") or {}
    weights = {
        tenant: read.number(raw, tenant, at="spec.fairness.weights", default=1, low=1, high=1000) for tenant in raw
    }
    return Fairness(label, weights) if label else None


def parse_sizing(read: Reader, spec: Mapping[str, Any]) -> Sizing:
    """Each invalid schedule is reported and left out; the others stay."""
    data = read.mapping(spec, "sizing", at="spec") or {}
    wanted = read.mapping(data, "demand", at="spec.sizing")
    at = "spec.sizing.demand"
    demand = (
        wanted
        if wanted is None
        else Demand(
            read.number(wanted, "windowSeconds", at=at, default=300, low=60, high=3600),
            read.number(wanted, "headroomPercent", at=at, default=20, high=500),
        )
    )
    entries = read.items(data, "schedules", at="spec.sizing")
    if len(entries) > MAX_SCHEDULES:
        read.report(
            "spec.sizing.schedules",
            f"has {len(entries)} entries; the first {MAX_SCHEDULES} are in force",
            reason="InvalidSchedule",
        )
    read_ones = (_schedule(read, item, index) for index, item in enumerate(entries[:MAX_SCHEDULES]))
    return Sizing(demand, tuple(schedule for schedule in read_ones if schedule is not None))


def _schedule(read: Reader, item: object, index: int) -> Schedule | None:
    at = f"spec.sizing.schedules[{index}]"
    if not isinstance(item, dict):
        read.report(at, "must be an object; it is left out", reason="InvalidSchedule")
        return None
    before = len(read.problems)
    minutes = read.number(item, "durationMinutes", at=at, default=None, low=1, high=MAX_MINUTES)
    idle = read.number(item, "idle", at=at, default=0)
    total = read.number(item, "total", at=at, default=0)
    try:
        start = cron.parse(item.get("start"), field=f"{at}.start")
        zone = cron.zone(item.get("timeZone"), field=f"{at}.timeZone")
    except InvalidInput as error:
        read.report(error.field, f"{error.message}; this schedule is off", reason="InvalidSchedule")
        return None
    if minutes is None and len(read.problems) == before:
        read.report(f"{at}.durationMinutes", "is required; this schedule is off", reason="InvalidSchedule")
    if minutes is None or len(read.problems) > before:
        return None
    name = read.text(item, "name", at=at) or str(index)
    duration = timedelta(minutes=minutes)
    return Schedule(name=name, start=start, zone=zone, duration=duration, idle=idle, total=total)
