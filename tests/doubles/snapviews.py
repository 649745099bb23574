"""Raw snapshots, Jobs and pods for tests of snapshot decisions, and what such a decision says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from osb.api import names, times
from osb.decide.plan import CreateObject, Plan
from osb.facts.boxview import SnapshotOptions, SnapshotView
from tests.doubles.boxes import NOW, UID, at, box, condition, of, pod

Obj = dict[str, Any]
SNAP_UID = "5a9d0c11-2222"
IMAGE = "reg.example/ns/box/main:snap-gen2-5a9d0c11"
DIGEST = "sha256:" + "c" * 64
OPTIONS = SnapshotOptions(registry="reg.example")


def snap(*, internal: bool = True, name: str = "box-pause", finalizer: bool = True, **status: Any) -> Obj:
    """A SandboxSnapshot; `status` members as stored."""
    meta: Obj = {
        "namespace": "ns",
        "name": name,
        "uid": SNAP_UID,
        "resourceVersion": "8",
        "generation": 1,
        "finalizers": [names.FINALIZER_SNAPSHOT] if finalizer else [],
    }
    if internal:
        meta["ownerReferences"] = [{"kind": "BatchSandbox", "name": "box", "uid": UID, "controller": True}]
    return {"metadata": meta, "spec": {"sandboxName": "box"}, "status": status}


def recorded(phase: str = "Pending", **status: Any) -> Obj:
    """Status of a snapshot whose source is pinned."""
    return {
        "phase": phase,
        "observedGeneration": 1,
        "sourcePodName": "box-0",
        "sourcePodUID": "uid-box-0",
        "sourceNodeName": "n1",
        "containers": [{"containerName": "main", "imageUri": IMAGE}],
        **status,
    }


def source(**meta: Any) -> Obj:
    """The live source pod."""
    return {
        "metadata": {"name": "box-0", "namespace": "ns", "uid": "uid-box-0", "labels": {}, **meta},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "img:1"}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}}]},
    }


def job(*, owner: str = SNAP_UID, age: float = 5, name: str = "box-pause-commit", **status: Any) -> Obj:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "creationTimestamp": times.format(at(-age)),
            "labels": {names.LABEL_SNAPSHOT_NAME: "box-pause"},
            "ownerReferences": [{"kind": "SandboxSnapshot", "uid": owner, "controller": True}],
        },
        "status": status,
    }


def failed_job(message: str = "DeadlineExceeded") -> Obj:
    return job(conditions=[{"type": "Failed", "status": "True", "message": message}])


def done_job() -> Obj:
    return job(succeeded=1, completionTime=times.format(NOW))


def job_pod(message: object, *, owner: str = "uid-box-pause-commit", code: int = 0) -> Obj:
    """The Job's pod with its termination message."""
    text = message if isinstance(message, str) else orjson.dumps(message).decode()
    ended = {"exitCode": code, "message": text}
    return {
        "metadata": {"name": "box-pause-commit-x", "ownerReferences": [{"uid": owner, "controller": True}]},
        "status": {
            "phase": "Succeeded" if code == 0 else "Failed",
            "containerStatuses": [{"name": "commit", "state": {"terminated": ended}}],
        },
    }


def report(**members: Any) -> Obj:
    return {"v": 1, "containers": [{"name": "main", "image": IMAGE, "digest": DIGEST}], **members}


def view(obj: Mapping[str, Any], **more: Any) -> SnapshotView:
    """A view with a pausing sandbox and its live pod."""
    values: Obj = {
        "now": NOW,
        "obj": obj,
        "box": box(pause=True, status={"phase": "Pausing"}),
        "box_pods": (pod(),),
        "source": source(),
        "options": OPTIONS,
    }
    return SnapshotView(**(values | more))


def committing(**more: Any) -> Obj:
    """A snapshot whose commit Job runs for the first time."""
    progress = condition("Progressing", "Committing", "The commit Job runs, attempt 1 of 3")
    return snap(**recorded("Committing", conditions=[progress]), **more)


def failed(plan: Plan) -> tuple[str, str]:
    """(reason, message) of a plan that fails the snapshot."""
    assert plan.status is not None
    assert plan.status["phase"] == "Failed"
    found = next(c for c in plan.status["conditions"] if c["type"] == "Failed")
    return found["reason"], found["message"]


def made(plan: Plan) -> list[str]:
    """Names of what the plan creates."""
    return [action.name for action in of(plan, CreateObject)]
