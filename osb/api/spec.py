"""`Spec`: what a Pool and a BatchSandbox have in common as decisions read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from osb.api import times
from osb.api.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    namespace: str
    name: str
    uid: str = ""
    version: str = ""
    generation: int = 0
    deleting: datetime | None = None
    created: datetime = times.EPOCH
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def member(self) -> str:
        """`ns/name`, as in queue and mirror."""
        return f"{self.namespace}/{self.name}"

    @property
    def conditions(self) -> tuple[dict[str, Any], ...]:
        """The stored conditions, without what is none."""
        found = self.status.get("conditions")
        items = found if isinstance(found, list) else ()
        return tuple(item for item in items if isinstance(item, dict) and isinstance(item.get("type"), str))

    def counted(self, member: str) -> int:
        """A stored counter, 0 when it is none."""
        value = self.status.get(member)
        return value if isinstance(value, int) else 0

    @property
    def invalid(self) -> tuple[Problem, ...]:
        """What condition `SpecInvalid` reports."""
        return tuple(problem for problem in self.problems if problem.level == "invalid")
