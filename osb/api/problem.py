"""`Problem`: one broken rule of a spec, with the reason that its condition and event carry.

`parse` functions never raise for user errors: they return a safe fallback and a list of these (spec/pool.md 16).
"""

from __future__ import annotations

from typing import Literal

from osb.errors import InvalidInput

Level = Literal["invalid", "warning"]


class Problem(InvalidInput):
    """A broken rule. `reason` is CamelCase, one per rule.

    Level `invalid` is shown as condition `SpecInvalid` (and one event); `warning` only as one event, because
    the rule concerns an annotation or label and a harmless default is in force.
    """

    def __init__(self, field: str, message: str, *, reason: str, level: Level = "invalid") -> None:
        super().__init__(field, message)
        self.reason = reason
        self.level = level

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.field, self.message, self.reason, self.level)
