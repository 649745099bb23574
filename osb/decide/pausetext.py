"""Where a pause or a resume stands and what it waits for, in one line: what `osbctl explain` shows. Pure.

In: a `BatchView` and what the snapshot says about itself. Out: a sentence, "" when there is nothing to say. The steps
are those of `osb.decide.pausing` and `osb.decide.resuming`.
"""

from __future__ import annotations

from datetime import timedelta

from osb.api import names
from osb.decide import boxslots, restorable, resuming
from osb.decide.conditions import stored
from osb.decide.pause import Step, situation, step
from osb.decide.pausing import limit
from osb.decide.restorable import snapshot_name
from osb.decide.waittext import span
from osb.facts.boxview import BatchView


def standing(view: BatchView, progress: str = "") -> str:
    """`pause, step 3 of 4: snapshot box-pause is Committing (the commit Job runs); given up in 9m`."""
    phase = view.spec.phase
    if view.spec.deleting is not None:
        return ""  # neither goes on
    if phase == names.PAUSING:
        end = "" if _saved(view) else f"; {_left(view, limit(view.options))}"
        return f"pause, {_pausing(view, progress)}{end}{_next(view, wanted=True)}"
    if phase == names.RESUMING:
        return f"resume, {_resuming(view)}; {_left(view, view.options.resume_timeout)}{_next(view, wanted=False)}"
    return _at_rest(view)


def _saved(view: BatchView) -> bool:
    """Whether the pause has its images: from then on it is not given up any more."""
    own = restorable.own_snapshot(view)
    return view.spec.detaching or (own is not None and own.phase == names.SUCCEED)


def _pausing(view: BatchView, progress: str) -> str:
    own = restorable.own_snapshot(view)
    if view.spec.detaching and view.leaving is not None and view.leaving.hold:
        return f"step 4 of 4: pool {view.leaving.pool} is on hold; the pod that was saved stays until it is released"
    if view.spec.detaching:
        return "step 4 of 4: the pool deletes the pod that was saved"
    if own is not None and own.phase == names.SUCCEED:
        return f"step 4 of 4: the images are saved, {len(boxslots.listed(view))} pod(s) still to go"
    if own is not None:
        told = f" ({progress})" if progress else ""
        return f"step 3 of 4: snapshot {own.name} is {own.phase or 'new'}{told}"
    if view.spec.task_template is not None and not (view.tasks and view.tasks.stopped):
        return "step 1 of 4: its tasks are being stopped"
    return f"step 2 of 4: snapshot {snapshot_name(view.spec.name)} is to be made"


def _resuming(view: BatchView) -> str:
    if not restorable.applied(view):
        return "step 1 of 2: the saved images are to be put into the template"
    pods = [pod for pod in boxslots.owned(view).by_slot.values() if not pod.deleting]
    if not pods:
        return "step 2 of 2: its pod is to be made"
    reasons = ", ".join(f"{container}: {reason}" for container, reason in pods[0].waiting)
    return f"step 2 of 2: pod {pods[0].name} is not ready" + (f" ({reasons})" if reasons else "")


def _left(view: BatchView, seconds: float) -> str:
    since = stored(view.spec.status, now=view.now).since(names.PROGRESSING) or view.now
    return f"given up in {span((since + timedelta(seconds=seconds) - view.now).total_seconds())}"


def _next(view: BatchView, *, wanted: bool) -> str:
    """A newer opposite wish, which is handled afterwards."""
    opposite = view.spec.pause is not None and view.spec.pause is not wanted
    return f"; then {'resume' if wanted else 'pause'}, as asked meanwhile" if opposite else ""


def _at_rest(view: BatchView) -> str:
    answer = step(situation(view))
    if answer is Step.WAIT:
        return "a pause is asked for and waits for a running pod"
    if lost := _lost(view):
        return lost
    if answer in (Step.PAUSE, Step.RESUME):
        return f"a {answer.value} is asked for and begins with the next pass"
    left = resuming.failed_deadline(view)
    if left is not None:
        return (
            f"the last resume failed; unless its pod gets ready it is Paused again in {span(left)}; "
            "a retry is possible at once (pause: null, then false)"
        )
    return _refused(view, answer)


def _refused(view: BatchView, answer: Step) -> str:
    """A wish that came to nothing, and what makes it come true."""
    several = answer is Step.IDLE and view.spec.pause and view.spec.replicas != 1
    if answer is Step.REFUSE or several:
        return "only a sandbox of one replica can be paused: set replicas to 1, and the pause that is asked for begins"
    if answer is Step.IDLE and view.spec.pause and 0 in boxslots.given_back(view):
        return "it cannot be paused: its pod was given back, and no other one takes its place"
    if answer is Step.IDLE:
        what = "pause" if view.spec.pause else "resume"
        need = ", once its pod runs" if view.spec.pause and boxslots.running_source(view) is None else ""
        return f"the last {what} failed; asked again (pause: null, then the value){need} it is tried again"
    return ""


def _lost(view: BatchView) -> str:
    """What is said when a sandbox that is paused, or failed in a resume, has nothing left to resume from."""
    resting = view.spec.phase == names.PAUSED or resuming.failed_deadline(view) is not None
    return restorable.loss(view) if resting else ""
