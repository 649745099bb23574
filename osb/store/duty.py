"""Duties that one process does at a time, and signs of life.

In: a name and an owner (random text per process). Out: who acts. A duty is only politeness: whatever it
guards must be harmless when two do it, since a lease may run out under a frozen holder. Used by `beat` (which
one acts), by `osb.reconcile.duties` (each slot's sweep once) and by `osb.reconcile.installation` (a copy of
the Lease's state).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson
import redis

from osb.store import keys
from osb.store.scripts import Scripts, redis_errors

_STAMP_TTL_MS: Final = 600_000
_HOLDER_TTL_MS: Final = 60_000
_UNWATCHED_TTL_MS: Final = 24 * 3600 * 1000


class Stamp(NamedTuple):
    """A sign of life: how long ago (s), and its text."""

    age: float
    text: str


class Duty:
    """All of these raise StoreDown, and may be repeated."""

    def __init__(self, client: redis.Redis, scripts: Scripts) -> None:
        self._redis = client
        self._scripts = scripts

    def hold(self, name: str, owner: str, ttl: float) -> bool:
        """Take or prolong the duty for `ttl` seconds. False: another owner has it."""
        return bool(self._scripts.call("duty_hold_v1", [keys.duty(name)], [owner, _ms(ttl)]) == 1)

    def release(self, name: str, owner: str) -> bool:
        """Give the duty up so that the next process acts at once. False: it was not ours any more."""
        return bool(self._scripts.call("duty_release_v1", [keys.duty(name)], [owner]) == 1)

    def holder(self, name: str) -> str | None:
        """Who has the duty, for people."""
        with redis_errors(f"read duty {name}"):
            owner = self._redis.get(keys.duty(name))
        return owner.decode() if owner else None

    def slot(self, name: str, number: int, *, ttl: float) -> bool:
        """True for the one process that takes time slot `number` (= time // period) of a periodic duty.

        Slots missed in an outage are not made up for. `ttl` (s) above the period.
        """
        return bool(self._scripts.call("duty_slot_v1", [keys.slot(name)], [number, _ms(ttl)]) == 1)

    def stamp(self, key: str, text: str = "", *, ttl_ms: int = _STAMP_TTL_MS) -> None:
        """Note that something was alive just now."""
        self._scripts.call("stamp_set_v1", [key], [text, ttl_ms])

    def stamped(self, key: str) -> Stamp | None:
        """The last sign of life, or None when there was none for as long as it is kept."""
        age, text = self._scripts.call("stamp_read_v1", [key], [])
        return None if age < 0 else Stamp(age / 1000, text.decode())

    # -- the installation's Lease, as workers see it (spec/operations.md 4) -------

    def publish_holder(self, foreign: str) -> None:
        """What the Lease said just now: the other controller that holds it, or '' when it is ours."""
        self.stamp(keys.HOLDER, foreign, ttl_ms=_HOLDER_TTL_MS)

    def holder_age(self) -> float:
        """Seconds since somebody of ours looked at the Lease; infinite when nobody did within a minute."""
        return _age(self.stamped(keys.HOLDER))

    def foreign_holder(self) -> str | None:
        """The other controller that holds the Lease, as far as is known, or None."""
        seen = self.stamped(keys.HOLDER)
        return (seen.text or None) if seen else None

    # -- what workers decide by, for people who look with a command line of their own -------

    def tell_settings(self, deciding: Mapping[str, Any]) -> None:
        """Note the settings that decisions depend on; the last worker that told counts."""
        self.stamp(keys.SETTINGS, orjson.dumps(deciding).decode())

    def settings_told(self) -> dict[str, Any] | None:
        """What a worker told within ten minutes, or None."""
        seen = self.stamped(keys.SETTINGS)
        try:
            told = orjson.loads(seen.text) if seen else None
        except orjson.JSONDecodeError:
            return None
        return told if isinstance(told, dict) else None

    def watcher_seen(self) -> None:
        """A watcher is fresh."""
        self.stamp(keys.WATCHED)

    def watcher_age(self) -> float:
        """Seconds since some watcher was fresh; infinite when unknown."""
        return _age(self.stamped(keys.WATCHED))

    def note_unwatched(self, seconds: float) -> None:
        """Nobody watched the cluster for so long before now; kept for a day, for rebuilds that judge pods."""
        self.stamp(keys.UNWATCHED, f"{seconds:.3f}", ttl_ms=_UNWATCHED_TTL_MS)

    def unwatched(self) -> Stamp | None:
        """The last such gap: how long ago it ended, and in `text` its length in seconds."""
        return self.stamped(keys.UNWATCHED)


def _age(stamp: Stamp | None) -> float:
    return stamp.age if stamp else math.inf


def _ms(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1000))
