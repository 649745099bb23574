"""Rates shared by all processes: token buckets in Redis.

In: a name, a rate and a size. Out: "go", or how long to wait (as `After`, never as a sleep in a worker slot).
"""

from __future__ import annotations

import math

from osb.errors import ConfigError
from osb.store import keys
from osb.store.scripts import Scripts


class Limits:
    """A bucket exists while it is not full; after a loss of Redis all are full."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    def take(self, name: str, *, rate: float, burst: float, tokens: float = 1.0) -> float:
        """Take `tokens` from a bucket of size `burst` that fills with `rate` per second.

        0.0: taken. More: nothing was taken, ask again after so many seconds; infinite: more than it can ever
        hold. An unclear answer (StoreDown) may have taken them: at worst the next one waits longer.
        """
        if rate <= 0 or burst <= 0:
            raise ConfigError(f"limit {name}: rate and burst must be above 0, got {rate:g} and {burst:g}")
        wait = self._scripts.call("limit_take_v1", [keys.limit(name)], [repr(rate), repr(burst), repr(tokens)])
        return math.inf if wait < 0 else wait / 1000
