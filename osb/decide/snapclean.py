"""Deletion of a SandboxSnapshot: stop its Jobs, leave no container frozen, then drop the finalizer.

In: a `SnapshotView` of a terminating snapshot. Out: a `Plan`. An active commit Job is deleted and its pod
waited for, so that its trap can unfreeze; then an unpause Job runs if something may still be frozen and the
source pod lives on. Every wait has an end (spec/pause-resume-snapshot.md 8.6, spec/pitfalls.md 22). Pushed
images are never deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from osb.api import names, times
from osb.api.reading import part, text
from osb.decide import commitresult as results
from osb.decide.commitjob import recorded, unpause_job, unpause_name
from osb.decide.plan import Action, CreateObject, DeleteObject, PatchObject, Plan, event
from osb.facts.boxview import SnapshotView

KIND = "snapshot"
LIMIT = 180.0  # seconds of deletion after which the finalizer goes whatever is left
LOOK = 1.0
NOTED_WITHIN = 10.0  # seconds a paused sandbox has to note the images of its snapshot that goes


def plan(view: SnapshotView) -> Plan:
    """The next step of a deletion."""
    meta = view.obj["metadata"]
    held = meta.get("finalizers") or ()
    if names.FINALIZER_SNAPSHOT not in held:
        others = f"; finalizers of others do: {', '.join(held)}" if held else ""
        return Plan(reasons=(f"terminating; nothing of ours holds it{others}",))
    found = _step(view)
    head = f"terminating; finalizer {names.FINALIZER_SNAPSHOT} holds it"
    return replace(found, reasons=tuple(f"{head}: {reason}" for reason in found.reasons))


def _step(view: SnapshotView) -> Plan:
    meta = view.obj["metadata"]
    since = times.parse_or_none(meta["deletionTimestamp"]) or view.now
    if (view.now - since).total_seconds() > LIMIT:
        text = f"clean-up was given up after {LIMIT:.0f} s"
        if source_alive(view):
            text += f"; containers of pod {_status(view)['sourcePodName']} may still be frozen"
        return _release(view, (event(KIND, "Warning", "CleanupTimeout", text),))
    if view.create_refused:  # a terminating namespace takes no Job any more, and its pods go anyway
        text = f"pod {_status(view).get('sourcePodName')} may still be frozen: {view.create_refused}"
        return _release(view, (event(KIND, "Warning", "UnpauseRefused", text),))
    job, unpause = _ours(view, view.commit_job), _ours(view, view.unpause_job)
    if job is not None and not results.finished(job) and not job["metadata"].get("deletionTimestamp"):
        stop = _delete(job, "the snapshot is deleted")
        if not may_be_frozen(view):
            return Plan((stop,), reasons=("its commit Job is stopped",), again=LOOK)
        # The unpause Job is asked for together with the stop: later nothing tells that a commit was running.
        made = () if unpause is not None else (_unpause(view),)
        return Plan((stop, *made), reasons=("its commit Job is stopped, containers are unfrozen",), again=LOOK)
    if job is not None and job["metadata"].get("deletionTimestamp"):
        return Plan(reasons=("its commit Job is ending",), again=LOOK)
    if results.running(view.job_pods):
        return Plan(reasons=("the committer is ending",), again=LOOK)
    if unpause is None and may_be_frozen(view):
        return Plan((_unpause(view),), reasons=("containers are unfrozen first",), again=LOOK)
    if unpause is not None and not results.finished(unpause) and source_alive(view):
        return Plan(reasons=("containers are being unfrozen",), again=LOOK)
    if (view.now - since).total_seconds() < NOTED_WITHIN and _to_be_noted(view):
        return Plan(reasons=("its paused sandbox notes the images first",), again=LOOK)
    return _release(view, ())


def _to_be_noted(view: SnapshotView) -> bool:
    """A sandbox is paused into this snapshot and does not say yet that it goes: nobody else knows the images' names."""
    box = view.box
    if box is None or box.deleting is not None or box.phase != names.PAUSED:
        return False
    owners = view.obj["metadata"].get("ownerReferences") or ()
    if not any(owner.get("controller") and owner.get("uid") == box.uid for owner in owners):
        return False
    return (box.condition(names.COND_PAUSED) or {}).get("reason") != names.REASON_SNAPSHOT_NOT_FOUND


def source_alive(view: SnapshotView) -> bool:
    """The recorded pod still exists, stays, and its node is there."""
    status, pod = _status(view), view.source
    if pod is None or view.node_gone or not recorded(status) or not text(status, "sourceNodeName"):
        return False
    meta = pod.get("metadata") or {}
    return meta.get("uid") == status.get("sourcePodUID") and not meta.get("deletionTimestamp")


def may_be_frozen(view: SnapshotView) -> bool:
    """A commit was running, or a pause's commit left containers frozen on purpose; and the pod lives on."""
    if not source_alive(view) or view.box is None or view.box.deleting is not None:
        return False
    phase = _status(view).get("phase")
    internal = any(o.get("controller") for o in view.obj["metadata"].get("ownerReferences") or ())
    job = _ours(view, view.commit_job)
    active = job is not None and not results.finished(job)
    return phase == names.COMMITTING or active or (phase == names.SUCCEED and internal)


def _release(view: SnapshotView, notes: tuple[Action, ...]) -> Plan:
    meta = view.obj["metadata"]
    kept = [item for item in meta.get("finalizers") or () if item != names.FINALIZER_SNAPSHOT]
    ours = (_ours(view, view.commit_job), _ours(view, view.unpause_job))
    jobs = [_delete(job, "its snapshot is deleted") for job in ours if job is not None]
    patch = PatchObject(
        KIND,
        meta["name"],
        {"metadata": {"finalizers": kept}},
        version=meta["resourceVersion"],
        why="nothing of it is left",
    )
    return Plan((*notes, *jobs, patch), reasons=("all is cleaned up, and the finalizer goes",))


def _unpause(view: SnapshotView) -> CreateObject:
    meta = view.obj["metadata"]
    body = unpause_job(meta, _status(view), view.options)
    return CreateObject("job", unpause_name(meta["name"]), body, why="unfreeze the containers")


def _delete(job: Mapping[str, Any], why: str) -> DeleteObject:
    return DeleteObject("job", job["metadata"]["name"], job["metadata"]["uid"], why=why)


def _ours(view: SnapshotView, job: Mapping[str, Any] | None) -> Any:
    return job if job is not None and results.controller_uid(job) == view.obj["metadata"]["uid"] else None


def _status(view: SnapshotView) -> Mapping[str, Any]:
    return part(view.obj, "status")
