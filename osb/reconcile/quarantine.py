"""Say that a key was put into quarantine: its workers died five times in a row (spec/pitfalls.md 34)."""

from __future__ import annotations

from osb.api import names
from osb.api.key import BATCHSANDBOX, POOL, SNAPSHOT, Key
from osb.kube.events import EventRecorder
from osb.obs.log import get_logger

KINDS = {POOL: names.KIND_POOL, BATCHSANDBOX: names.KIND_BOX, SNAPSHOT: names.KIND_SNAPSHOT}

log = get_logger("reconcile")


def tell(events: EventRecorder, key: Key) -> None:
    """A Warning event on the object and an error in the log, with what to do."""
    text = (
        "reconciling it killed its worker five times in a row; it is tried again every 10 minutes, "
        f"or at once by `osbctl reconcile {key.kind} {key.member}`"
    )
    log.error("a key is quarantined", key=key.text, remedy=text)
    if key.kind in KINDS:
        ref = {"apiVersion": names.API_VERSION, "kind": KINDS[key.kind],
               "metadata": {"namespace": key.namespace, "name": key.name}}  # fmt: skip
        events.emit(ref, "Warning", names.QUARANTINED, text)
