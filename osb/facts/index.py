"""`entry`: an object to what the mirror keeps of it: document, indexes, rank. Pure; run for each event.

In: a mirror kind and the raw object. Out: an `Entry`. Whoever puts it (`osb.store.forward`) adds nothing to
it. Values of indexes are `ns/name` or UIDs; scores order the members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from osb.api import batchsandbox, claims, names, times
from osb.api.reading import part, text
from osb.facts.pod import PodFact, encode, pod_fact

Raw = Mapping[str, Any]
IndexItem = tuple[str, str, float]

POOL: Final = "pool"
BATCHSANDBOX: Final = "batchsandbox"
SNAPSHOT: Final = "snapshot"
POOLPOD: Final = "poolpod"
BOXPOD: Final = "boxpod"
JOB: Final = "job"
NODE: Final = "node"
CONFIGMAP: Final = "configmap"

KINDS: Final = (POOL, BATCHSANDBOX, SNAPSHOT, POOLPOD, BOXPOD, JOB, NODE, CONFIGMAP)
POD_KINDS: Final = (POOLPOD, BOXPOD)

MS_PER_PRIORITY: Final = 6000  # waiting a minute counts like 10 points of priority (spec/additions.md 2.3)


class Entry(NamedTuple):
    name: str  # ns/name
    uid: str
    version: str
    doc: bytes
    indexes: tuple[IndexItem, ...]  # (index, value, score)
    rank: float | None = None  # of a pool pod that may be handed out: ready for longest first


def entry(kind: str, obj: Raw) -> Entry:
    """The mirror's entry of an object. Raises KeyError for an unknown kind, never for what a user wrote."""
    if kind in POD_KINDS:
        return _pod_entry(kind, pod_fact(obj))
    meta = obj["metadata"]
    return Entry(
        f"{meta.get('namespace') or ''}/{meta['name']}",
        meta.get("uid") or "",
        meta.get("resourceVersion") or "",
        orjson.dumps(_node(obj) if kind == NODE else _without_managers(obj)),
        tuple(_INDEXES[kind](obj)),
    )


def _without_managers(obj: Raw) -> Raw:
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "managedFields"}}


def _node(obj: Raw) -> Raw:
    """A few hundred bytes instead of the whole, which lists every image that its node has."""
    meta, spec = obj["metadata"], obj.get("spec") or {}
    return {
        "metadata": {k: meta[k] for k in ("name", "uid", "resourceVersion") if k in meta},
        "spec": {k: spec[k] for k in ("unschedulable", "taints") if k in spec},
    }


def _pod_entry(kind: str, fact: PodFact) -> Entry:
    owner: tuple[IndexItem, ...] = (("owner", fact.owner_uid, float(fact.created)),) if fact.owner_uid else ()
    rank = float(fact.ready_since) if kind == POOLPOD and fact.offerable else None
    return Entry(fact.member, fact.uid, fact.version, encode(fact), owner, rank)


def _box_indexes(obj: Raw) -> Iterator[IndexItem]:
    box = batchsandbox.parse(obj)
    namespace, created = box.namespace, float(times.to_ms(box.created))
    pool, _ = claims.effective_pool(box)
    if pool == names.ANY_POOL:
        if box.deleting is None:
            yield "star", namespace, created
    elif pool:
        yield "pool", f"{namespace}/{pool}", created
        if claims.wants(box):
            yield "wait", f"{namespace}/{pool}", created - box.priority * MS_PER_PRIORITY
    if busy := claims.busy_pool(box):
        yield "busy", f"{namespace}/{busy}", created
    for slot, (pod, _) in claims.claims(box).items():
        yield "holder", f"{namespace}/{pod}", float(slot)
    if box.task_template is not None:
        yield "tasks", namespace, created


def _snapshot_indexes(obj: Raw) -> Iterator[IndexItem]:
    meta = obj["metadata"]
    created = float(times.ms(meta.get("creationTimestamp")))
    yield from _owner(meta, created)
    if box := text(part(obj, "spec"), "sandboxName"):
        yield "box", f"{meta.get('namespace') or ''}/{box}", created


def _job_indexes(obj: Raw) -> Iterator[IndexItem]:
    """Jobs belong to the snapshot that controls them; a label names it only for people."""
    meta = obj["metadata"]
    created = float(times.ms(meta.get("creationTimestamp")))
    yield from _owner(meta, created)
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == names.KIND_SNAPSHOT:
            yield "snapshot", f"{meta.get('namespace') or ''}/{owner.get('name')}", created


def _owner(meta: Raw, created: float) -> Iterator[IndexItem]:
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller") and owner.get("uid"):
            yield "owner", owner["uid"], created


def _no_indexes(obj: Raw) -> Iterator[IndexItem]:
    return iter(())


def _node_indexes(obj: Raw) -> Iterator[IndexItem]:
    """All of them under one value: a pass reads them in one trip."""
    yield "cordoned", "", 0.0


_INDEXES: Mapping[str, Callable[[Raw], Iterator[IndexItem]]] = {
    POOL: _no_indexes,
    BATCHSANDBOX: _box_indexes,
    SNAPSHOT: _snapshot_indexes,
    JOB: _job_indexes,
    NODE: _node_indexes,
    CONFIGMAP: _no_indexes,
}
