"""The waiting line: effective priority with bounded ageing, age, UID."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from osb.decide.order import Waiter, effective_priority, waiting_line

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def waiter(name: str, *, age: float = 0, **kw: Any) -> Waiter:
    fields = {"slots": (0,), "replicas": 1, "version": "1", "uid": f"uid-{name}", **kw}
    return Waiter(name=name, created=NOW - timedelta(seconds=age), **fields)


def order(*waiters: Waiter) -> list[str]:
    return [w.name for w in waiting_line(waiters, NOW)]


def test_of_equal_priority_the_older_one_is_served_first_and_the_uid_breaks_ties() -> None:
    assert order(waiter("b", age=5), waiter("a", age=5), waiter("old", age=9)) == ["old", "a", "b"]


def test_a_higher_priority_is_served_first() -> None:
    assert order(waiter("old", age=50), waiter("urgent", priority=20)) == ["urgent", "old"]


def test_waiting_raises_the_priority_by_ten_a_minute_so_nothing_waits_for_ever() -> None:
    assert order(waiter("urgent", priority=25), waiter("patient", age=181)) == ["patient", "urgent"]


@pytest.mark.parametrize(
    ("priority", "age", "expected"),
    [(0, 59, 0), (0, 60, 10), (-100, 600, 0), (95, 60, 100), (100, 6000, 100), (0, -30, 0)],
)
def test_effective_priority_counts_whole_minutes_and_has_a_ceiling(priority: int, age: float, expected: int) -> None:
    assert effective_priority(waiter("a", priority=priority, age=age), NOW) == expected


def test_a_waiter_past_its_timeout_leaves_the_line() -> None:
    since = NOW - timedelta(seconds=30)
    assert order(waiter("a", timeout=30, waits_since=since), waiter("b", timeout=31, waits_since=since)) == ["b"]


def test_who_wants_nothing_does_not_stand_in_the_line() -> None:
    assert order(waiter("a", slots=())) == []
