"""Facts for one key: from the mirror when it is known and fresh, else by live reads (spec/pitfalls.md 26).

In: a pass. Out: the loads and views that decisions read. A mirror that was flushed looks like an empty cluster, so
every read here carries its freshness; unknown or stale means the API server is asked. Next: `osb.decide`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from osb.api import claims, names
from osb.api.batchsandbox import BoxSpec
from osb.api.key import BATCHSANDBOX, POOL, SNAPSHOT
from osb.errors import NotFound
from osb.facts import pod as pods
from osb.facts.pod import PodFact
from osb.facts.poolview import NodeFact
from osb.reconcile import readable
from osb.reconcile.world import Pass
from osb.store import mirror
from osb.store.mirror import NODE, MirrorEntry, Reading

Obj = dict[str, Any]

STALE_MS = mirror.STALE_MS
RECONCILED = (POOL, BATCHSANDBOX, SNAPSHOT)
DRAIN_TAINTS = ("ToBeDeletedByClusterAutoscaler", "node.kubernetes.io/out-of-service")
LABELS = {"poolpod": names.LABEL_POOL_NAME, "boxpod": names.LABEL_BOX_NAME}


@dataclass(frozen=True, slots=True)
class Box:
    """A sandbox as read: its raw object and what decisions see of it."""

    raw: Obj
    spec: BoxSpec


def fresh(reading: Reading) -> bool:
    """May this reading be decided on?"""
    return reading.fresh(STALE_MS)


def doc(entry: MirrorEntry | None) -> Obj | None:
    """The mirrored object of a kind that is kept whole."""
    return orjson.loads(entry.doc) if entry is not None else None


def live(p: Pass, kind: str, namespace: str, name: str) -> Obj | None:
    """The live object, None when there is none."""
    try:
        return p.kube.get(kind, namespace, name)
    except NotFound:
        return None


def refresh(p: Pass) -> None:
    """Move the mirror forward to the pass's own object as it is; a change in it is routed as if an event had come."""
    if p.key.kind in RECONCILED:
        raw = live(p, p.key.kind, p.key.namespace, p.key.name)
        if raw is not None:
            p.forward.put(p.key.kind, [raw], own=p.key)


def read_one(p: Pass, kind: str, namespace: str, name: str) -> Obj | None:
    """One of our own objects: the mirror's, or a live read when the mirror is unknown, stale or lacks it."""
    reading = p.store.mirror.read(kind, [f"{namespace}/{name}"])
    found = doc(reading.entries[f"{namespace}/{name}"])
    if found is not None and fresh(reading):
        return found
    return live(p, kind, namespace, name)


def parsed(raws: Iterable[Obj]) -> list[Box]:
    return [Box(raw, readable.box(raw)) for raw in raws]


def boxes_of_pool(p: Pass, pool: str) -> tuple[list[Box], bool]:
    """(every sandbox whose effective or recorded pool this is, whether the mirror answered)."""
    namespace = p.key.namespace
    value = f"{namespace}/{pool}"
    found: dict[str, Obj] = {}
    for index in ("pool", "busy"):
        reading = p.store.mirror.load("batchsandbox", index, value)
        if not fresh(reading):
            return live_boxes(p, pool), False
        for name, entry in reading.entries.items():
            if entry is not None and name not in found:
                found[name] = orjson.loads(entry.doc)
    return parsed(found.values()), True


def live_boxes(p: Pass, pool: str, *, all_claims: bool = False) -> list[Box]:
    """Every sandbox whose effective or recorded pool this is, by a live list of the namespace.

    `all_claims`: also those whose record may name pods of this pool though poolRef says nothing of it: one that
      cannot be read, one that names no pool, one that was taken off.
    """
    every, _ = p.kube.all("batchsandbox", p.key.namespace)
    return [box for box in parsed(every) if _concerns(box.spec, pool) or (all_claims and _may_claim(box.spec))]


def _concerns(box: BoxSpec, pool: str) -> bool:
    if pool in (claims.effective_pool(box)[0], claims.busy_pool(box)):
        return True
    return box.record is not None and box.record.pool_ref == pool


def _may_claim(box: BoxSpec) -> bool:
    return names.FINALIZER_POOL in box.finalizers or box.record_error is not None or box.record is not None


def pods_of(p: Pass, kind: str, owner_uid: str) -> tuple[list[PodFact], bool]:
    """(pods controlled by that UID, whether the mirror answered). `kind` is poolpod or boxpod."""
    reading = p.store.mirror.load(kind, "owner", owner_uid)
    if fresh(reading):
        return [pods.decode(entry.doc) for entry in reading.entries.values() if entry is not None], True
    return live_pods(p, kind, owner_uid), False


def live_pods(p: Pass, kind: str, owner_uid: str) -> list[PodFact]:
    """The pods of `pods_of` by a live list: our label first, then the owner's UID decides."""
    selector = LABELS[kind]
    if kind == "poolpod" and p.key.kind == POOL:
        selector = f"{selector}={p.key.name}"
    raws, _ = p.kube.all("pod", p.key.namespace, labels=selector)
    facts = (pods.pod_fact(raw) for raw in raws)
    return [fact for fact in facts if fact.owner_uid == owner_uid]


def pods_named(p: Pass, kind: str, names_: Sequence[str]) -> dict[str, PodFact]:
    """Pods by name from the mirror; live reads for all of them when it is not fresh. Absent ones are left out."""
    members = [f"{p.key.namespace}/{name}" for name in names_]
    reading = p.store.mirror.read(kind, members)
    if fresh(reading):
        found = (pods.decode(entry.doc) for entry in reading.entries.values() if entry is not None)
        return {fact.name: fact for fact in found}
    result: dict[str, PodFact] = {}
    for name in names_:
        raw = live(p, "pod", p.key.namespace, name)
        if raw is not None:
            result[name] = pods.pod_fact(raw)
    return result


def held_pods(p: Pass, box: BoxSpec) -> dict[int, PodFact]:
    """Slot -> pod of everything the record holds and that is still there, by name and UID."""
    held = claims.claims(box)
    found = pods_named(p, "poolpod", [name for name, _ in held.values()]) if held else {}
    return matching(held, found)


def matching(held: Mapping[int, tuple[str, str]], found: Mapping[str, PodFact]) -> dict[int, PodFact]:
    """The recorded pods that exist under the recorded UID."""
    result: dict[int, PodFact] = {}
    for slot, (name, uid) in held.items():
        fact = found.get(name)
        if fact is not None and (not uid or fact.uid.startswith(uid)):
            result[slot] = fact
    return result


def cordoned(p: Pass) -> dict[str, NodeFact] | None:
    """Nodes that idle pods must leave, by name; None when no watcher says which (none may list nodes, or none lives).

    Those of a list under way count too: each woke the pools when it came in, for a pass that must see it.
    """
    reading = p.store.mirror.load(NODE, "cordoned", "")
    if not 0 <= reading.age_ms <= STALE_MS:
        return None
    facts = (_node_fact(orjson.loads(entry.doc)) for entry in reading.entries.values() if entry is not None)
    return {fact.name: fact for fact in facts}


def _node_fact(obj: Obj) -> NodeFact:
    draining = any(taint.get("key") in DRAIN_TAINTS for taint in obj["spec"].get("taints") or ())
    return NodeFact(name=obj["metadata"]["name"], unschedulable=True, draining=draining)
