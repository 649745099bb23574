"""`Conditions`: the condition list of one status while it is being decided.

Only True conditions are stored; clearing one removes it. The transition time moves when the status
flips (absent counts as False), and not when only reason or message change (spec/batchsandbox.md
10.4). Next: `osb.decide.status`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from osb.api import times


class Conditions:
    """The conditions of `prior`, changed by `set` and `clear`; `dump` gives them in the order of `order`."""

    def __init__(self, prior: Iterable[Mapping[str, Any]], *, now: datetime) -> None:
        self._now = times.format(now)
        self._by_type: dict[str, dict[str, Any]] = {
            c["type"]: dict(c) for c in prior if c.get("status") == "True" and isinstance(c.get("type"), str)
        }

    def has(self, kind: str, reason: str = "") -> bool:
        """True while the condition is stored (and has that reason, when one is given)."""
        found = self._by_type.get(kind)
        return found is not None and (not reason or found.get("reason") == reason)

    def text(self, kind: str, member: str = "message") -> str:
        return str(self._by_type.get(kind, {}).get(member) or "")

    def since(self, kind: str) -> datetime | None:
        """When the condition became True, None while it is not or nobody wrote down when."""
        return times.parse_or_none(self._by_type.get(kind, {}).get("lastTransitionTime"))

    def set(self, kind: str, reason: str, message: str, *, renew: bool = False) -> None:
        """Store it as True. `renew` starts its clock again although it may be True already."""
        prior = self._by_type.get(kind)
        at = (prior or {}).get("lastTransitionTime") if prior and not renew else None
        self._by_type[kind] = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": at or self._now,
        }

    def clear(self, *kinds: str) -> None:
        for kind in kinds:
            self._by_type.pop(kind, None)

    def dump(self, order: Sequence[str]) -> list[dict[str, Any]]:
        """Known types in `order`, others (of somebody else) after them."""
        known = [self._by_type[kind] for kind in order if kind in self._by_type]
        return known + [c for kind, c in self._by_type.items() if kind not in order]


def stored(status: Mapping[str, Any], *, now: datetime) -> Conditions:
    """The conditions of a stored status, an unreadable list counting as none."""
    prior = status.get("conditions")
    return Conditions((c for c in prior if isinstance(c, Mapping)) if isinstance(prior, list) else (), now=now)
