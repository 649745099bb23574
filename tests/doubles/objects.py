"""Raw objects as a watch would show them, and what the queue then holds."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import orjson

from osb.api import names
from osb.api.key import Key
from osb.facts.adds import Add
from osb.facts.ledger import LedgerEntry
from osb.store.client import Store
from osb.store.ledger_types import Grant, Proof

POOL = Key("pool", "ns", "warm")
BOX = Key("batchsandbox", "ns", "s1")
CREATED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Page:
    items: list[dict[str, Any]]
    version: str


def meta(name: str, version: int, **more: Any) -> dict[str, Any]:
    base = {
        "namespace": "ns",
        "name": name,
        "uid": f"{name}-uid",
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": CREATED,
    }
    return base | more


def box(name: str = "s1", version: int = 1, *, annotations: Any = None, **spec: Any) -> dict[str, Any]:
    spec = {"replicas": 1, "poolRef": "warm"} | spec
    return {"metadata": meta(name, version, annotations=annotations or {}), "spec": spec}


def cordoned(name: str = "n1", version: int = 1) -> dict[str, Any]:
    """A node as the watch of cordoned ones shows it."""
    return {
        "metadata": {"name": name, "uid": f"{name}-uid", "resourceVersion": str(version)},
        "spec": {"unschedulable": True},
    }


def recorded(*pods: str, released: tuple[str, ...] = ()) -> dict[str, str]:
    found = {names.ALLOC_STATUS: orjson.dumps({"pods": pods, "poolRef": "warm", "seq": 1}).decode()}
    if released:
        found[names.ALLOC_RELEASED] = orjson.dumps({"pods": released}).decode()
    return found


def pod(name: str = "p1", version: int = 1, *, ready: bool = False, owner: str = "warm", **more: Any) -> Any:
    ref = {
        "apiVersion": names.API_VERSION,
        "kind": "Pool",
        "name": owner,
        "uid": "warm-uid",
        "controller": True,
    }
    status: dict[str, Any] = {"phase": "Running" if ready else "Pending"}
    if ready:
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}]
    return {
        "metadata": meta(name, version, ownerReferences=[ref], **more),
        "spec": {"containers": [{"name": "main", "image": "i"}]},
        "status": status,
    }


def pool(version: int = 1, *, generation: int = 1) -> dict[str, Any]:
    return {
        "metadata": meta("warm", version, generation=generation),
        "spec": {"capacitySpec": {"bufferMin": generation}},
    }


def dirty(store: Store, kind: str = "pool") -> set[Key]:
    return {found.key for found in store.queue.listing(kind, "dirty")}


def due(store: Store, kind: str = "pool") -> set[Key]:
    return {found.key for found in store.queue.listing(kind, "due")}


def forget(store: Store, *keys_: Key) -> None:
    for key in keys_ or (POOL, BOX):
        store.queue.forget(key)


def ledger_with(store: Store, entries: dict[str, LedgerEntry]) -> Proof:
    forget(store, POOL)
    store.queue.add([Add(key=POOL)])
    token = uuid.uuid4().hex
    store.queue.begin(POOL, token)
    proof = Proof(POOL.member, token, "warm-uid")
    store.ledger("ns", "warm").begin_rebuild(proof, "e1")
    store.ledger("ns", "warm").commit(proof, "e1", entries)
    return proof


def grant(pod: str = "p1", slot: int = 0) -> Grant:
    return Grant(pod, f"{pod}-uid", "s1-uid", "s1", slot)
