"""The `restart-config` annotation of a Pool: how a returned pod is restarted (spec/pool.md 11.4)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from osb.api import names
from osb.api.reading import shown
from osb.errors import InvalidInput

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST = 365 * 86400.0  # seconds; endless digits would be infinite
_WHERE = f"metadata.annotations[{names.RESTART_CONFIG}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartConfig:
    blacklist: tuple[str, ...] = ()  # containers that are not restarted
    retry_interval: float = 30.0  # seconds between two attempts
    max_retries: int = 3
    command: tuple[str, ...] = ("kill", "1")


DEFAULT_RESTART = RestartConfig()


def parse(text: str | None) -> RestartConfig:
    """All members or none: raises InvalidInput when any is of the wrong type or not positive."""
    if not text:
        return DEFAULT_RESTART
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(_WHERE, f"is not JSON ({error}); the defaults are in force") from error
    if data is None:
        return DEFAULT_RESTART
    if not isinstance(data, dict):
        raise InvalidInput(_WHERE, "must be a JSON object; the defaults are in force")
    default = DEFAULT_RESTART
    return RestartConfig(
        blacklist=_texts(data, "blacklist"),
        retry_interval=_interval(data.get("retryInterval"), default.retry_interval),
        max_retries=_retries(data.get("maxRetries"), default.max_retries),
        command=_texts(data, "restartCommand") or default.command,
    )


def duration(text: str) -> float:
    """Seconds of a duration such as `30s`, `1m30s`, `500ms`. Raises ValueError."""
    rest, total = text, 0.0
    while rest:
        match = _DURATION.match(rest)
        if match is None:
            raise ValueError(f"{text!r} is not a duration such as 30s or 1m30s")
        total += float(match[1]) * _SECONDS[match[2]]
        rest = rest[match.end() :]
    return total


def _texts(data: dict[str, Any], member: str) -> tuple[str, ...]:
    value = data.get(member)
    if value is None:
        return ()
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise InvalidInput(f"{_WHERE}.{member}", "must be a list of texts; the defaults are in force")


def _interval(value: object, default: float) -> float:
    if value is None or value == "":
        return default
    try:
        seconds = duration(value) if isinstance(value, str) else 0.0
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST:
        raise InvalidInput(
            f"{_WHERE}.retryInterval",
            f"{shown(value)} is not a duration above 0, and of a year at most, such as 30s; the defaults are in force",
        )
    return seconds


def _retries(value: object, default: int) -> int:
    if value is None:
        return default
    if type(value) is not int or value < 1:
        raise InvalidInput(
            f"{_WHERE}.maxRetries",
            f"{shown(value)} is not a whole number of at least 1; the defaults are in force",
        )
    return value
