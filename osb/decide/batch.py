"""The plan for one sandbox: expiry, deletion, pool choice, pause, pods, endpoints, status, in this order.

In: a `BatchView`. Out: a `Plan` whose status is whole (`osb.apply.status` writes it when it differs) and whose
`again` always respects the expiry. Actions with a version are decided on `view.spec.version`; a later one in the
same plan builds on the answer of an earlier one. Rules: spec/batchsandbox.md 6 to 13. Next: `osb.apply.execute`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from osb.api import claims, names, times
from osb.decide import boxevents, boxslots, claim, leaving, pause, restorable, resuming
from osb.decide.batchpods import PodWork, pod_work
from osb.decide.boxevents import BOX
from osb.decide.endpoints import endpoints
from osb.decide.expire import Expiry, expiry
from osb.decide.lost import told_loss
from osb.decide.moves import SOON, STEP, Move
from osb.decide.plan import (
    Action,
    AssignPool,
    DeleteBox,
    DeletePod,
    PatchObject,
    Plan,
    PublishEndpoints,
    Wake,
    event,
)
from osb.decide.status import Change, allocation_deadline, box_status, pod_failures
from osb.facts.boxview import BatchView, Waiting

TOLD = 5  # Events about as many bad patches; the condition names all slots
FIRST_LOOK = timedelta(seconds=1)  # a brand-new sandbox without pods shows no status for so long


def plan(view: BatchView) -> Plan:
    """What one pass over a sandbox does."""
    spec = view.spec
    due = expiry(spec, view.now)
    if due.due:
        return _expired(view)
    if spec.deleting is not None:
        return _deleting(view)
    move = _move(view)
    work = _pods(view, move)
    before = _finalizer(view, move)
    view = _as_patched(view, work)
    change = _change(move.change, work)
    status = box_status(view, change)
    hold = _first_look(view, move)
    actions = (
        *before,
        *boxevents.once_per_generation(spec),
        *move.actions,
        *work.actions,
        *_broken(view, work),
        *_publish(view, status["phase"]),
        *(boxevents.transitions(view, status) if hold is None else ()),  # told with the status that shows it
    )
    # A phase that a pause or a resume is bound to is a step: our own write wakes nobody, and more may follow from it.
    turned = SOON if spec.pause is not None and status["phase"] != spec.phase else None
    return Plan(
        actions=actions,
        status=None if hold is not None else status,
        reasons=(*move.reasons, *work.reasons, *((due.doubt,) if due.doubt else ())),
        again=_soonest(hold, turned, move.again, work.again, *_timers(view, due)),
    )


def _expired(view: BatchView) -> Plan:
    """Delete and stop: nothing else is decided about an object that is going. UID and version must still match."""
    spec = view.spec
    assert spec.expire is not None
    text = f"expireTime {times.format(spec.expire)} has passed"
    return Plan(
        actions=(
            DeleteBox(spec.name, spec.uid, spec.version, why=text),
            event(BOX, "Normal", names.EVENT_EXPIRED, f"Sandbox expired: {text}"),
        ),
        reasons=(text,),
    )


def _deleting(view: BatchView) -> Plan:
    """Only our own finalizer matters, by its presence; errors of the spec do not. Nothing is created any more."""
    spec = view.spec
    if names.FINALIZER_TASKS not in spec.finalizers:
        return _leaving(view)
    nothing_runs = spec.phase == names.PAUSED or not any(p.live for p in boxslots.listed(view).values())
    if not nothing_runs:  # the tasks' pass stops them, and removes the finalizer together with the release list
        actions: list[Action] = [Wake("tasks", spec.name, "stop for deletion")]
        text = f"terminating; finalizer {names.FINALIZER_TASKS} holds it: its tasks are being stopped"
        return Plan(tuple(actions), reasons=(text,), again=STEP)
    patch = claim.Next({}, finalizers=claim.without_finalizer(spec, names.FINALIZER_TASKS)).patch(spec.version)
    patch["metadata"].pop("annotations", None)
    freed = PatchObject(BOX, spec.name, patch, version=spec.version, why="its tasks are stopped")
    return Plan((freed,), reasons=("terminating; its tasks are stopped",))


def _leaving(view: BatchView) -> Plan:
    """What is left is its pool's to do, or others': say which, and say it on the sandbox when it takes long."""
    if view.leaving is None:
        others = f"; finalizers of others do: {', '.join(view.spec.finalizers)}" if view.spec.finalizers else ""
        return Plan(reasons=(f"terminating; nothing of ours holds it{others}",))
    late = leaving.overdue(view)
    if late < 0:
        return Plan(reasons=leaving.reasons(view), again=-late)
    status, actions = leaving.told(view)
    return Plan(actions, status, reasons=leaving.reasons(view), again=leaving.LOOK)


def _move(view: BatchView) -> Move:
    """Choosing a pool comes before everything that depends on having one."""
    spec = view.spec
    undecided = claims.effective_pool(spec)[0] == names.ANY_POOL and not spec.barred
    if undecided and spec.phase not in (names.PAUSING, names.PAUSED):
        if view.waiting is not None and view.waiting.code == names.WAIT_NO_POOL_FITS:
            return _no_pool_fits(view.waiting, ack=spec.pause is not True)
        profile = spec.annotations.get(names.ASSIGN_PROFILE, "")
        return Move(
            change=Change(ack=spec.pause is not True),
            actions=(AssignPool(profile),),
            reasons=("poolRef is *: a pool is chosen",),
            handled=True,
        )
    return pause.move(view)


def _no_pool_fits(waiting: Waiting, *, ack: bool) -> Move:
    """The choice was made and found nothing: the sandbox waits (a pool that appears or changes wakes it)."""
    text = f"poolRef is *: no pool fits: {waiting.detail}"
    return Move(change=Change(ack=ack), reasons=(text,), handled=True)


def _pods(view: BatchView, move: Move) -> PodWork:
    """Pods of its own, unless pause has the say or a pool makes them."""
    if move.handled or claims.pooled(view.spec):
        return PodWork()
    work = pod_work(view)
    if view.spec.phase == names.RESUMING and not restorable.applied(view):
        work.actions = [action for action in work.actions if isinstance(action, DeletePod)]
    return work


def _as_patched(view: BatchView, work: PodWork) -> BatchView:
    """The view with the record that this plan writes: the status shows that one.

    Our own patch is no event, so no other pass would follow to show it.
    """
    return view if work.record is None else replace(view, spec=replace(view.spec, record=work.record))


def _finalizer(view: BatchView, move: Move) -> tuple[Action, ...]:
    """`task-cleanup` stands before the first task is started; a paused sandbox has none."""
    spec = view.spec
    if spec.task_template is None or spec.phase in (names.PAUSING, names.PAUSED):
        return ()
    added = claim.with_finalizer(spec, names.FINALIZER_TASKS)
    if added is None or any(isinstance(a, PatchObject) and a.kind == BOX for a in move.actions):
        return ()
    patch = {"metadata": {"resourceVersion": spec.version, "finalizers": list(added)}}
    return (PatchObject(BOX, spec.name, patch, version=spec.version, why="tasks must be stopped before deletion"),)


def _change(change: Change, work: PodWork) -> Change:
    """A patch that gives no pod is shown as an invalid spec; a loss is told with its cause, which no record keeps."""
    shown: list[tuple[str, str, str]] = []
    if slots := sorted(work.broken):
        verb = "gets" if len(slots) == 1 else "get"
        text = f"{boxslots.text(slots)} {verb} no pod: {work.broken[slots[0]]}"
        shown.append((names.SPEC_INVALID, names.EVENT_INVALID_SHARD_PATCH, text[:1000]))
    if work.record is not None and work.lost:
        shown.append((names.POD_LOST, *told_loss(work.record, work.lost)))
    return replace(change, conditions=(*change.conditions, *shown)) if shown else change


def _broken(view: BatchView, work: PodWork) -> tuple[Action, ...]:
    if view.spec.generation <= view.spec.observed:
        return ()
    told = list(work.broken.values())[:TOLD]
    return tuple(event(BOX, "Warning", names.EVENT_INVALID_SHARD_PATCH, str(error)) for error in told)


def _publish(view: BatchView, phase: str) -> tuple[Action, ...]:
    """Addresses before Succeed; but a phase before addresses that are not ready yet."""
    found = endpoints(view, phase=phase)
    if found is None:
        return ()
    first_phase = not view.spec.phase and phase != names.SUCCEED and any(found)
    return (*boxevents.endpoints_repaired(view, found), PublishEndpoints(tuple(found), after_status=first_phase))


def _first_look(view: BatchView, move: Move) -> float | None:
    """Seconds for which a brand-new sandbox without any pod keeps an empty status; None when it is over."""
    spec = view.spec
    if spec.phase or not spec.replicas or boxslots.listed(view) or spec.invalid or move.change.conditions:
        return None
    left = (spec.created + FIRST_LOOK - view.now).total_seconds()
    return left if 0 < left <= FIRST_LOOK.total_seconds() else None


def _timers(view: BatchView, due: Expiry) -> Iterable[float | None]:
    """Times that objects carry: each pass derives them again, whatever else happens in it."""
    yield due.again
    yield pod_failures(view).again
    yield allocation_deadline(view)
    yield resuming.failed_deadline(view)


def _soonest(*candidates: float | None) -> float | None:
    """The smallest of these waits (seconds) that is above 0; None when there is none."""
    return min((seconds for seconds in candidates if seconds is not None and seconds > 0), default=None)
