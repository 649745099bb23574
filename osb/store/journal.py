"""The journal: the last decisions, for `osbctl explain` and `osbctl journal`. Nothing decides on it.

In: one entry per decision (a plain dict). Out: entries, newest first. A capped stream of about 10,000; lost
with Redis, never rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson
import redis

from osb.store import keys
from osb.store.scripts import redis_errors

LENGTH: Final = 10_000
ENTRY_BYTES: Final = 8 * 1024
_PAGE: Final = 500


class Journal:
    """`pool` and `box` of an entry are `namespace/name`; `boxes` may list several."""

    def __init__(self, client: redis.Redis, *, length: int = LENGTH) -> None:
        self._redis = client
        self._length = length

    def append(self, *entries: Mapping[str, Any]) -> None:
        """Keep entries, in one trip. One above 8 KiB loses its lists and long texts and says `cut`."""
        with redis_errors("append to the journal"):
            pipe = self._redis.pipeline(transaction=False)
            for entry in entries:
                pipe.xadd(keys.JOURNAL, {"e": _packed(entry)}, maxlen=self._length, approximate=True)
            pipe.execute()

    def read(self, *, pool: str = "", box: str = "", limit: int = 100) -> list[dict[str, Any]]:
        """The newest `limit` entries about a pool, a sandbox, or both; each with `at_ms`, by Redis' clock."""
        found: list[dict[str, Any]] = []
        for entry in self._newest_first():
            if len(found) >= limit:
                break
            if _about(entry, pool, box):
                found.append(entry)
        return found

    def _newest_first(self) -> Iterator[dict[str, Any]]:
        last = "+"
        while True:
            with redis_errors("read the journal"):
                page = self._redis.xrevrange(keys.JOURNAL, max=last, min="-", count=_PAGE)
            for stamp, fields in page:
                entry = orjson.loads(fields[b"e"])
                entry["at_ms"] = int(stamp.split(b"-")[0])
                yield entry
            if len(page) < _PAGE:
                return
            last = f"({page[-1][0].decode()}"


def _about(entry: Mapping[str, Any], pool: str, box: str) -> bool:
    boxes: Iterable[Any] = entry.get("boxes") or (entry.get("box"),)
    return (not pool or entry.get("pool") == pool) and (not box or box in boxes)


def _packed(entry: Mapping[str, Any]) -> bytes:
    packed = orjson.dumps(entry, default=str)
    if len(packed) <= ENTRY_BYTES:
        return packed
    short = {
        name: value[:200] if isinstance(value, str) else value
        for name, value in list(entry.items())[:30]
        if isinstance(value, (str, int, float, bool))
    }
    return orjson.dumps(short | {"cut": True})
