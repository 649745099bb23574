"""Five-field cron expressions, for the schedules of a pool's sizing (spec/additions.md 4)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from osb.errors import InvalidInput

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_MONTHS = {m: n + 1 for n, m in enumerate(("jan", "feb", "mar", "apr", "may", "jun"))}
_MONTHS |= {m: n + 7 for n, m in enumerate(("jul", "aug", "sep", "oct", "nov", "dec"))}
_DAYS = {d: n for n, d in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}


@dataclass(frozen=True, slots=True)
class Cron:
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 = Sunday
    any_day: bool
    any_weekday: bool

    def matches_day(self, local: datetime) -> bool:
        """Day and weekday are alternatives when both are given, as in every cron."""
        if local.month not in self.months:
            return False
        by_day = local.day in self.days
        by_weekday = local.isoweekday() % 7 in self.weekdays
        if self.any_day or self.any_weekday:
            return by_day and by_weekday
        return by_day or by_weekday

    def last_start(self, now: datetime, *, zone: tzinfo, within: timedelta) -> datetime | None:
        """The latest start at or before `now`, not further back than `within`; None when there is none."""
        oldest = now - within
        day = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
        for back in range(within.days + 2):
            start = self._latest_on(day - timedelta(days=back), now)
            if start is not None:
                return start if start >= oldest else None
        return None

    def _latest_on(self, day: datetime, now: datetime) -> datetime | None:
        if not self.matches_day(day):
            return None
        for hour in sorted(self.hours, reverse=True):
            for minute in sorted(self.minutes, reverse=True):
                start = day.replace(hour=hour, minute=minute).astimezone(UTC)
                if start <= now:
                    return start
        return None


def parse(text: object, *, field: str) -> Cron:
    """`minute hour day month weekday` with `*`, lists, ranges and steps. Raises InvalidInput."""
    parts = text.split() if isinstance(text, str) else []
    if len(parts) != len(_FIELDS):
        raise InvalidInput(field, f"{text!r} is not a cron expression of 5 fields such as '0 8 * * 1-5'")
    sets = [_values(part, name, low, high, field) for part, (name, low, high) in zip(parts, _FIELDS, strict=True)]
    weekdays = frozenset(value % 7 for value in sets[4])
    return Cron(sets[0], sets[1], sets[2], sets[3], weekdays, parts[2] == "*", parts[4] == "*")


def zone(name: object, *, field: str) -> tzinfo:
    """An IANA time zone; absent means UTC. Raises InvalidInput."""
    if name is None or name == "" or name == "UTC":
        return UTC
    try:
        return ZoneInfo(name if isinstance(name, str) else "?")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(field, f"{name!r} is not an IANA time zone such as Europe/Berlin") from error


def _values(part: str, name: str, low: int, high: int, field: str) -> frozenset[int]:
    found: set[int] = set()
    for item in part.lower().split(","):
        span, slash, step_text = item.partition("/")
        step = int(step_text) if _is_number(step_text) else 0
        first, last = _span(span, name, low, high)
        if slash and "-" not in span and span != "*":
            last = high
        if first is None or last is None or first > last or (slash and step < 1):
            raise InvalidInput(field, f"{item!r} is no {name} from {low} to {high}")
        found.update(range(first, last + 1, step or 1))
    return frozenset(found)


def _span(span: str, name: str, low: int, high: int) -> tuple[int | None, int | None]:
    if span == "*":
        return low, high
    first, dash, last = span.partition("-")
    return _value(first, name, low, high), _value(last if dash else first, name, low, high)


def _value(text: str, name: str, low: int, high: int) -> int | None:
    words = {"month": _MONTHS, "weekday": _DAYS}.get(name, {})
    value = words.get(text, int(text) if _is_number(text) else -1)
    return value if low <= value <= high else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
