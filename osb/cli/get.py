"""`osbctl get`: pools, sandboxes or snapshots as a table, read live from the API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from osb.api import names
from osb.api.key import BATCHSANDBOX, POOL, SNAPSHOT
from osb.cli import output as out
from osb.cli.context import Kubeconfig, Namespace, Output, RedisUrl, Wrong, key_of, kind_of, reach

EXAMPLE = "Example: osbctl get pools -A"

Obj = dict[str, Any]
WAITS = (
    names.QUARANTINED, names.PROGRESSING, names.POD_FAILED, names.RESUME_FAILED, names.PAUSE_FAILED,
    names.SPEC_INVALID, names.POOL_REF_UPDATE_REJECTED,
)  # fmt: skip


def get(
    kind: str = typer.Argument(..., help="pools, sandboxes or snapshots"),
    name: str = typer.Argument("", help="one object, namespace/name"),
    namespace: Namespace = "default",
    everywhere: bool = typer.Option(False, "--all-namespaces", "-A", help="all namespaces"),
    output: Output = "table",
    redis_url: RedisUrl = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """List objects: what they want, what they have, why they wait."""
    out.checked_format(output)
    try:
        what = kind_of(kind)
    except Wrong:
        what = ""
    if what not in COLUMNS:
        raise Wrong(f"get {kind}: pools, sandboxes or snapshots is accepted")
    with reach(redis_url, kubeconfig) as one:
        if name:
            key = key_of(kind, name, namespace)
            items = [one.fetch(what, key.namespace, key.name)]
        else:
            items, _ = one.kube.all(what, None if everywhere else namespace)
    if output != "table":
        out.data(items[0] if name else {"apiVersion": "v1", "kind": "List", "items": items}, output)
        return
    headers, row = COLUMNS[what]
    out.table(["NAMESPACE", "NAME", *headers, "AGE"], (
        [i["metadata"]["namespace"], i["metadata"]["name"], *row(i.get("spec") or {}, i.get("status") or {}),
         out.age(i["metadata"].get("creationTimestamp"))] for i in items))  # fmt: skip


def _pool(spec: Obj, status: Obj) -> list[object]:
    band = spec.get("capacitySpec") or {}
    return [
        status.get("total", 0), status.get("allocated", 0), status.get("available", 0), status.get("pending", 0),
        status.get("waiting", 0), f"{band.get('bufferMin')}-{band.get('bufferMax')}",
        f"{band.get('poolMin')}-{band.get('poolMax')}", _troubles(status),
    ]  # fmt: skip


def _troubles(status: Obj) -> str:
    conditions = status.get("conditions") or []
    bad = [c["type"] for c in conditions if c.get("status") == "True" and c["type"] != "Ready"]
    ready = next((c.get("status") for c in conditions if c["type"] == "Ready"), "?")
    return ", ".join(bad) or ("Ready" if ready == "True" else "not Ready")


def _box(spec: Obj, status: Obj) -> list[object]:
    return [
        spec.get("poolRef") or "-", spec.get("replicas"), status.get("allocated", 0), status.get("ready", 0),
        status.get("phase") or "-", _waits(status)[:100],
    ]  # fmt: skip


def _waits(status: Obj) -> str:
    """Why it is not as wanted: what it waits for, or what is wrong. The first of these that is told."""
    told: dict[str, Obj] = {c["type"]: c for c in status.get("conditions") or () if c.get("status") == "True"}
    for kind in WAITS:
        if found := told.get(kind):
            reason, message = found.get("reason") or "", found.get("message") or ""
            return message if kind == names.PROGRESSING or reason in message else f"{reason}: {message}"
    return ""


def _snapshot(spec: Obj, status: Obj) -> list[object]:
    failed: Obj = next((c for c in status.get("conditions") or () if c["type"] == "Failed"), {})
    return [spec.get("sandboxName") or "-", status.get("phase") or "-", failed.get("reason") or "",
            ", ".join(c.get("imageUri", "") for c in status.get("containers") or ())]  # fmt: skip


COLUMNS: dict[str, tuple[list[str], Callable[[Obj, Obj], list[object]]]] = {
    POOL: (["TOTAL", "ALLOCATED", "AVAILABLE", "PENDING", "WAITING", "BUFFER", "POOL", "STATE"], _pool),
    BATCHSANDBOX: (["POOL", "WANTS", "ALLOCATED", "READY", "PHASE", "WAITS"], _box),
    SNAPSHOT: (["SANDBOX", "PHASE", "FAILED", "IMAGES"], _snapshot),
}
