"""The plan for one SandboxSnapshot: pin the source, run the commit Job, record what it saved.

In: a `SnapshotView`. Out: a `Plan`. One step a pass, each found again from facts after a crash: finalizer;
source recorded in status; Job created; Job seen (phase Committing); result recorded (Succeed or Failed,
final). Rules: spec/pause-resume-snapshot.md 8. Deletion is `osb.decide.snapclean`. Next: `osb.apply.execute`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from osb.api import names, reading, times
from osb.decide import commitresult as results
from osb.decide import snapclean
from osb.decide.commitjob import commit_job, commit_name, recorded, unpause_job, unpause_name
from osb.decide.conditions import Conditions, stored
from osb.decide.moves import SOON
from osb.decide.plan import Action, CreateObject, DeleteObject, PatchObject, Plan, event
from osb.decide.snapsource import Source, Unsaveable, source, usable
from osb.facts.boxview import SnapshotView

KIND = "snapshot"
FINAL = (names.SUCCEED, names.FAILED)
POLL = 5.0  # seconds between looks at a running Job; its events come sooner
TRIES = 3  # commit Jobs per snapshot, should they disappear
KEEP_JOB = 300.0  # seconds a finished Job stays for people to read
NO_POD_AFTER = 60.0  # seconds after which a Job without any pod is given up
RESULT_WAIT = 30.0  # seconds for the result's pod to be seen

REASON_PUSH_SECRET = "PushSecretNotFound"
REASON_NODE = "NodeUnavailable"
REASON_NO_JOB_POD = "PodCreateForbidden"
REASON_RESULT = "ResultUnreadable"
REASON_JOB_FAILED = "CommitJobFailed"

_TRY = re.compile(r"attempt (\d+) of")


def plan(view: SnapshotView) -> Plan:
    """What one pass over a snapshot does."""
    meta = view.obj["metadata"]
    if meta.get("deletionTimestamp"):
        return snapclean.plan(view)
    finalizers = meta.get("finalizers") or []
    if names.FINALIZER_SNAPSHOT not in finalizers:
        patch = {"metadata": {"finalizers": [*finalizers, names.FINALIZER_SNAPSHOT]}}
        added = PatchObject(KIND, meta["name"], patch, version=meta["resourceVersion"], why="its Jobs must go first")
        return Plan((added,), reasons=("the finalizer comes first",), again=SOON)
    phase = reading.text(_status(view), "phase") or names.PENDING
    if phase in FINAL:
        return _final(view)
    return _committing(view) if phase == names.COMMITTING else _pending(view)


def owning_box(view: SnapshotView) -> str:
    """UID of the sandbox whose pause made this snapshot, "" for a public one."""
    owners = view.obj["metadata"].get("ownerReferences") or ()
    return next((o["uid"] for o in owners if o.get("controller") and o.get("kind") == names.KIND_BOX), "")


def job_of(view: SnapshotView) -> Mapping[str, Any] | None:
    """The commit Job, only if this snapshot's UID controls it."""
    job = view.commit_job
    ours = job is not None and results.controller_uid(job) == view.obj["metadata"]["uid"]
    return job if ours else None


# -- Pending -------------------------------------------------------------------------------------------------


def _pending(view: SnapshotView) -> Plan:
    status, job = _status(view), job_of(view)
    if job is not None:
        told = event(KIND, "Normal", names.EVENT_CREATED_JOB, f"Created commit job: {job['metadata']['name']}")
        return _waiting(view, names.COMMITTING, _attempt(1), actions=(told,), job=job)
    if not reading.text(status, "sourcePodUID") or not recorded(status):
        return _record_source(view)
    if view.create_refused:
        return _fail(view, names.REASON_BUILD_JOB_FAILED, f"failed to build commit job: {view.create_refused}")
    if view.rivals:
        text = f"snapshot {view.rivals[0]} of the same pod goes first"
        return _waiting(view, names.PENDING, (names.REASON_WAITING_FOR_SNAPSHOT, text), again=POLL)
    return _create(view, names.PENDING, (names.REASON_WAITING_FOR_JOB, "The commit Job is being created"))


def _record_source(view: SnapshotView) -> Plan:
    """Pin pod, UID, node, containers and, for a pooled pause, the template, before anything acts on them."""
    try:
        found = source(view, internal=bool(owning_box(view)))
    except Unsaveable as error:
        return _fail(view, error.reason, str(error))
    actions: tuple[Action, ...] = ()
    if found.left_out:
        text = f"not saved: {', '.join(found.left_out)} (not in the running pod, not in the template, or ended)"
        actions = (event(KIND, "Warning", "ContainersNotSaved", text),)
    status = _next(view, names.PENDING, _progress(view, names.REASON_WAITING_FOR_JOB, "The source pod is chosen"))
    status |= _source_fields(found)
    return Plan(actions, status, reasons=(f"pod {found.pod} on {found.node} is saved",), again=SOON)


def _source_fields(found: Source) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "sourcePodName": found.pod,
        "sourcePodUID": found.uid,
        "sourceNodeName": found.node,
        "containers": [{"containerName": name, "imageUri": image} for name, image in found.containers],
    }
    if found.template is not None:
        fields["sourceTemplate"] = found.template
    return fields


def _create(view: SnapshotView, phase: str, progress: tuple[str, str]) -> Plan:
    """Create the commit Job for the recorded source, which must still be that very pod."""
    meta, status = view.obj["metadata"], _status(view)
    if view.push_secret:
        secret = view.options.push_secret
        return _fail(view, REASON_PUSH_SECRET, f"push secret {secret} is {view.push_secret} in {meta['namespace']}")
    if view.node_gone or not reading.text(status, "sourceNodeName"):
        node = status.get("sourceNodeName")
        text = f"node {node} does not exist" if node else f"pod {status.get('sourcePodName')} is on no node"
        return _fail(view, REASON_NODE, text)
    if view.source is None or not usable(view.source, reading.text(status, "sourcePodUID")):
        text = f"source pod not found: {_gone(view, str(status.get('sourcePodName')))}"
        return _fail(view, names.REASON_SOURCE_POD_NOT_FOUND, text)
    if view.commit_job is not None:
        return _foreign(view, phase, progress)
    body = commit_job(meta, status, view.options, keep_frozen=bool(owning_box(view)))
    made = CreateObject("job", commit_name(meta["name"]), body, why="commit and push the images")
    return _waiting(view, phase, progress, actions=(made,), again=SOON)


def _gone(view: SnapshotView, name: str) -> str:
    """What became of the pod that was to be saved, which is one of its UID: another of its name is no substitute."""
    if view.source is None:
        return f"pod {name}, which was to be saved, is gone"
    meta, phase = view.source.get("metadata") or {}, (view.source.get("status") or {}).get("phase")
    if meta.get("deletionTimestamp"):
        return f"pod {name} is being deleted"
    return f"pod {name} does not run any more (phase {phase or 'unknown'})"


def _foreign(view: SnapshotView, phase: str, progress: tuple[str, str]) -> Plan:
    """A Job of our name that this snapshot does not control.

    One of an earlier snapshot of this name is deleted; a user's is left alone, and the snapshot fails.
    """
    assert view.commit_job is not None  # the caller's condition
    meta = view.commit_job["metadata"]
    reason, text = progress
    progress = (reason, f"{text}, once Job {meta['name']} of an earlier snapshot is gone")
    if meta.get("deletionTimestamp"):
        return _waiting(view, phase, progress, again=1.0)
    if names.LABEL_SNAPSHOT_NAME not in (meta.get("labels") or {}):
        text = (
            f"failed to build commit job: a Job {meta['name']} exists that no snapshot made; delete it, then try again"
        )
        return _fail(view, names.REASON_BUILD_JOB_FAILED, text)
    gone = DeleteObject("job", meta["name"], meta["uid"], why="left over from an earlier snapshot of this name")
    return _waiting(view, phase, progress, actions=(gone,), again=1.0)


# -- Committing ----------------------------------------------------------------------------------------------


def _committing(view: SnapshotView) -> Plan:
    job = job_of(view)
    if job is None:
        return _vanished(view)
    if results.succeeded(job):
        return _saved(view, job)
    told = results.failure(job, view.job_pods)
    if told is not None:
        said = results.why(job, view.job_pods)
        failed = event(KIND, "Warning", "JobFailed", f"Commit job failed: {said}" if said else "Commit job failed")
        return _fail(view, REASON_JOB_FAILED, told, actions=(failed, *_unfreeze(view)))
    if view.node_gone:
        return _fail(view, REASON_NODE, f"node {_status(view).get('sourceNodeName')} does not exist", job=job)
    if _no_pod(view, job):
        text = "the commit Job gets no pod; does the namespace forbid hostPath volumes?"
        return _fail(view, REASON_NO_JOB_POD, text, job=job)
    reason, text = _attempt(_attempts(view))
    return _waiting(view, names.COMMITTING, (reason, text + _so_far(view, job)), job=job, again=POLL)


def _so_far(view: SnapshotView, job: Mapping[str, Any]) -> str:
    """Pods of the Job that failed already, and what the last one said: Kubernetes repeats them for minutes."""
    count = (job.get("status") or {}).get("failed") or 0
    if not count:
        return ""
    said = results.why(job, view.job_pods)
    return f"; {count} of its pods failed" + (f", the last one: {said}" if said else "")


def _vanished(view: SnapshotView) -> Plan:
    """The Job disappeared before its result was read: again, a few times, from the same pod."""
    attempt = _attempts(view) + 1
    if attempt > TRIES:
        return _fail(view, REASON_JOB_FAILED, f"the commit Job disappeared {TRIES} times", actions=_unfreeze(view))
    return _create(view, names.COMMITTING, _attempt(attempt))


def _saved(view: SnapshotView, job: Mapping[str, Any]) -> Plan:
    """Succeed only with a result for every container; digests where the committer knows them."""
    saved = recorded(_status(view))
    requested = [(c["containerName"], c["imageUri"]) for c in saved]
    try:
        digests = results.result(job, view.job_pods, requested)
    except results.Unreadable as error:
        if not results.pods_of(job, view.job_pods) and _age(view, job, "completionTime") < RESULT_WAIT:
            text = f"The commit Job, attempt {_attempts(view)} of {TRIES}, succeeded; the report of its pod is awaited"
            return _waiting(view, names.COMMITTING, (names.REASON_COMMITTING, text), job=job, again=1.0)
        text = f"the commit job succeeded, but {error}"
        return _fail(view, REASON_RESULT, text, actions=_unfreeze(view))
    conditions = stored(_status(view), now=view.now)
    conditions.clear(names.PROGRESSING, names.FAILED)
    conditions.set(names.READY, names.REASON_SNAPSHOT_READY, "Snapshot is ready")
    status = _next(view, names.SUCCEED, conditions)
    status["jobUID"] = job["metadata"]["uid"]
    status["containers"] = [
        {**c, "imageDigest": digests[c["containerName"]]} if digests[c["containerName"]] else dict(c) for c in saved
    ]
    done = event(KIND, "Normal", "JobSucceeded", "Commit job succeeded")
    return Plan((done,), status, reasons=("the images are saved",), again=KEEP_JOB)


def _no_pod(view: SnapshotView, job: Mapping[str, Any]) -> bool:
    counts = job.get("status") or {}
    busy = any(counts.get(name) for name in ("active", "failed", "succeeded"))
    return not busy and not results.pods_of(job, view.job_pods) and _age(view, job, "") > NO_POD_AFTER


def _age(view: SnapshotView, job: Mapping[str, Any], member: str) -> float:
    """Seconds since a time of the Job's status, or since its creation."""
    text = (job.get("status") or {}).get(member) if member else None
    since = times.parse_or_none(text or job["metadata"].get("creationTimestamp")) or view.now
    return (view.now - since).total_seconds()


def _unfreeze(view: SnapshotView) -> tuple[Action, ...]:
    """The unpause Job, once, while the recorded pod exists: a committer killed outright cannot unfreeze."""
    meta, status = view.obj["metadata"], _status(view)
    if not snapclean.source_alive(view) or view.unpause_job is not None:
        return ()
    name = unpause_name(meta["name"])
    return (CreateObject("job", name, unpause_job(meta, status, view.options), why="unfreeze the containers"),)


# -- final ---------------------------------------------------------------------------------------------------


def _final(view: SnapshotView) -> Plan:
    """Final phases never change; only the observed generation follows, and finished Jobs go after a while."""
    status = dict(_status(view))
    status["observedGeneration"] = view.obj["metadata"].get("generation") or 0
    conditions = stored(status, now=view.now)
    since = conditions.since(names.READY) or conditions.since(names.FAILED) or view.now
    left = (since + timedelta(seconds=KEEP_JOB) - view.now).total_seconds()
    job = job_of(view)
    if job is None or job["metadata"].get("deletionTimestamp"):
        return Plan((), status, reasons=("final",))
    if left > 0 and results.finished(job):
        return Plan((), status, reasons=("final; its Job is kept a while",), again=left)
    gone = DeleteObject("job", job["metadata"]["name"], job["metadata"]["uid"], why="its result is recorded")
    return Plan((gone,), status, reasons=("final; its Job goes",))


# -- status --------------------------------------------------------------------------------------------------


def _status(view: SnapshotView) -> Mapping[str, Any]:
    return reading.part(view.obj, "status")


def _next(view: SnapshotView, phase: str, conditions: Conditions) -> dict[str, Any]:
    """The stored status with phase, conditions and the generation it now belongs to."""
    return {
        **_status(view),
        "phase": phase,
        "observedGeneration": view.obj["metadata"].get("generation") or 0,
        "conditions": conditions.dump(names.SNAPSHOT_CONDITIONS),
    }


def _progress(view: SnapshotView, reason: str, message: str) -> Conditions:
    conditions = stored(_status(view), now=view.now)
    conditions.set(names.PROGRESSING, reason, message)
    return conditions


def _waiting(
    view: SnapshotView,
    phase: str,
    progress: tuple[str, str],
    *,
    actions: tuple[Action, ...] = (),
    job: Mapping[str, Any] | None = None,
    again: float = POLL,
) -> Plan:
    status = _next(view, phase, _progress(view, *progress))
    if job is not None:
        status["jobUID"] = job["metadata"]["uid"]
    return Plan(actions, status, reasons=(progress[1],), again=again)


def _fail(
    view: SnapshotView,
    reason: str,
    message: str,
    *,
    actions: tuple[Action, ...] = (),
    job: Mapping[str, Any] | None = None,
) -> Plan:
    """Failed for good. A Job that still exists is deleted, so that its committer unfreezes what it froze."""
    conditions = stored(_status(view), now=view.now)
    conditions.clear(names.PROGRESSING, names.READY)
    conditions.set(names.FAILED, reason, message)
    if job is not None:
        meta = job["metadata"]
        actions = (*actions, DeleteObject("job", meta["name"], meta["uid"], why=message), *_unfreeze(view))
    return Plan(actions, _next(view, names.FAILED, conditions), reasons=(message,))


def _attempt(number: int) -> tuple[str, str]:
    """Reason and message of Progressing while the commit Job runs.

    The attempt is counted in our own condition, so that it survives the Job.
    """
    return names.REASON_COMMITTING, f"The commit Job runs, attempt {number} of {TRIES}"


def _attempts(view: SnapshotView) -> int:
    found = _TRY.search(stored(_status(view), now=view.now).text(names.PROGRESSING))
    return int(found.group(1)) if found else 1
