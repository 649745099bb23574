"""Write a status when it differs from what was read, with the version it was computed from.

In: the raw object and the whole new status. Out: the object as stored (the old one when nothing differed). A merge
patch with explicit empties, so that what is gone is cleared (spec/batchsandbox.md 11). Next: the mirror.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osb.apply.hand import Hand
from osb.apply.served import fitted

Obj = dict[str, Any]


def differs(stored: Mapping[str, Any] | None, status: Mapping[str, Any]) -> bool:
    """True when writing `status` would change what is stored; None, empty and absent are the same."""
    old = stored or {}
    return any(not _same(old.get(name), value) for name, value in status.items())


def _same(old: Any, new: Any) -> bool:
    if old in (None, "", 0, [], {}) and new in (None, "", [], {}):
        return True
    if old is None and new == 0:
        return False  # counters are always stored, zero included
    return bool(old == new)


def status_patch(status: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The merge patch; empty texts become null: enums have no empty value, and server 1.20 refuses an empty text."""
    body = {name: (None if value == "" else value) for name, value in status.items()}
    return {"metadata": {"resourceVersion": version}, "status": body}


def write_status(hand: Hand, kind: str, obj: Obj, status: Mapping[str, Any]) -> tuple[Obj, bool]:
    """(object as stored, whether a write was made). Raises Conflict when the object moved on: compute again."""
    if not hand.settings.namespaces:  # an account of single namespaces may not read definitions
        status = fitted(hand.kube, kind, status)
    if not differs(obj.get("status"), status):
        return obj, False
    meta = obj["metadata"]
    hand.check()
    hand.step("status")
    answer = hand.kube.patch(
        kind, meta["namespace"], meta["name"], status_patch(status, meta["resourceVersion"]), sub="status"
    )
    return answer, True
