"""Lists: pages of a consistent snapshot, with continue tokens that can expire.

Next: `osb.sim.server` sends the bytes.
"""

from __future__ import annotations

import base64
import binascii
import itertools
from collections import OrderedDict
from collections.abc import Iterable

import orjson

from osb.sim import refusals
from osb.sim.kinds import Resource
from osb.sim.selectors import Predicate
from osb.sim.storage import Obj, Record

_KEPT = 200  # snapshots behind continue tokens; the oldest expires first

_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter."
)


class Pages:
    """Snapshots of lists in progress. A token may be used again, as on the real server."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, list[Record]]] = OrderedDict()
        self._ids = itertools.count(1)

    def first(self, records: list[Record], version: int, limit: int) -> tuple[list[Record], str, int]:
        """The first page, its continue token ("" when all fitted) and how many remain."""
        if not limit or len(records) <= limit:
            return records, "", 0
        snapshot = str(next(self._ids))
        self._kept[snapshot] = (version, records)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return records[:limit], _token(snapshot, version, limit), len(records) - limit

    def after(self, token: str, limit: int) -> tuple[list[Record], str, int, int]:
        """A later page and the version of its snapshot. 410 when the snapshot is gone, 400 for nonsense."""
        try:
            state = orjson.loads(base64.urlsafe_b64decode(token))
            snapshot, start = str(state["id"]), int(state["start"])
        except (binascii.Error, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise refusals.bad_request(f"continue key is not valid: {error}") from error
        if snapshot not in self._kept:
            raise refusals.expired(_EXPIRED)
        version, records = self._kept[snapshot]
        end = start + limit if limit else len(records)
        more = _token(snapshot, version, end) if end < len(records) else ""
        return records[start:end], more, max(0, len(records) - end), version

    def expire(self) -> None:
        """Every token handed out so far is too old."""
        self._kept.clear()


def _token(snapshot: str, version: int, start: int) -> str:
    state = {"v": "meta.k8s.io/v1", "rv": version, "id": snapshot, "start": start}
    return base64.urlsafe_b64encode(orjson.dumps(state)).decode()


def select(records: Iterable[Record], predicate: Predicate | None) -> list[Record]:
    if predicate is None:
        return list(records)
    return [record for record in records if predicate(record.obj)]


def list_meta(version: int, more: str, remaining: int, *, exact: bool) -> Obj:
    """`remaining` is only told when no selector filtered (`exact`)."""
    meta: Obj = {"resourceVersion": str(version)}
    if more:
        meta["continue"] = more
        if exact:
            meta["remainingItemCount"] = remaining
    return meta


def encode(res: Resource, meta: Obj, raws: Iterable[bytes]) -> bytes:
    """The list from its items' stored encodings."""
    head = orjson.dumps({"kind": f"{res.kind}List", "apiVersion": res.api_version, "metadata": meta})
    return b"".join((head[:-1], b',"items":[', b",".join(raws), b"]}"))
