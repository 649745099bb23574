"""Small steps of `osb.store.forward` that need nothing of it: questions to the mirror, and its answers read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from osb.api import batchsandbox, claims, names
from osb.api.key import BATCHSANDBOX, POOL, SNAPSHOT, Key, of_member
from osb.decide.route_raw import Context, meta
from osb.facts.adds import Add
from osb.facts.pod import PodFact
from osb.facts.pod import decode as decode_pod
from osb.store.mirror import MirrorEntry

Fact = Mapping[str, Any] | PodFact

PODS = ("poolpod", "boxpod")
NEEDS = {"poolpod": "holders", "batchsandbox": "claims", "pool": "stars"}
RECONCILED = {"pool": POOL, "batchsandbox": BATCHSANDBOX, "snapshot": SNAPSHOT}


def question(kind: str, name: str, new: object) -> tuple[Any, ...]:
    """What `mirror_before_v1` is asked about one object."""
    if kind != "batchsandbox" or not isinstance(new, Mapping):
        return (name, "", "", (), ())
    box = batchsandbox.parse(new)
    pool = claims.effective_pool(box)[0] or claims.busy_pool(box)
    if pool in ("", "*") or box.record_error is not None:
        return (name, "", "", (), ())
    recorded = box.record.pods if box.record is not None else ()
    held = claims.claims(box)
    claimed = tuple(held[slot][0] if slot in held else "" for slot in range(len(recorded)))
    return (name, f"{box.namespace}/{pool}", box.uid, claimed, recorded)


def context_of(kind: str, extra: Any) -> Context:
    need = NEEDS.get(kind)
    if need == "holders":
        return Context(holders=tuple(name.decode() for name in extra))
    if need == "stars":
        return Context(star=tuple(name.decode() for name in extra))
    return Context(ledger_agrees=need == "claims" and extra == 1)


def fact(kind: str, entry: MirrorEntry | None) -> Fact | None:
    if entry is None:
        return None
    if kind in PODS:
        return decode_pod(entry.doc)
    obj: dict[str, Any] = orjson.loads(entry.doc)
    return obj


def later(kind: str, name: str, adds: Iterable[Add]) -> Iterator[Add]:
    """Every key once, class later and deep; due times as they are. Our own kinds add their own key too."""
    wanted: dict[Key, str] = {}
    for add in adds:
        if add.at_ms is not None:
            yield add
        else:
            wanted.setdefault(add.key, add.reason)
    if kind in RECONCILED:
        wanted.setdefault(of_member(RECONCILED[kind], name), "listed")
    for key, reason in wanted.items():
        yield Add(key=key, cls="later", deep=True, reason=reason)


def endpoints(obj: Any) -> object:
    return _annotation(obj, names.ENDPOINTS)


def record(obj: Any) -> object:
    return _annotation(obj, names.ALLOC_STATUS)


def _annotation(obj: Any, name: str) -> object:
    return meta(obj, "annotations").get(name) if obj is not None else None


def newer(one: str, other: str) -> bool:
    """Versions are numbers written as text: longer is larger, then byte order."""
    return (len(one), one) > (len(other), other)
