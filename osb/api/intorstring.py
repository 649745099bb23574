"""`IntOrPercent`: a number of pods, or a share of them rounded up (spec/pool.md 8.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from osb.errors import InvalidInput

_DIGITS = re.compile(r"[0-9]{1,9}")
_PERCENT = re.compile(r"[0-9]{1,9}%")


@dataclass(frozen=True, slots=True)
class IntOrPercent:
    value: int
    percent: bool = False

    def resolve(self, base: int) -> int:
        """Pods out of `base`, never below 1: a budget of 0 would stop the work for ever."""
        if not self.percent:
            return max(self.value, 1)
        return max(-(-self.value * base // 100), 1)

    def __str__(self) -> str:
        return f"{self.value}%" if self.percent else str(self.value)


DEFAULT_UNAVAILABLE = IntOrPercent(25, percent=True)


def parse(raw: object, *, field: str) -> IntOrPercent:
    """`3`, `"3"` or `"25%"`. Raises InvalidInput for 0, negative, fractional or other text."""
    result: IntOrPercent | None = None
    if isinstance(raw, int) and not isinstance(raw, bool):
        result = IntOrPercent(raw)
    elif isinstance(raw, str) and _DIGITS.fullmatch(raw):
        result = IntOrPercent(int(raw))
    elif isinstance(raw, str) and _PERCENT.fullmatch(raw):
        result = IntOrPercent(int(raw[:-1]), percent=True)
    if result is None or result.value < 1:
        raise InvalidInput(field, f"{raw!r} is neither a whole number above 0 nor a whole percentage such as 25%")
    return result
