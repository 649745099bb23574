"""Condition lists, and the status of a Pool with every counter always present.

In: values that a decision computed. Out: plain dicts for `osb.apply.status`. A status patch
that lacks a required counter is refused whole (spec/additions.md 4). Sandboxes and
snapshots: `osb.decide.status`, `osb.decide.snapshot`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from osb.api import times

Condition = dict[str, Any]


def with_condition(
    conditions: Iterable[Mapping[str, Any]],
    kind: str,
    *,
    reason: str,
    message: str,
    now: datetime,
    status: str = "True",
    generation: int | None = None,
) -> list[Condition]:
    """The list with that condition set, in its place or at the end.

    Its transition time moves only when the status flips; an absent condition counts as False.
    """
    kept = [dict(item) for item in conditions]
    prior = next((item for item in kept if item.get("type") == kind), None)
    before = prior.get("status", "False") if prior is not None else "False"
    since = prior.get("lastTransitionTime") if prior is not None and before == status else None
    made: Condition = {"type": kind, "status": status, "reason": reason, "message": message}
    made["lastTransitionTime"] = since or times.format(now)
    if generation is not None:
        made["observedGeneration"] = generation
    if prior is None:
        return [*kept, made]
    return [made if item is prior else item for item in kept]


def without_conditions(conditions: Iterable[Mapping[str, Any]], *kinds: str) -> list[Condition]:
    """The list without those types: a condition that does not hold is not stored as False."""
    return [dict(item) for item in conditions if item.get("type") not in kinds]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """`status` of a Pool."""

    observed_generation: int
    revision: str
    total: int = 0
    allocated: int = 0
    available: int = 0
    updated: int = 0
    pending: int = 0
    terminating: int = 0
    waiting: int = 0
    unmet: int = 0
    target: int = 0
    target_reason: str = "bufferMin"
    conditions: Sequence[Mapping[str, Any]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Every counter, zero or not, so that no column is blank."""
        return {
            "observedGeneration": self.observed_generation,
            "revision": self.revision,
            "total": self.total,
            "allocated": self.allocated,
            "available": self.available,
            "updated": self.updated,
            "pending": self.pending,
            "terminating": self.terminating,
            "waiting": self.waiting,
            "unmet": self.unmet,
            "target": self.target,
            "targetReason": self.target_reason,
            "conditions": [dict(item) for item in self.conditions],
        }
