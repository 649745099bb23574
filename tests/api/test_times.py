"""Reading and writing times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from osb.api import times
from osb.errors import InvalidInput

MOMENT = datetime(2026, 1, 31, 8, 0, 4, 250000, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T08:00:04.25Z",
        "2026-01-31t08:00:04.250000z",
        "2026-01-31T08:00:04.250000+00:00",
        "2026-01-31T03:00:04.25-05:00",
        "2026-01-31T08:00:04.250000123Z",
    ],
)
def test_any_rfc_3339_form_is_the_same_moment_in_utc(text: str) -> None:
    assert times.parse(text) == MOMENT
    assert times.parse(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-01-31",
        "2026-01-31T08:00:04",
        "2026-02-30T08:00:04Z",
        "0001-01-01T00:00:00+14:00",
        None,
        5,
    ],
)
def test_anything_else_is_refused_with_the_field_name(text: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        times.parse(text, field="spec.expireTime")
    assert caught.value.field == "spec.expireTime"
    assert times.parse_or_none(text) is None


def test_times_are_written_in_utc() -> None:
    local = MOMENT.astimezone(timezone(timedelta(hours=2)))
    assert times.format(local) == "2026-01-31T08:00:04Z"
    assert times.format_micro(local) == "2026-01-31T08:00:04.250000Z"


def test_milliseconds_there_and_back() -> None:
    assert times.ms("2026-01-31T08:00:04.25Z") == times.to_ms(MOMENT) == 1769846404250
    assert times.of_ms(1769846404250) == MOMENT
    assert times.ms(None) == times.ms("junk") == times.ms("") == 0
