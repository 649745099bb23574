"""The status of a sandbox, from a view. Pure, so whoever knows the facts first may write it.

In: a `BatchView` and, from `osb.decide.pause`, an optional `Change`. Out: the whole status (every counter,
explicit empties, so that a merge patch also clears). The pool's fast pass calls the same functions for a sandbox
that it has just granted pods: a view of its spec and the granted pods by slot is enough. Rules:
spec/batchsandbox.md 10 and 11, spec/additions.md 2.2, spec/clients.md 4. Next: `osb.apply.status`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from osb.api import claims, names
from osb.api.record import Record
from osb.decide import boxslots
from osb.decide.boxfail import Failing, failing
from osb.decide.conditions import Conditions, stored
from osb.decide.endpoints import SUSPENDED
from osb.decide.lost import lost_count, told_loss, told_pods
from osb.decide.plan import names_text
from osb.decide.validate import task_problems
from osb.decide.waittext import waiting_message
from osb.facts.boxview import BatchView

_PAUSED = "Sandbox is paused"
_TASKS = ("taskRunning", "taskSucceed", "taskFailed", "taskUnknown", "taskPending")
_FAILURES = (names.POD_FAILED, names.RESUME_FAILED, names.PAUSE_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What pause and resume want in the next status, written together with everything else in one patch.

    `phase`: None leaves it to the pods.
    `ack`: this generation's intent is answered.
    `conditions`: (type, reason, message) of those to store.
    `cleared`: types of those to remove.
    `renew`: the operation's clock (`Progressing`) starts again.
    `lost`: why a sandbox that is Paused cannot be resumed; "" when it can.
    """

    phase: str | None = None
    ack: bool = False
    conditions: tuple[tuple[str, str, str], ...] = ()
    cleared: tuple[str, ...] = ()
    renew: bool = False
    lost: str = ""


NO_CHANGE = Change()


@dataclass(slots=True)
class _Draft:
    """One status in the making."""

    view: BatchView
    conditions: Conditions
    failing: Failing
    ready: int
    needed: int
    missing: tuple[int, ...]
    lost: str = ""
    acked: bool = field(default=False)


def box_status(view: BatchView, change: Change = NO_CHANGE) -> dict[str, Any]:
    """The next status. Equal input gives an equal result, so an unchanged one is recognised and not written."""
    spec = view.spec
    counters = _counters(view)
    draft = _Draft(
        view=view,
        conditions=stored(spec.status, now=view.now),
        failing=pod_failures(view),
        ready=counters["ready"],
        needed=len(boxslots.needed(view)),
        missing=boxslots.missing(view),
        lost=change.lost,
    )
    _facts_conditions(draft)
    phase = change.phase if change.phase is not None else _phase(draft)
    for kind, reason, message in change.conditions:
        if kind == names.SPEC_INVALID and draft.conditions.has(kind):  # beside what is wrong already
            known = draft.conditions.text(kind)
            draft.conditions.set(kind, draft.conditions.text(kind, "reason"), f"{known}; {message}"[:1000])
        else:
            draft.conditions.set(kind, reason, message)
    draft.conditions.clear(*change.cleared)
    _capacity(draft, phase)
    _phase_conditions(draft, phase, renew=change.renew)
    acked = change.ack or draft.acked
    return {
        "observedGeneration": spec.generation,
        **counters,
        **_task_counters(view, phase),
        "phase": phase,
        "pauseObservedGeneration": spec.generation if acked else spec.pause_observed,
        "conditions": draft.conditions.dump(names.BOX_CONDITIONS),
    }


def without_types(status: Mapping[str, Any], allowed: frozenset[str]) -> dict[str, Any]:
    """The status as a server with older CRDs accepts it: other condition types move into Progressing's message."""
    kept = [c for c in status["conditions"] if c["type"] in allowed]
    moved = "; ".join(f"{c['type']}: {c['message']}" for c in status["conditions"] if c["type"] not in allowed)
    if moved:
        kept = [{**c, "message": f"{c['message']}; {moved}"} if c["type"] == names.PROGRESSING else c for c in kept]
    return {**status, "conditions": kept}


def pod_failures(view: BatchView) -> Failing:
    """Which of the needed pods fail, with the grace of the current phase."""
    pods = boxslots.listed(view)
    wanted = boxslots.needed(view)
    return failing((pods[s] for s in pods if s in wanted), phase=view.spec.phase, now=view.now)


def allocation_deadline(view: BatchView) -> float | None:
    """Seconds until `allocationTimeoutSeconds` passes without full allocation; None when it does not run."""
    spec = view.spec
    since = stored(spec.status, now=view.now).since(names.PROGRESSING)
    if spec.allocation_timeout is None or since is None or not claims.pooled(spec) or not boxslots.missing(view):
        return None
    return (since + timedelta(seconds=spec.allocation_timeout) - view.now).total_seconds()


# -- counters ------------------------------------------------------------------------------------------------


def _counters(view: BatchView) -> dict[str, int]:
    pods = boxslots.listed(view)
    return {
        "replicas": len(pods),
        "allocated": sum(1 for pod in pods.values() if pod.node or pod.ip),
        "ready": sum(1 for slot, pod in pods.items() if slot < view.spec.replicas and pod.ready and not pod.deleting),
    }


def _task_counters(view: BatchView, phase: str) -> dict[str, int]:
    """From the task side, else as stored. A paused sandbox runs nothing: only final results remain."""
    if view.tasks is not None:
        counts = dict(zip(_TASKS, view.tasks.counts, strict=True))
    else:
        old = view.spec.status
        counts = {name: value if isinstance(value := old.get(name), int) else 0 for name in _TASKS}
    if phase == names.PAUSED:
        counts |= {"taskRunning": 0, "taskUnknown": 0, "taskPending": 0}
    return counts


# -- phase ---------------------------------------------------------------------------------------------------


def _phase(draft: _Draft) -> str:
    """The phase that the pods give, with `PodFailed` set and cleared on the way (spec/batchsandbox.md 10.3)."""
    current = draft.view.spec.phase
    if current in SUSPENDED:
        return current
    if current == names.RESUMING:
        return _resuming(draft)
    conditions = draft.conditions
    if _gave_up_waiting(draft):
        return names.FAILED
    if draft.failing:
        conditions.set(names.POD_FAILED, draft.failing.primary, draft.failing.message())
    elif draft.ready or not draft.needed:
        conditions.clear(names.POD_FAILED)
    if draft.ready:
        conditions.clear(names.RESUME_FAILED)
        return names.SUCCEED
    if hopeless := _hopeless(draft):
        conditions.set(names.POD_FAILED, *hopeless)
        return names.FAILED
    if draft.failing or draft.view.spec.barred:
        return names.FAILED
    if not draft.needed:
        return names.SUCCEED
    if conditions.has(names.POD_FAILED, names.REASON_POOL_DELETED):
        conditions.clear(names.POD_FAILED)  # the pool is back: the sandbox waits in its line again
    still_failed = current == names.FAILED and any(conditions.has(kind) for kind in _FAILURES)
    if not still_failed:
        conditions.clear(names.POD_FAILED)
    return names.FAILED if still_failed else names.PENDING


def _resuming(draft: _Draft) -> str:
    conditions, found = draft.conditions, draft.failing
    if draft.ready:
        conditions.clear(names.POD_FAILED, names.RESUME_FAILED)
        # The template was rewritten after the intent was acknowledged: that generation is ours, no new request.
        draft.acked = draft.view.spec.pause is not True
        return names.SUCCEED
    if found:
        conditions.set(names.RESUME_FAILED, found.primary, found.message(resuming=True))
        conditions.set(names.POD_FAILED, found.primary, found.message())
        draft.acked = draft.view.spec.pause is not True
        return names.FAILED
    return names.RESUMING


def _gave_up_waiting(draft: _Draft) -> bool:
    """`AllocationTimeout`: reached now, or reached before and the spec is still the one that was given up."""
    view, conditions = draft.view, draft.conditions
    if conditions.has(names.POD_FAILED, names.REASON_ALLOCATION_TIMEOUT):
        if claims.timed_out(view.spec) and draft.missing:
            return True
        conditions.clear(names.POD_FAILED, names.PROGRESSING)
        return False
    left = allocation_deadline(view)
    if left is None or left > 0:
        return False
    waited = f"after {view.spec.allocation_timeout} s"
    message = f"missing {len(draft.missing)} of {draft.needed} pods {waited}; out of the line"
    conditions.set(names.POD_FAILED, names.REASON_ALLOCATION_TIMEOUT, message)
    return True


def _hopeless(draft: _Draft) -> tuple[str, str] | None:
    """Why no pod can come although none fails: the pool was deleted under it, or every slot was given up."""
    view = draft.view
    if view.pool_deleted and draft.missing and view.spec.record is not None and view.spec.record.pods:
        pool = claims.effective_pool(view.spec)[0]
        return names.REASON_POOL_DELETED, _pool_is_gone(pool, view.left_behind)
    gone = boxslots.failed_slots(view)
    if gone and not draft.needed and gone >= boxslots.given_back(view):
        return names.REASON_SLOT_FAILED, f"every pod is lost and lostPodPolicy is {names.LOST_FAIL}"
    return None


def _pool_is_gone(pool: str, left_behind: tuple[str, ...]) -> str:
    if not left_behind:
        return f"pool {pool} was deleted and its pods with it; the sandbox's content is lost"
    them = names_text(list(left_behind), 300)
    return (
        f"pool {pool} was deleted without its pods: {them} of this sandbox may still run, without an owner, and nobody "
        "will remove them; save what is needed, then delete them"
    )


# -- conditions ----------------------------------------------------------------------------------------------


def _phase_conditions(draft: _Draft, phase: str, *, renew: bool) -> None:
    conditions = draft.conditions
    if phase == names.PENDING or (phase == names.SUCCEED and draft.ready < draft.needed):
        conditions.clear(names.READY, names.COND_PAUSED)
        conditions.set(names.PROGRESSING, *_progress(draft, phase), renew=renew)
    elif phase == names.SUCCEED:
        conditions.clear(names.PROGRESSING, names.COND_PAUSED)
        conditions.set(names.READY, names.REASON_PODS_READY, _running(draft))
    elif phase == names.PAUSED:
        conditions.clear(names.READY, names.PROGRESSING)
        told = (names.REASON_SNAPSHOT_NOT_FOUND, draft.lost) if draft.lost else (names.REASON_PAUSED, _PAUSED)
        conditions.set(names.COND_PAUSED, *told)
    elif phase in (names.PAUSING, names.RESUMING):
        pausing = phase == names.PAUSING
        reason = names.REASON_PAUSE_IN_PROGRESS if pausing else names.REASON_RESUME_IN_PROGRESS
        conditions.clear(names.READY, names.COND_PAUSED)
        conditions.set(names.PROGRESSING, reason, "Pausing sandbox" if pausing else "Resuming sandbox", renew=renew)
    else:
        conditions.clear(names.READY, names.PROGRESSING, names.COND_PAUSED)


def _running(draft: _Draft) -> str:
    """The message of Ready: a sandbox whose work is over is done, not running (spec/batchsandbox.md 10.3)."""
    gone, asked = boxslots.failed_slots(draft.view), draft.view.spec.replicas
    back = len(boxslots.given_back(draft.view) - gone)
    if draft.ready:
        text = "Sandbox is running"
    elif back:
        lost = f", {len(gone)} lost" if gone else ""
        text = f"{back} of {asked} slots given back{lost}; 0 running"
    else:
        text = f"{asked} replicas asked for; 0 running"
    return "; ".join([text, *_of_tasks(draft.view)])


def _of_tasks(view: BatchView) -> list[str]:
    """What the tasks' counters do not say: how they failed, and whose executor is no help while that lasts."""
    found = view.tasks
    return [text for text in (found.failed, found.trouble) if text] if found is not None else []


def _progress(draft: _Draft, phase: str) -> tuple[str, str]:
    """Reason and message of Progressing."""
    view = draft.view
    waiting = ""
    if draft.missing and claims.pooled(view.spec):
        prior = draft.conditions.text(names.PROGRESSING)
        waiting = waiting_message(view.waiting, missing=len(draft.missing), of=view.spec.replicas, prior=prior)
    found = _quarantine(view)
    if found is not None and draft.missing and not claims.wants(view.spec):  # it stands in no line until that is over
        return found
    if view.create_refused:
        waiting = f"no pod: {view.create_refused}"[:500]
    if phase == names.SUCCEED:
        more = [waiting] if waiting else _of_tasks(view)
        return names.REASON_PARTIALLY_READY, "; ".join([f"{draft.ready}/{view.spec.replicas} ready", *more])
    if view.create_refused:
        return names.REASON_CREATE_FAILING, waiting
    if waiting:
        return names.REASON_WAITING_FOR_POOL, waiting
    stuck = [pod.name for pod in boxslots.listed(view).values() if pod.unschedulable and not pod.deleting]
    note = f"; no node can take {stuck[0]}" if stuck else ""
    return names.REASON_CREATING, f"Sandbox is being created{note}"


def _facts_conditions(draft: _Draft) -> None:
    """Conditions that do not depend on the phase: each is True exactly while its fact holds."""
    _spec_conditions(draft)
    _lost(draft)
    found = _quarantine(draft.view)
    if found is not None:
        draft.conditions.set(names.QUARANTINED, *found)
    else:
        draft.conditions.clear(names.QUARANTINED)


def _quarantine(view: BatchView) -> tuple[str, str] | None:
    error = view.spec.record_error
    return view.quarantine or ((names.REASON_RECORD_UNREADABLE, str(error)) if error else None)


def _capacity(draft: _Draft, phase: str) -> None:
    """PoolAllocationPending: only while pods are missing *and* the pool cannot grow.

    A client turns it into 429.
    """
    view, conditions = draft.view, draft.conditions
    waits = bool(draft.missing) and claims.pooled(view.spec) and not _out_of_line(draft, phase)
    if not waits or (view.waiting is not None and not view.waiting.cannot_grow):
        conditions.clear(names.POOL_ALLOCATION_PENDING)
    elif view.waiting is not None:
        undecided = claims.effective_pool(view.spec)[0] == names.ANY_POOL
        full = "every pool that fits" if undecided else "the pool"
        message = f"missing {len(draft.missing)} of {view.spec.replicas}; {full} is at its maximum"
        conditions.set(names.POOL_ALLOCATION_PENDING, names.WAIT_CAPACITY, message)


def _out_of_line(draft: _Draft, phase: str) -> bool:
    """Whether it is given no pods now, whatever it misses: what a pool has or lacks does not concern it."""
    spec = draft.view.spec
    gave_up = draft.conditions.has(names.POD_FAILED, names.REASON_ALLOCATION_TIMEOUT)
    return gave_up or phase in SUSPENDED or bool(spec.barred) or spec.detaching or spec.record_error is not None


def _spec_conditions(draft: _Draft) -> None:
    spec, conditions = draft.view.spec, draft.conditions
    if problems := (*spec.invalid, *task_problems(spec)):
        conditions.set(names.SPEC_INVALID, problems[0].reason, "; ".join(map(str, problems))[:1000])
    else:
        conditions.clear(names.SPEC_INVALID)
    recorded = spec.record.pool_ref if spec.record is not None and spec.record.pods else ""
    if recorded and spec.pool_ref and spec.pool_ref != recorded and not spec.detaching:
        message = f"poolRef {spec.pool_ref!r} is not acted on: the pods are of pool {recorded!r}; restore it"
        conditions.set(names.POOL_REF_UPDATE_REJECTED, names.POOL_REF_UPDATE_REJECTED, message)
    else:
        conditions.clear(names.POOL_REF_UPDATE_REJECTED)


def _lost(draft: _Draft) -> None:
    """PodLost: from the first loss on; its transition time is the latest loss."""
    record = draft.view.spec.record
    if record is None or not record.losses:
        return
    asked = draft.view.spec.replicas
    count = lost_count(record)
    prior = draft.conditions.text(names.POD_LOST)
    same = prior == count or prior.startswith(f"{count};")
    told = {slot: pod for slot, pod in told_pods(prior).items() if same and slot < asked}
    lost = [slot for slot in record.failed or record.open if slot < asked]
    pods = {slot: told.get(slot) or f"pod {_lost_pod(draft.view, record, slot)}" for slot in lost}
    draft.conditions.set(names.POD_LOST, *told_loss(record, pods or told), renew=not same)


def _lost_pod(view: BatchView, record: Record, slot: int) -> str:
    """The record of a sandbox without a pool names no pods: theirs follow from the slot."""
    return record.pods[slot] if slot < len(record.pods) else boxslots.pod_name(view.spec.name, slot)
