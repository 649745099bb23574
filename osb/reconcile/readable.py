"""Objects read for a pass about others: one that cannot be read never stops it.

In: raw objects. Out: Pools without those that cannot be read, and every sandbox; one that cannot be read stands in
quarantine, so that its pods stay with it and nothing else is done about it. Next: whoever decides on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from osb.api import batchsandbox, names
from osb.api import pool as pools
from osb.api.batchsandbox import BoxSpec
from osb.api.pool import PoolSpec
from osb.api.reading import text, texts
from osb.errors import RecordUnreadable
from osb.obs import unread

Obj = Mapping[str, Any]

_WHOLE = "object"  # field of the error that says so


def every_pool(raws: Iterable[Obj]) -> Iterator[PoolSpec]:
    """Those that can be read."""
    found = (unread.tried(*unread.state("pool", raw), pools.parse, raw) for raw in raws)
    return (spec for spec in found if spec is not None)


def box(raw: Obj) -> BoxSpec:
    """The sandbox, or one in quarantine in its place."""
    try:
        return batchsandbox.parse(raw)
    except Exception as error:  # noqa: BLE001  the fence: whatever it is, the others are served
        unread.tell(*unread.state("batchsandbox", raw), error)
        return _quarantined(raw, error)


def stands_in(box: BoxSpec) -> bool:
    """Whether it only stands in for a sandbox that cannot be read."""
    return box.record_error is not None and box.record_error.field == _WHOLE


def _quarantined(raw: Obj, error: Exception) -> BoxSpec:
    """Identity and annotations only: a rebuild of the ledger looks in them for names of pods. Never as terminating,
    because then its pods would be taken back."""
    meta = raw["metadata"]
    return BoxSpec(
        namespace=text(meta, "namespace"),
        name=text(meta, "name"),
        uid=text(meta, "uid"),
        version=text(meta, "resourceVersion"),
        annotations=texts(meta.get("annotations")),
        finalizers=tuple(meta.get("finalizers") or ()),
        phase=names.FAILED,
        record_error=RecordUnreadable(_WHOLE, f"cannot be read: {error!r:.200}"),
    )
