"""Gauges of the cluster's state, from the mirror, by the beat that acts: one process knows them all.

`replace` swaps a whole family, so a pool that is gone leaves no value behind. Next: a scrape of beat's metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from osb.api.reading import part, text
from osb.obs import metrics
from osb.store.client import Store

CHUNK = 500
POOL_STATES = ("total", "allocated", "available", "updated", "pending", "terminating")
BOUNDS = ("poolMin", "poolMax", "bufferMin", "bufferMax")
REPLICAS = {"current": "replicas", "allocated": "allocated", "ready": "ready"}

Values = dict[tuple[str, ...], float]


def pools(store: Store) -> None:
    """Pods, limits and the line of every pool."""
    pods: Values = {}
    limits: Values = {}
    waiting: Values = {}
    unmet: Values = {}
    for obj in _objects(store, "pool"):
        where = (obj["metadata"].get("namespace") or "", obj["metadata"]["name"])
        status, capacity = part(obj, "status"), part(part(obj, "spec"), "capacitySpec")
        pods |= {(*where, state): _number(status, state) for state in POOL_STATES}
        limits |= {(*where, bound): _number(capacity, bound) for bound in BOUNDS}
        waiting[where] = _number(status, "waiting")
        unmet[where] = _number(status, "unmet")
    metrics.replace("opensandbox_pool_pods", pods)
    metrics.replace("opensandbox_pool_capacity", limits)
    metrics.replace("opensandbox_pool_pending_sandboxes", waiting)
    metrics.replace("opensandbox_pool_unmet_pods", unmet)


def sandboxes(store: Store) -> None:
    """Sandboxes by phase, and their pods."""
    phases: Values = {}
    replicas: Values = {}
    for obj in _objects(store, "batchsandbox"):
        namespace = obj["metadata"].get("namespace") or ""
        status, spec = part(obj, "status"), part(obj, "spec")
        phase = (namespace, text(status, "phase") or "none")
        phases[phase] = phases.get(phase, 0) + 1
        found = {"desired": 1.0 if spec.get("replicas") is None else _number(spec, "replicas")}
        found |= {state: _number(status, field) for state, field in REPLICAS.items()}
        for state, value in found.items():
            replicas[namespace, state] = replicas.get((namespace, state), 0) + value
    metrics.replace("opensandbox_batchsandboxes", phases)
    metrics.replace("opensandbox_batchsandbox_replicas", replicas)


def _number(data: Mapping[str, Any], member: str) -> float:
    value = data.get(member)
    return float(value) if isinstance(value, int | float) else 0.0


def _objects(store: Store, kind: str) -> Iterator[dict[str, Any]]:
    members = store.mirror.names(kind)
    for at in range(0, len(members), CHUNK):
        for entry in store.mirror.read(kind, members[at : at + CHUNK]).entries.values():
            if entry is not None:
                yield orjson.loads(entry.doc)
