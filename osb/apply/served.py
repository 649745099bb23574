"""What the CRDs of the cluster accept in a status, so that older ones (the reference's own) refuse none of our writes.

In: a status. Out: the same without condition types and members that the served schema does not know. A refused type
would make the server refuse the whole patch; its text goes into Progressing instead, and the Event says it anyway
(spec/additions.md 1.1). The CRD is read once in ten minutes per process; unreadable means: no restriction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from osb.api import names
from osb.decide.status import without_types
from osb.errors import ApiError
from osb.kube.client import Kube
from osb.obs.log import get_logger

CRD_OF = {
    "pool": f"pools.{names.GROUP}",
    "batchsandbox": f"batchsandboxes.{names.GROUP}",
    "snapshot": f"sandboxsnapshots.{names.GROUP}",
}
KEEP_SECONDS = 600.0

log = get_logger("crds")


@dataclass(frozen=True, slots=True)
class Accepted:
    """`types`: condition types, None = any. `members`: members of status, None = any."""

    types: frozenset[str] | None = None
    members: frozenset[str] | None = None


ANYTHING = Accepted()

_lock = threading.Lock()
_known: WeakKeyDictionary[Kube, dict[str, tuple[float, Accepted]]] = WeakKeyDictionary()


def fitted(kube: Kube, kind: str, status: Mapping[str, Any]) -> Mapping[str, Any]:
    """`status` as the cluster's CRD of that mirror kind takes it."""
    accepted = _accepted(kube, kind)
    if accepted.members is not None and not accepted.members.issuperset(status):
        status = {name: value for name, value in status.items() if name in accepted.members}
    if accepted.types is not None and status.get("conditions"):
        status = without_types(status, accepted.types)
    return status


def accepted_by(crd: Mapping[str, Any]) -> Accepted:
    """What the schema of our version says; anything where it says nothing."""
    versions = (crd.get("spec") or {}).get("versions") or ()
    version: Mapping[str, Any] = next((v for v in versions if v.get("name") == names.VERSION), {})
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    status = (schema.get("properties") or {}).get("status") or {}
    known = status.get("properties")
    if not known or status.get("x-kubernetes-preserve-unknown-fields"):
        return ANYTHING
    conditions = (known.get("conditions") or {}).get("items") or {}
    types = ((conditions.get("properties") or {}).get("type") or {}).get("enum")
    return Accepted(frozenset(types) if types else None, frozenset(known))


def _accepted(kube: Kube, kind: str) -> Accepted:
    with _lock:
        kinds = _known.setdefault(kube, {})
        at, found = kinds.get(kind, (0.0, None))
        if found is not None and time.monotonic() - at < KEEP_SECONDS:
            return found
        kinds[kind] = (time.monotonic(), found or ANYTHING)  # others do not wait for this read
    try:
        fresh = accepted_by(kube.get("crd", None, CRD_OF[kind]))
    except ApiError as error:
        log.info("the CRD could not be read; all of our status is written", crd=CRD_OF[kind], error=str(error))
        fresh = found or ANYTHING
    if fresh != found:
        _warn(kind, fresh)
    with _lock:
        kinds[kind] = (time.monotonic(), fresh)
    return fresh


def _warn(kind: str, accepted: Accepted) -> None:
    wanted = {"batchsandbox": names.BOX_CONDITIONS, "snapshot": names.SNAPSHOT_CONDITIONS}.get(kind, ())
    missing = sorted(set(wanted) - accepted.types) if accepted.types is not None else []
    if missing:
        log.warning(
            "the cluster's CRD is older than this controller: these conditions are told by Events only; "
            "apply `osbctl crds` to have them",
            crd=CRD_OF[kind], missing=", ".join(missing),
        )  # fmt: skip
