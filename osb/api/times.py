"""Times as the API server writes them, to aware datetimes and back.

Clients send fractions and offsets (`2026-01-31T08:00:00.123456+00:00`), the API server sends `...Z`;
both are read.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from osb.errors import InvalidInput

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse(text: object, *, field: str = "time") -> datetime:
    """An aware datetime in UTC. Raises InvalidInput when it is no RFC 3339 time with a zone."""
    if isinstance(text, str) and _RFC3339.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise InvalidInput(field, f"{text!r} is not a time such as 2026-01-31T08:00:00Z")


def parse_or_none(text: object) -> datetime | None:
    """The same, None for anything unreadable or absent."""
    try:
        return parse(text)
    except InvalidInput:
        return None


def format(moment: datetime) -> str:
    """Whole seconds, as `metav1.Time`: what status and annotations carry."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro(moment: datetime) -> str:
    """Microseconds, as `metav1.MicroTime`: leases and event series."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ms(text: str | None) -> int:
    """Milliseconds since the epoch; 0 for absent or unreadable. The quick way for whole relists of pods."""
    if not text:
        return 0
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch of an aware datetime."""
    return int(moment.timestamp() * 1000)


def of_ms(value: int) -> datetime:
    """The aware datetime of milliseconds since the epoch."""
    return datetime.fromtimestamp(value / 1000, tz=UTC)
