"""Sandboxes, pods and views for tests of decisions: short to write, complete enough to decide on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from osb.api import batchsandbox, names, times
from osb.api.batchsandbox import BoxSpec
from osb.decide.plan import Action, Plan
from osb.facts.boxview import BatchView, SnapshotFact
from osb.facts.pod import PodFact

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
UID = "b0c5d1e2-0000"
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "main", "image": "img:1"}]}}


def at(seconds: float) -> datetime:
    """`seconds` after (or before) now."""
    return NOW + timedelta(seconds=seconds)


def box(
    *,
    status: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
    release: Mapping[str, Any] | None = None,
    endpoints: list[str] | None = None,
    annotations: Mapping[str, str] | None = None,
    generation: int = 2,
    age: float = 60,
    name: str = "box",
    finalizers: tuple[str, ...] = (),
    deleting: bool = False,
    **spec: Any,
) -> BoxSpec:
    """A parsed sandbox; `spec` members as in YAML. One replica of a template unless told otherwise."""
    notes = dict(annotations or {})
    for key, value in ((names.ALLOC_STATUS, record), (names.ALLOC_RELEASE, release), (names.ENDPOINTS, endpoints)):
        if value is not None:
            notes[key] = orjson.dumps(value).decode()
    if "template" not in spec and "poolRef" not in spec:
        spec["template"] = TEMPLATE
    meta: dict[str, Any] = {
        "namespace": "ns",
        "name": name,
        "uid": UID,
        "resourceVersion": "41",
        "generation": generation,
        "creationTimestamp": times.format(at(-age)),
        "annotations": notes,
        "finalizers": list(finalizers),
    }
    if deleting:
        meta["deletionTimestamp"] = times.format(at(-1))
    body = {"metadata": meta, "spec": {k: v for k, v in spec.items() if v is not ...}, "status": dict(status or {})}
    return batchsandbox.parse(body)


def pod(name: str = "box-0", **changes: Any) -> PodFact:
    """A ready pod of the sandbox; `changes` are fields of PodFact."""
    created = times.to_ms(at(-50))
    made = PodFact(
        "ns",
        name,
        f"uid-{name}",
        "7",
        owner_kind=names.KIND_BOX,
        owner_name="box",
        owner_uid=UID,
        phase="Running",
        ready=True,
        created=created,
        scheduled=created,
        node="n1",
        ip="10.0.0.9",
        last_transition=created,
        main_image="img:1",
    )
    values = {field: getattr(made, field) for field in made.__struct_fields__} | changes
    return PodFact(**values)


def starting(name: str = "box-0", **changes: Any) -> PodFact:
    """A pod that is not ready yet and has no address."""
    return pod(name, **{"phase": "Pending", "ready": False, "ip": "", **changes})


def view(spec: BoxSpec | None = None, *pods: PodFact, **more: Any) -> BatchView:
    return BatchView(**{"now": NOW, "spec": spec or box(), "pods": pods, **more})


def condition(kind: str, reason: str = "", message: str = "", *, since: float = -10) -> dict[str, Any]:
    """A stored True condition, `since` seconds from now."""
    when = times.format(at(since))
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": when}


def status(phase: str, *conditions: Mapping[str, Any], ack: int = 2, **more: Any) -> dict[str, Any]:
    """A stored status."""
    return {
        "phase": phase,
        "observedGeneration": 2,
        "pauseObservedGeneration": ack,
        "conditions": list(conditions),
        **more,
    }


def snapshot(phase: str = names.SUCCEED, **changes: Any) -> SnapshotFact:
    """The pause snapshot of the sandbox."""
    made = SnapshotFact(
        name="box-pause",
        uid="snap-uid",
        version="9",
        owner_uid=UID,
        phase=phase,
        containers=(("main", "reg.example/ns/box/main:snap-gen2-snap-uid", "sha256:" + "a" * 64),),
    )
    return replace(made, **changes)


def of(plan: Plan, kind: type[Action]) -> list[Any]:
    """The plan's actions of one type."""
    return [action for action in plan.actions if isinstance(action, kind)]


def told(conditions: list[dict[str, Any]]) -> dict[str, str]:
    """Condition type -> reason."""
    return {c["type"]: c["reason"] for c in conditions}


def after(spec: BoxSpec, written: Mapping[str, Any]) -> BoxSpec:
    """The sandbox with `written` as its stored status."""
    return replace(spec, status=dict(written), phase=str(written.get("phase") or ""))
