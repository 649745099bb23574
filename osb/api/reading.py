"""Reading untrusted JSON one field at a time: the value if it has the right type, else a fallback and a Problem.

Schemas normally exclude these cases; an object that was stored under an older schema, or past one, must not
stop a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from osb.api.problem import Level, Problem
from osb.errors import InvalidInput

D = TypeVar("D")
DEEPEST = 100  # more than 254 levels could not be written back


class Reader:
    """Collects Problems while reading. Each method returns a usable value, whatever was found."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def report(self, field: str, message: str, *, reason: str, level: Level = "invalid") -> None:
        self.problems.append(Problem(field, message, reason=reason, level=level))

    def caught(self, error: InvalidInput, *, reason: str, level: Level = "invalid") -> None:
        """Keep an error of a stricter parser as a problem of this object."""
        self.report(error.field, error.message, reason=reason, level=level)

    def found(self) -> tuple[Problem, ...]:
        return tuple(self.problems)

    def number(
        self,
        data: Mapping[str, Any],
        member: str,
        *,
        at: str,
        default: D,
        low: int = 0,
        high: int = 2**31 - 1,
    ) -> int | D:
        """A whole number within bounds."""
        value = data.get(member)
        if value is None:
            return default
        if type(value) is int and low <= value <= high:
            return value
        self.report(
            f"{at}.{member}", f"{shown(value)} is not a whole number from {low} to {high}", reason="InvalidNumber"
        )
        return default

    def choice(self, data: Mapping[str, Any], member: str, *, at: str, options: Sequence[str], reason: str) -> str:
        """One of the options; the first is the default."""
        value = data.get(member)
        if value is None or value == "":
            return options[0]
        if isinstance(value, str) and value in options:
            return value
        message = f"{shown(value)} is none of {', '.join(options)}; {options[0]} is in force"
        self.report(f"{at}.{member}", message, reason=reason)
        return options[0]

    def text(self, data: Mapping[str, Any], member: str, *, at: str) -> str:
        """A text, "" when absent, null or something else."""
        value = data.get(member)
        if value is None or isinstance(value, str):
            return value or ""
        self.report(f"{at}.{member}", f"must be a text, not {shown(value)}", reason="InvalidType")
        return ""

    def flag(self, data: Mapping[str, Any], member: str, *, at: str) -> bool | None:
        """True or false, None when absent, null or something else."""
        value = data.get(member)
        if value is None or isinstance(value, bool):
            return value
        self.report(f"{at}.{member}", f"must be true or false, not {shown(value)}", reason="InvalidType")
        return None

    def mapping(self, data: Mapping[str, Any], member: str, *, at: str) -> dict[str, Any] | None:
        """An object, None when absent, null or something else."""
        value = data.get(member)
        if value is None or (isinstance(value, dict) and not self._too_deep(value, f"{at}.{member}")):
            return cast("dict[str, Any] | None", value)
        if isinstance(value, dict):
            return None
        self.report(f"{at}.{member}", f"must be an object, not {shown(value)}", reason="InvalidType")
        return None

    def _too_deep(self, value: Any, field: str) -> bool:
        if not _deeper(value, DEEPEST):
            return False
        self.report(field, f"is nested deeper than {DEEPEST} levels", reason="TooDeep")
        return True

    def items(self, data: Mapping[str, Any], member: str, *, at: str) -> tuple[Any, ...]:
        """A list, empty when absent, null or something else."""
        value = data.get(member)
        if value is None:
            return ()
        if isinstance(value, list):
            return () if self._too_deep(value, f"{at}.{member}") else tuple(value)
        self.report(f"{at}.{member}", f"must be a list, not {shown(value)}", reason="InvalidType")
        return ()


def _deeper(value: Any, limit: int) -> bool:
    """Whether objects and lists stand in each other more than `limit` deep."""
    level = [value]
    for _ in range(limit):
        inner = (item for one in level for item in (one.values() if isinstance(one, dict) else one))
        level = [item for item in inner if isinstance(item, dict | list)]
        if not level:
            return False
    return True


def shown(value: object) -> str:
    """A wrong value in a message, cut to a bearable length."""
    return f"{value!r:.60}"


def texts(value: object) -> dict[str, str]:
    """A map of texts such as labels; anything else in it is dropped."""
    if not isinstance(value, dict):
        return {}
    return {key: item for key, item in value.items() if isinstance(key, str) and isinstance(item, str)}


def text(data: Mapping[str, Any], member: str) -> str:
    """A text, "" when absent or something else."""
    value = data.get(member)
    return value if isinstance(value, str) else ""


def part(data: Mapping[str, Any], member: str) -> dict[str, Any]:
    """An object, {} when absent or something else."""
    value = data.get(member)
    return value if isinstance(value, dict) else {}


def parts(data: Mapping[str, Any], member: str) -> list[dict[str, Any]]:
    """The objects of a list, [] when it is absent or something else."""
    value = data.get(member)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
