"""When a sandbox is due, and how long to wait until it is. Applies in every phase (spec/batchsandbox.md 7).

In: spec and now. Out: `Expiry`. The timer is computed on every pass and never depends on the pass's success.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from osb.api import times
from osb.api.batchsandbox import BoxSpec

LONGEST_WAIT = 3600.0  # seconds; look again at least that often, so that clock steps strand nothing
SHORTEST_WAIT = 0.001
IMPOSSIBLE = timedelta(minutes=5)  # our clock may be this far behind the object's own creation, not more


@dataclass(frozen=True, slots=True)
class Expiry:
    """What expireTime asks for.

    `due`: delete now.
    `again`: seconds until the next look, None without an expireTime.
    `doubt`: why the sandbox is not deleted although its time has come.
    """

    due: bool = False
    again: float | None = None
    doubt: str = ""


def expiry(spec: BoxSpec, now: datetime) -> Expiry:
    """Due when `expireTime <= now`, unless the clock is impossible or the object is already terminating."""
    if spec.expire is None or spec.deleting is not None:
        return Expiry()
    left = (spec.expire - now).total_seconds()
    if left > 0:
        return Expiry(again=min(max(left, SHORTEST_WAIT), LONGEST_WAIT))
    if now < spec.created - IMPOSSIBLE:
        return Expiry(again=60.0, doubt=_doubt(spec.created, now))
    return Expiry(due=True)


def _doubt(created: datetime, now: datetime) -> str:
    return f"the clock says {times.format(now)}, but the object was created at {times.format(created)}"
