"""`Add`: one request to the work queue, as `osb.decide.route` returns it and `osb.store.queue` carries it out."""

from __future__ import annotations

from typing import Literal

import msgspec

from osb.api.key import BATCHSANDBOX, POOL, Key

Class = Literal["now", "later"]

EVERY_POOL = Key(POOL, "*", "*")
"""Stands for each pool that the mirror has at that moment, once in a call of a script however often it is asked for."""

EVERY_STAR = Key(BATCHSANDBOX, "*", "*")
"""Stands in the same way for each sandbox that waits for the choice of a pool, in every namespace that has one."""


class Add(msgspec.Struct, frozen=True, kw_only=True):
    """Mark `key` dirty, or set its due time when `after` or `at_ms` is given.

    `deep` asks for a full pass. `deletion` also forgets failures and the hot-loop allowance. `after` is in seconds
    from now, `at_ms` an absolute time in ms since the epoch; the earliest due time of a key wins. `reason` is read by
    people only and is cut at 120 characters.
    """

    key: Key
    cls: Class = "now"
    deep: bool = False
    deletion: bool = False
    reason: str = ""
    after: float | None = None
    at_ms: int | None = None
