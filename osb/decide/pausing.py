"""Phase Pausing, from the decision to pause until the pods are gone.

In: a `BatchView`. Out: a `Move`. Order: phase Pausing and the acknowledgement in one write; tasks stopped;
snapshot made; snapshot Succeed: the pods are removed (still frozen, so nothing written after the commit can
be lost), or a pool's pod is given back in two phases; Paused only when they are gone. Bounded: a pause that
does not end becomes `PauseTimeout` and the sandbox runs on (spec/pause-resume-snapshot.md 5, 6). Next:
`osb.decide.snapshot` makes the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import orjson

from osb.api import claims, names, times
from osb.api import record as records
from osb.api.batchsandbox import BoxSpec
from osb.api.record import Release
from osb.decide import boxslots, claim, podbuild, savedimages, waittext
from osb.decide.conditions import stored
from osb.decide.moves import SOON, STEP, Move, merge_diff
from osb.decide.plan import Action, CreateObject, DeleteObject, DeletePod, PatchObject, Wake, event
from osb.decide.restorable import own_snapshot, snapshot_name
from osb.decide.status import Change
from osb.facts.boxview import BatchView, BoxOptions, SnapshotFact

SLACK = 120.0  # seconds of a pause beyond stopping tasks and the commit Job
FORCE_AFTER = 30.0  # seconds beyond its grace period after which a pod on a silent node is forced away
BOX = "batchsandbox"


def begin(view: BatchView) -> Move:
    """Start a pause: make room for the snapshot's name, then phase Pausing and the acknowledgement."""
    snapshot, uid = view.snapshot, view.spec.uid
    if snapshot is not None and snapshot.deleting:
        return Move(again=STEP, reasons=("the previous snapshot is still being deleted",))
    if snapshot is not None and _formers(view, snapshot):
        return _former_goes(snapshot)
    if snapshot is not None and snapshot.owner_uid != uid:
        text = _taken(snapshot)
        failed = (names.PAUSE_FAILED, names.REASON_SNAPSHOT_NAME_CONFLICT, text)
        return Move(change=Change(ack=True, conditions=(failed,)), reasons=(text,))
    if snapshot is not None and snapshot.phase in (names.SUCCEED, names.FAILED):
        gone = DeleteObject("snapshot", snapshot.name, snapshot.uid, why="a new pause needs its name")
        return Move(actions=(gone,), again=STEP, reasons=("the previous snapshot is deleted first",))
    change = Change(phase=names.PAUSING, ack=True, cleared=(names.PAUSE_FAILED,), renew=True)
    return Move(change=change, again=SOON, reasons=("spec.pause is true",), handled=True)


def limit(options: BoxOptions) -> float:
    """Seconds after which a pause that has no images yet is given up."""
    return options.task_stop_timeout + options.commit_timeout + SLACK


def _taken(snapshot: SnapshotFact) -> str:
    return f"a snapshot {snapshot.name} exists that this sandbox does not own; delete it, then pause again"


def _formers(view: BatchView, snapshot: SnapshotFact) -> bool:
    """Whether the snapshot belonged to an earlier sandbox of this name.

    The UID of that sandbox is gone: the garbage collector is on its way.
    """
    return snapshot.owner_box == view.spec.name and snapshot.owner_uid not in ("", view.spec.uid)


def _former_goes(snapshot: SnapshotFact) -> Move:
    gone = DeleteObject("snapshot", snapshot.name, snapshot.uid, why="it belonged to a former sandbox of this name")
    return Move(actions=(gone,), again=STEP, reasons=("the snapshot of a former sandbox of this name goes first",))


def go_on(view: BatchView) -> Move:
    """The next step in phase Pausing."""
    snapshot = own_snapshot(view)
    if view.spec.detaching:
        return _finish_detach(view)
    if snapshot is not None and snapshot.phase == names.SUCCEED:
        return _complete(view, snapshot)
    if _overdue(view):
        text = f"the pause did not end within {waittext.exactly(limit(view.options))}{_stood(snapshot)}"
        return _failed(view, names.REASON_PAUSE_TIMEOUT, text, drop=snapshot)
    if snapshot is not None and snapshot.phase == names.FAILED:
        return _failed(view, names.REASON_SNAPSHOT_FAILED, snapshot.message or "snapshot failed")
    if snapshot is not None:
        return Move(again=STEP, reasons=(f"snapshot {snapshot.name} is {snapshot.phase or 'new'}",), handled=True)
    if view.snapshot is not None and not view.snapshot.deleting and _formers(view, view.snapshot):
        return replace(_former_goes(view.snapshot), handled=True)
    if view.snapshot is not None and not view.snapshot.deleting:
        text = _taken(view.snapshot)
        return _failed(view, names.REASON_SNAPSHOT_NAME_CONFLICT, text)
    if view.snapshot is not None:
        return Move(again=STEP, reasons=("a snapshot of that name is being deleted",), handled=True)
    return _make_snapshot(view)


@dataclass(frozen=True, slots=True)
class Removal:
    """`left`: pods that still exist, terminating ones included."""

    actions: tuple[Action, ...]
    left: int
    again: float | None


def remove_pods(view: BatchView) -> Removal:
    """Delete every pod this sandbox controls; force away one that outlives its grace period by 30 s."""
    actions: list[Action] = []
    owned = [pod for pod in view.pods if pod.owner_uid == view.spec.uid]
    for pod in owned:
        if not pod.deleting:
            actions.append(DeletePod(pod.name, pod.uid, why="the sandbox is paused"))
        elif times.to_ms(view.now) > pod.deleting + FORCE_AFTER * 1000:
            actions.append(DeletePod(pod.name, pod.uid, why="its node does not answer", grace=0))
    return Removal(tuple(actions), len(owned), STEP if owned else None)


# -- before the snapshot -------------------------------------------------------------------------------------


def _make_snapshot(view: BatchView) -> Move:
    spec = view.spec
    late: list[Action] = []
    if spec.task_template is not None and not (view.tasks and view.tasks.stopped):
        left = _left(view, view.options.task_stop_timeout)
        if left > 0:
            wake = Wake("tasks", spec.name, "stop for pause")
            return Move(actions=(wake,), again=STEP, reasons=("tasks are being stopped",), handled=True)
        text = "tasks did not stop in time; the pause goes on"
        late.append(event(BOX, "Warning", names.EVENT_TASK_STOP_TIMEOUT, text))
    name = snapshot_name(spec.name)
    meta: dict[str, Any] = {
        "name": name,
        "namespace": spec.namespace,
        "ownerReferences": [podbuild.owner_reference(spec)],
    }
    if name != f"{spec.name}-pause":
        meta["annotations"] = {names.FULL_NAME: f"{spec.name}-pause"}
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND_SNAPSHOT,
        "metadata": meta,
        "spec": {"sandboxName": spec.name},
    }
    late.append(CreateObject("snapshot", name, body, why="pause"))
    return Move(actions=tuple(late), again=STEP, reasons=(f"snapshot {name} is made",), handled=True)


def _left(view: BatchView, seconds: float) -> float:
    """Seconds left of a span that began with phase Pausing."""
    since = stored(view.spec.status, now=view.now).since(names.PROGRESSING) or view.now
    return (since + timedelta(seconds=seconds) - view.now).total_seconds()


def _overdue(view: BatchView) -> bool:
    return _left(view, limit(view.options)) <= 0


def _stood(snapshot: SnapshotFact | None) -> str:
    """What a pause that took too long was waiting for."""
    return f": snapshot {snapshot.name} is {snapshot.phase or 'new'}" if snapshot is not None else ""


def _failed(view: BatchView, reason: str, text: str, *, drop: SnapshotFact | None = None) -> Move:
    """Back to running, or Failed when a successful read shows no pod. One write; a newer intent stays unseen.

    `text` is the cause alone: what follows for the sandbox is said here, because only one of both can be true.
    Deleting the snapshot `drop` stops its Job and unfreezes the containers (`osb.decide.snapshot`).
    """
    alive = any(pod.live for pod in boxslots.listed(view).values())
    if alive and reason == names.REASON_PAUSE_TIMEOUT:
        text = f"{text}; the sandbox runs on"
    elif not alive:
        reason, text = names.REASON_POD_NOT_FOUND, f"{text}; {_content_lost(view)}"
    change = Change(phase=names.SUCCEED if alive else names.FAILED, conditions=((names.PAUSE_FAILED, reason, text),))
    return Move(change=change, actions=_drop(drop), again=SOON, reasons=(f"pause failed: {text}",), handled=True)


def _drop(snapshot: SnapshotFact | None) -> tuple[Action, ...]:
    """Delete it, unless it goes already."""
    if snapshot is None or snapshot.deleting:
        return ()
    return (DeleteObject("snapshot", snapshot.name, snapshot.uid, why="the pause failed"),)


def _content_lost(view: BatchView) -> str:
    """That nothing was saved, and why nothing can be."""
    found = boxslots.listed(view).get(0)
    if found is None:
        state = "its pod is gone"
    else:
        state = f"its pod {found.name} " + ("is being deleted" if found.deleting else f"ended ({found.phase})")
    return f"{state} and was not saved, so the sandbox's content is lost"


# -- after the snapshot --------------------------------------------------------------------------------------


def _complete(view: BatchView, snapshot: SnapshotFact) -> Move:
    spec = view.spec
    if claims.pooled(spec):
        return _detach(view, snapshot)
    if stale := _mark_stale(view, snapshot):
        return Move(actions=(stale,), again=SOON, handled=True)
    removed = remove_pods(view)
    if removed.left:
        text = "the snapshot is made; waiting for the pods to go"
        return Move(actions=removed.actions, again=removed.again, reasons=(text,), handled=True)
    change = Change(phase=names.PAUSED, ack=spec.pause is True, cleared=(names.POD_FAILED, names.RESUME_FAILED))
    return Move(change=change, again=SOON, reasons=("the snapshot is made and the pods are gone",), handled=True)


def _detach(view: BatchView, snapshot: SnapshotFact) -> Move:
    """First phase: take the template, leave the pool, and ask it to delete the pod. One patch."""
    spec = view.spec
    template = snapshot.source_template or view.source_template
    if template is None:
        return _without_template(snapshot)
    old = spec.record
    annotations: dict[str, str | None] = {}
    if old is not None and old.pods:
        pool, uid = claims.effective_pool(spec)
        leaving = replace(old, detaching=True, pool_ref=pool, pool_uid=uid, seq=old.seq + 1)
        back = tuple(pod for pod in old.pods if pod not in spec.released)
        annotations[names.ALLOC_STATUS] = records.format(leaving)
        annotations[names.ALLOC_RELEASE] = records.format_release(Release(back, back))
    annotations.update(_stale_annotation(spec, snapshot))
    # poolRef goes by null: server 1.20 turns an empty text in a merge patch into null and then refuses it
    body: dict[str, Any] = {
        "spec": {
            "poolRef": None,
            "template": merge_diff(spec.written if isinstance(spec.written, dict) else {}, template),
        }
    }
    meta: dict[str, Any] = {"annotations": annotations} if annotations else {}
    if (old is None or not old.pods) and names.FINALIZER_POOL in spec.finalizers:
        meta["finalizers"] = [item for item in spec.finalizers if item != names.FINALIZER_POOL]
    if meta:
        body["metadata"] = meta
    patch = PatchObject(BOX, spec.name, body, version=spec.version, why="the sandbox leaves its pool")
    return Move(actions=(patch,), again=SOON, reasons=("the pool's pod is given back",), handled=True)


def _without_template(snapshot: SnapshotFact) -> Move:
    """The pod went before anybody kept its template: no pod can be made from the images, which are all that is left."""
    text = (
        f"the pod is gone and snapshot {snapshot.name} has no template of it, so the sandbox cannot be resumed; "
        f"its files are in {savedimages.told(snapshot.containers)}"
    )
    change = Change(phase=names.FAILED, conditions=((names.PAUSE_FAILED, names.REASON_POD_NOT_FOUND, text[:1000]),))
    return Move(change=change, actions=_drop(snapshot), again=SOON, reasons=(f"pause failed: {text}",), handled=True)


def _finish_detach(view: BatchView) -> Move:
    """The second phase is the pool's: delete the pod, then remove finalizer and record.

    When the pool is gone, finalizer and record are removed here.
    """
    spec = view.spec
    pool = claims.effective_pool(spec)[0]
    if not view.pool_deleted:
        wake = Wake("pool", pool, "detach")
        held = view.leaving is not None and view.leaving.hold
        text = f"pool {pool} is on hold and takes no pod back" if held else f"pool {pool} takes its pod back"
        return Move(actions=(wake,), again=STEP, reasons=(text,), handled=True)
    freed = PatchObject(
        BOX, spec.name, claim.detached(spec).patch(spec.version), version=spec.version, why="its pool is gone"
    )
    return Move(actions=(freed,), again=SOON, reasons=(f"pool {pool} is gone",), handled=True)


def _stale_annotation(spec: BoxSpec, snapshot: SnapshotFact) -> dict[str, str]:
    """`resumed-from` of an earlier resume says nothing about this pause: blank its snapshot, keep the rest.

    Otherwise a resume that finds no snapshot would take the images of the cycle before for the right ones.
    """
    data = podbuild.resumed_from(spec)
    if not data or data.get("snapshot") in ("", snapshot.uid):
        return {}
    return {names.RESUMED_FROM: orjson.dumps({**data, "snapshot": ""}).decode()}


def _mark_stale(view: BatchView, snapshot: SnapshotFact) -> PatchObject | None:
    annotations = _stale_annotation(view.spec, snapshot)
    if not annotations:
        return None
    patch = {"metadata": {"annotations": annotations}}
    return PatchObject(BOX, view.spec.name, patch, version=view.spec.version, why="an older resume's images")
