"""Phase Resuming: from the decision to resume until a pod runs the snapshot's images, or back to Paused.

In: a `BatchView`. Out: a `Move`. Once the template carries the images (annotation `resumed-from`), the snapshot
object is no longer needed and its absence never rolls back; before that no pod exists. Bounded by the resume
timeout, from entering Resuming and again from entering Failed (spec/pause-resume-snapshot.md 7). Completion itself
is `osb.decide.status`: a ready pod makes Succeed, failing pods beyond their grace make Failed.
"""

from __future__ import annotations

from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any

import orjson

from osb.api import names, times
from osb.decide import boxslots, claim, podbuild
from osb.decide.boxfail import GRACE
from osb.decide.conditions import stored
from osb.decide.moves import SOON, Move, merge_diff
from osb.decide.pausing import BOX, remove_pods
from osb.decide.plan import Action, DeletePod, PatchObject, event
from osb.decide.restorable import applied, loss, own_snapshot
from osb.decide.savedimages import image_reference
from osb.decide.status import Change, pod_failures
from osb.decide.waittext import exactly
from osb.facts.boxview import BatchView, SnapshotFact

MANY_CYCLES = 100  # each pause adds an image layer, and container runtimes stop at about 127


def begin(view: BatchView) -> Move:
    """Phase Resuming and the acknowledgement in one write; refused at once when there is nothing to resume from.

    A terminating snapshot may still be there in the next pass, so it is tried.
    """
    if view.spec.phase == names.PAUSED and own_snapshot(view) is None and not _ready(view) and (lost := loss(view)):
        return _not_found(view, lost)
    change = Change(phase=names.RESUMING, ack=True, cleared=(names.RESUME_FAILED, names.POD_FAILED), renew=True)
    return Move(change=change, again=SOON, reasons=("spec.pause is false",), handled=True)


def go_on(view: BatchView) -> Move:
    """The next step in phase Resuming."""
    started = _since(view, names.PROGRESSING) or view.now
    left = (started + timedelta(seconds=view.options.resume_timeout) - view.now).total_seconds()
    if _ready(view):
        return Move(reasons=("a pod is ready",))
    if left <= 0:
        text = f"no pod was ready within {exactly(view.options.resume_timeout)}{_because(view)}"
        return _back(view, names.REASON_RESUME_TIMEOUT, text)
    if applied(view):
        return Move(actions=_outdated(view, started), again=left, reasons=("waiting for the pod to be ready",))
    snapshot = own_snapshot(view)
    if snapshot is None:
        return _not_found(view, loss(view))
    if snapshot.phase != names.SUCCEED:
        text = f"snapshot not ready: phase={snapshot.phase or 'none yet'}"
        return _back(view, names.REASON_SNAPSHOT_NOT_READY, text)
    if view.spec.template is None:
        return _back(view, names.SPEC_INVALID, "spec.template cannot be used; correct it and ask again")
    return _rewrite(view, snapshot)


def give_up(view: BatchView) -> Move | None:
    """Failed after a resume falls back to Paused in the end, so that the next resume request works."""
    since = _since(view, names.RESUME_FAILED)
    if view.spec.phase != names.FAILED or since is None or _ready(view):
        return None
    if not applied(view) and own_snapshot(view) is None:
        return None  # nothing to resume from: Paused would promise too much
    left = (since + timedelta(seconds=view.options.resume_timeout) - view.now).total_seconds()
    if left > 0:
        return None
    change = Change(phase=names.PAUSED, ack=view.spec.pause is not True, cleared=(names.POD_FAILED,))
    text = "the resume failed and did not recover; back to Paused, from where it can be asked for again"
    removed = remove_pods(view)
    return Move(change=change, actions=removed.actions, again=SOON, reasons=(text,), handled=True)


def failed_deadline(view: BatchView) -> float | None:
    """Seconds until `give_up` acts; None when it has nothing to wait for."""
    since = _since(view, names.RESUME_FAILED)
    if view.spec.phase != names.FAILED or since is None:
        return None
    return (since + timedelta(seconds=view.options.resume_timeout) - view.now).total_seconds()


# -- steps ---------------------------------------------------------------------------------------------------


def _rewrite(view: BatchView, snapshot: SnapshotFact) -> Move:
    """Put the images into the template and remember them, in one patch; the pod follows in the next pass."""
    spec = view.spec
    template = deepcopy(dict(spec.template or {}))
    images = {name: image_reference(uri, digest) for name, uri, digest in snapshot.containers if name and uri}
    pod_spec = template.setdefault("spec", {})
    kept = _use(pod_spec, images)
    _add_pull_secret(pod_spec, view.options.resume_pull_secret)
    cycles = _cycles(view, snapshot)
    memory = {"snapshot": snapshot.uid, "images": images, "cycles": cycles}
    meta: dict[str, Any] = {"annotations": {names.RESUMED_FROM: orjson.dumps(memory).decode()}}
    finalizers = claim.without_finalizer(spec, names.FINALIZER_POOL)
    if finalizers is not None:
        meta["finalizers"] = list(finalizers)
    change: dict[str, Any] = {"template": merge_diff(spec.template or {}, template)}
    if spec.pool_ref:
        change["poolRef"] = None  # an empty text is refused by server 1.20, see `pausing._detach`
    patch = PatchObject(
        BOX,
        spec.name,
        {"metadata": meta, "spec": change},
        version=spec.version,
        why="resume from the snapshot",
    )
    actions: list[Action] = [patch, *_notes(view, kept, cycles)]
    return Move(actions=tuple(actions), again=SOON, reasons=("the snapshot's images are put in",), handled=True)


def _use(pod_spec: dict[str, Any], images: dict[str, str]) -> list[str]:
    """Set the images; returns containers that have none and start from their original image."""
    kept = []
    for container in pod_spec.get("containers") or ():
        if container.get("name") in images:
            container["image"] = images[container["name"]]
        else:
            kept.append(str(container.get("name")))
    return kept


def _add_pull_secret(pod_spec: dict[str, Any], secret: str) -> None:
    present = pod_spec.get("imagePullSecrets") or []
    if secret and all(item.get("name") != secret for item in present):
        pod_spec["imagePullSecrets"] = [*present, {"name": secret}]


def _cycles(view: BatchView, snapshot: SnapshotFact) -> int:
    before = podbuild.resumed_from(view.spec)
    count = before.get("cycles")
    count = count if isinstance(count, int) else 0
    return count if before.get("snapshot") == snapshot.uid else count + 1


def _notes(view: BatchView, kept: list[str], cycles: int) -> list[Action]:
    notes: list[Action] = []
    if kept:
        text = f"not in the snapshot, started from their original image: {', '.join(kept)}"
        notes.append(event(BOX, "Warning", "ContainersNotRestored", text))
    if view.pull_secret_missing and view.options.resume_pull_secret:
        text = f"Secret {view.options.resume_pull_secret} does not exist in this namespace; the pull may fail"
        notes.append(event(BOX, "Warning", names.EVENT_PULL_SECRET_MISSING, text))
    if cycles == MANY_CYCLES:
        text = f"{cycles} pauses added as many image layers; container runtimes stop at about 127"
        notes.append(event(BOX, "Warning", "ManyImageLayers", text))
    return notes


def _outdated(view: BatchView, started: datetime) -> tuple[Action, ...]:
    """Pods of an earlier attempt: of another image, or failing since before this one began."""
    wanted = podbuild.resumed_images(view.spec)
    early = times.to_ms(started) - int(GRACE * 1000)
    failing = dict(pod_failures(view).reasons)
    first = ((view.spec.template or {}).get("spec") or {}).get("containers") or [{}]
    image = wanted.get(str(first[0].get("name")))
    gone: list[Action] = []
    for pod in boxslots.owned(view).by_slot.values():
        other = image is not None and bool(pod.main_image) and pod.main_image != image
        if not pod.deleting and (other or (pod.name in failing and pod.created < early)):
            gone.append(DeletePod(pod.name, pod.uid, why="left over from an earlier attempt to resume"))
    return tuple(gone)


def _not_found(view: BatchView, lost: str) -> Move:
    text = f"SandboxSnapshot not found: {lost}"[:1000]
    return _back(view, names.REASON_SNAPSHOT_NOT_FOUND, text, lost=lost)


def _back(view: BatchView, reason: str, text: str, *, lost: str = "") -> Move:
    """Back to Paused with `ResumeFailed`.

    The generation is answered, also when rewriting the template raised it.
    """
    failed = (names.RESUME_FAILED, reason, text)
    change = Change(phase=names.PAUSED, ack=view.spec.pause is not True, conditions=(failed,), lost=lost)
    removed = remove_pods(view)
    return Move(change=change, actions=removed.actions, again=SOON, reasons=(f"resume failed: {text}",), handled=True)


def _because(view: BatchView) -> str:
    """What keeps the pod from being ready, when it says so."""
    for pod in boxslots.owned(view).by_slot.values():
        if pod.deleting:
            return f": the former pod {pod.name} is still terminating"
        if pod.unschedulable:
            return f": no node can take pod {pod.name}"
        if pod.waiting:
            return f": pod {pod.name}: " + ", ".join(f"{one}: {reason}" for one, reason in pod.waiting)
    return ""


def _ready(view: BatchView) -> bool:
    """A ready pod that this sandbox's UID controls; a label alone proves nothing."""
    pods = boxslots.owned(view).by_slot
    return any(pod.ready and not pod.deleting for slot, pod in pods.items() if slot < view.spec.replicas)


def _since(view: BatchView, kind: str) -> datetime | None:
    return stored(view.spec.status, now=view.now).since(kind)
