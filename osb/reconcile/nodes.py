"""Nodes that idle pods should leave: cordoned or draining ones, from a copy at most 30 s old.

One list with a field selector per process and half minute; without permission to list nodes the feature is off, said
once. Next: `osb.decide.evict`.
"""

from __future__ import annotations

import threading
import time

from osb.errors import ApiError, Refused
from osb.facts.poolview import NodeFact
from osb.kube.client import Kube
from osb.obs.log import get_logger

KEEP_SECONDS = 30.0
DRAIN_TAINTS = ("ToBeDeletedByClusterAutoscaler", "node.kubernetes.io/out-of-service")

log = get_logger("reconcile")


class Nodes:
    """Thread-safe; `read` never raises."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read = 0.0
        self._nodes: dict[str, NodeFact] | None = {}
        self._denied = False

    def read(self, kube: Kube) -> dict[str, NodeFact] | None:
        """Nodes that are cordoned; None when they cannot be read."""
        with self._lock:
            if self._denied or (self._read and time.monotonic() - self._read < KEEP_SECONDS):
                return self._nodes
            self._read = time.monotonic()
        try:
            raws, _ = kube.all("node", fields="spec.unschedulable=true")
        except Refused as refused:
            log.warning("cordoned nodes are not considered: nodes cannot be listed", error=str(refused))
            self._denied, self._nodes = True, None
            return None
        except ApiError as error:
            log.info("nodes could not be listed", error=str(error))
            return self._nodes
        self._nodes = {
            raw["metadata"]["name"]: NodeFact(
                name=raw["metadata"]["name"],
                unschedulable=True,
                draining=any(t.get("key") in DRAIN_TAINTS for t in (raw.get("spec") or {}).get("taints") or ()),
            )
            for raw in raws
        }
        return self._nodes
