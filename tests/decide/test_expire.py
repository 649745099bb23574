"""When a sandbox is due."""

from __future__ import annotations

from datetime import timedelta

import pytest

from osb.api import times
from osb.decide.expire import LONGEST_WAIT, expiry
from tests.doubles.boxes import NOW, at, box


@pytest.mark.parametrize(
    ("expire", "due", "again"),
    [
        pytest.param(times.format(at(-1)), True, None, id="past"),
        pytest.param(times.format(NOW), True, None, id="exactly now"),
        pytest.param(times.format(at(45)), False, 45, id="later"),
        pytest.param("2026-05-04T12:00:00.000400+00:00", False, 0.001, id="less than a millisecond"),
        pytest.param("2026-05-04T14:00:30.5+02:00", False, 30.5, id="fraction and offset"),
        pytest.param(times.format(at(86400 * 400)), False, LONGEST_WAIT, id="very far"),
        pytest.param("tomorrow", False, None, id="unreadable"),
    ],
)
def test_due_when_the_time_has_come_and_never_waiting_too_long(expire: str, due: bool, again: float | None) -> None:
    found = expiry(box(expireTime=expire), NOW)
    assert found.due is due
    assert found.again == (pytest.approx(again) if again is not None else None)


def test_without_a_time_nothing_expires() -> None:
    assert expiry(box(), NOW).again is None


def test_a_terminating_sandbox_does_not_expire_again() -> None:
    assert not expiry(box(expireTime=times.format(at(-1)), deleting=True), NOW).due


def test_an_impossible_clock_deletes_nothing() -> None:
    # Given a sandbox created "later" than now by our clock, which therefore is wrong
    spec = box(expireTime=times.format(at(-1)), age=-301)
    found = expiry(spec, NOW)
    assert not found.due
    assert found.again is not None
    assert "clock" in found.doubt
    # A clock that is a little behind is normal
    assert expiry(box(expireTime=times.format(at(-1)), age=-299), NOW).due


def test_a_renewal_arms_the_timer_anew() -> None:
    before = box(expireTime=times.format(at(10)))
    renewed = box(expireTime=times.format(at(10) + timedelta(seconds=600)))
    assert expiry(before, at(11)).due
    assert not expiry(renewed, at(11)).due
