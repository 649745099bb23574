"""`Move`: what pause and resume want from one pass. Pure data from `osb.decide.pause` to `osb.decide.batch`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osb.decide.plan import Action
from osb.decide.status import NO_CHANGE, Change

SOON = 0.1  # seconds: our own status write wakes nobody, so the next step is asked for
STEP = 1.0  # seconds between looks while somebody else works


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """`handled`: pods are not to be created or replaced in this pass."""

    change: Change = NO_CHANGE
    actions: tuple[Action, ...] = ()
    reasons: tuple[str, ...] = ()
    again: float | None = None
    handled: bool = False


def merge_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch that turns `old` into `new`: without the nulls, keys that are gone would stay."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_diff(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch
