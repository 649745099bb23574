"""What a pause intent means in a state: one pure table, and the moves behind each of its answers.

In: a `BatchView` of a sandbox that is not deleting. Out: a `Move`: what to put into the next status (one write),
actions, and whether the pods are left to this module. Every pass decides again from facts, so it may die after any
write. An intent is compared with the state; the generation only tells whether something new was asked, because
every spec edit raises it (spec/clients.md 9, spec/pause-resume-snapshot.md 4). `docs/pause-resume.md` shows the
same table. Next: `osb.decide.pausing` and `osb.decide.resuming`, then `osb.decide.batch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from osb.api import names
from osb.decide import boxslots, pausing, podbuild, restorable, resuming
from osb.decide.conditions import stored
from osb.decide.moves import Move
from osb.decide.plan import DeleteObject
from osb.decide.status import Change
from osb.facts.boxview import BatchView

WAIT_FOR_POD = 300.0  # seconds a wanted pause waits for a running pod before it says so


class Step(StrEnum):
    """The answers of the table."""

    ACK = "acknowledge"  # satisfied already, or nothing asked
    IDLE = "leave"  # failed before, nothing new asked
    PAUSE = "pause"
    RESUME = "resume"
    GO_ON = "go on"
    WAIT = "wait for a pod"
    NO_POD = "refuse: no pod"
    REFUSE = "refuse: replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """`news`: this generation is not acknowledged yet. `restorable`: images to resume from are known."""

    phase: str
    pause: bool | None
    news: bool = False
    running: bool = False
    pause_failed: bool = False
    resume_failed: bool = False
    restorable: bool = False
    single: bool = True  # replicas is 1
    used_up: bool = False  # its pod was given back: no other one comes


def step(at: Situation) -> Step:
    """The table of spec/pause-resume-snapshot.md 4 (required form)."""
    if at.phase in (names.PAUSING, names.RESUMING):
        return Step.GO_ON
    if at.pause is None:
        return Step.ACK
    return _wants_pause(at) if at.pause else _wants_running(at)


def _wants_running(at: Situation) -> Step:
    if at.phase == names.PAUSED:
        return Step.IDLE if at.resume_failed and not at.news else Step.RESUME
    if at.phase == names.FAILED and at.news and at.resume_failed and at.restorable:
        return Step.RESUME
    return Step.ACK


def _wants_pause(at: Situation) -> Step:
    if at.phase == names.PAUSED:
        return Step.ACK
    if at.pause_failed and not at.news:
        return Step.IDLE
    if not at.single:
        return Step.REFUSE
    if at.running:
        return Step.PAUSE
    return Step.NO_POD if at.phase == names.FAILED or at.used_up else Step.WAIT


def situation(view: BatchView) -> Situation:
    """The row of the table that a view stands in."""
    spec, snapshot = view.spec, view.snapshot
    usable = snapshot is not None and snapshot.owner_uid == spec.uid and snapshot.phase == names.SUCCEED
    return Situation(
        phase=spec.phase,
        pause=spec.pause,
        news=spec.generation > spec.pause_observed,
        running=boxslots.running_source(view) is not None,
        pause_failed=spec.condition(names.PAUSE_FAILED) is not None,
        resume_failed=spec.condition(names.RESUME_FAILED) is not None,
        restorable=usable or bool(podbuild.resumed_images(spec)),
        single=spec.replicas == 1,
        used_up=0 in boxslots.given_back(view),
    )


def move(view: BatchView) -> Move:
    """The next move of pause and resume."""
    phase = view.spec.phase
    if phase == names.PAUSING:
        return pausing.go_on(view)
    if phase == names.RESUMING:
        return resuming.go_on(view)
    answer = step(situation(view))
    if phase == names.PAUSED and answer in (Step.ACK, Step.IDLE):
        return _stay_paused(view, ack=answer is Step.ACK)
    if answer is Step.RESUME:
        return resuming.begin(view)
    if answer is Step.PAUSE:
        return pausing.begin(view)
    if back := resuming.give_up(view):
        return back
    return _answered(view, answer)


def acknowledged(view: BatchView) -> Change:
    """The change for whoever writes a status outside the sandbox's own pass.

    The intent is acknowledged when nothing else follows from it.
    """
    return Change(ack=step(situation(view)) is Step.ACK)


def _answered(view: BatchView, answer: Step) -> Move:
    """Moves that leave the pods to the normal pass."""
    spec = view.spec
    if answer is Step.REFUSE:
        text = "pause/resume currently supports only BatchSandbox spec.replicas=1"
        return _refused(names.REASON_UNSUPPORTED_REPLICAS, f"{text}; got spec.replicas={spec.replicas}")
    if answer is Step.NO_POD:
        return _refused(names.REASON_POD_NOT_FOUND, _no_pod(view))
    if answer is Step.WAIT:
        return _wait_for_pod(view)
    return Move(change=Change(ack=answer is Step.ACK), actions=_tidy(view))


def _refused(reason: str, text: str) -> Move:
    change = Change(ack=True, conditions=((names.PAUSE_FAILED, reason, text),))
    return Move(change=change, reasons=(f"pause refused: {text}",))


def _no_pod(view: BatchView) -> str:
    if 0 in boxslots.given_back(view):
        return "there is no pod to save: the sandbox gave it back, and no other one takes its place"
    return "there is no running pod to save; PodFailed or SpecInvalid says why"


def _wait_for_pod(view: BatchView) -> Move:
    """Not acknowledged: the pause is made as soon as a pod runs. Said aloud only after a while."""
    since = stored(view.spec.status, now=view.now).since(names.PROGRESSING) or view.spec.created
    left = (since + timedelta(seconds=WAIT_FOR_POD) - view.now).total_seconds()
    if left > 0:
        return Move(again=left, reasons=("pause waits for a running pod",))
    text = "the pause waits for a running pod, and begins when one runs; Progressing says what is missing"
    return Move(change=Change(conditions=((names.PAUSE_FAILED, names.REASON_WAITING_FOR_POD, text),)), reasons=(text,))


def _stay_paused(view: BatchView, *, ack: bool) -> Move:
    """A paused sandbox has no pods: one that shows up late (created just before) is removed.

    That its snapshot was deleted is said when it happens, not only when somebody wants it back.
    """
    removed = pausing.remove_pods(view)
    lost = restorable.loss(view)
    return Move(
        change=Change(phase=names.PAUSED, ack=ack, lost=lost),
        actions=removed.actions,
        reasons=(lost,) if lost else (),
        again=removed.again,
        handled=True,
    )


def _tidy(view: BatchView) -> tuple[DeleteObject, ...]:
    """Delete the pause snapshot once the sandbox is stored as running again: it is needed no more."""
    snapshot, spec = view.snapshot, view.spec
    if snapshot is None or snapshot.owner_uid != spec.uid or snapshot.deleting:
        return ()
    if spec.phase != names.SUCCEED or snapshot.phase != names.SUCCEED:
        return ()
    return (DeleteObject("snapshot", snapshot.name, snapshot.uid, why="the sandbox runs again"),)
