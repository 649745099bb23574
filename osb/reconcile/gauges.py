"""Gauges of the cluster's state, from the mirror, by the beat that acts: one process knows them all.

`replace` swaps a whole family, so a pool that is gone leaves no value behind. Next: a scrape of beat's metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

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
        status, capacity = obj.get("status") or {}, (obj.get("spec") or {}).get("capacitySpec") or {}
        pods |= {(*where, state): float(status.get(state) or 0) for state in POOL_STATES}
        limits |= {(*where, bound): float(capacity.get(bound) or 0) for bound in BOUNDS}
        waiting[where] = float(status.get("waiting") or 0)
        unmet[where] = float(status.get("unmet") or 0)
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
        status = obj.get("status") or {}
        phase = (namespace, status.get("phase") or "none")
        phases[phase] = phases.get(phase, 0) + 1
        wanted = (obj.get("spec") or {}).get("replicas")
        found = {"desired": 1 if wanted is None else wanted}
        found |= {state: status.get(field) or 0 for state, field in REPLICAS.items()}
        for state, value in found.items():
            replicas[namespace, state] = replicas.get((namespace, state), 0) + float(value)
    metrics.replace("opensandbox_batchsandboxes", phases)
    metrics.replace("opensandbox_batchsandbox_replicas", replicas)


def _objects(store: Store, kind: str) -> Iterator[dict[str, Any]]:
    members = store.mirror.names(kind)
    for at in range(0, len(members), CHUNK):
        for entry in store.mirror.read(kind, members[at : at + CHUNK]).entries.values():
            if entry is not None:
                yield orjson.loads(entry.doc)
