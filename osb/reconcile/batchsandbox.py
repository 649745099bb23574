"""One BatchSandbox: gather → decide → apply. Its pods, its endpoints, its status, its expiry, pause and resume.

What concerns a pool's pods is the pool's work (`osb.reconcile.pool`); what concerns executors is the tasks' work
(`osb.reconcile.tasks`). This pass makes the pods of a sandbox without a pool, and shows for every sandbox what is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from osb.api import batchsandbox, claims, names
from osb.api.key import POOL, TASKS, Key
from osb.apply.execute import Applied, execute
from osb.decide import batch, boxslots
from osb.decide.plan import AssignPool, DeleteBox, Plan
from osb.errors import Unavailable
from osb.facts.adds import Add
from osb.facts.boxview import BatchView
from osb.reconcile import assign, boxview
from osb.reconcile.contract import After, Done, Outcome, Retry
from osb.reconcile.gather import Obj, live, read_one
from osb.reconcile.world import Pass

NOT_SOONER = 1.0  # seconds
NAME_TAKEN_AGAIN = 30.0  # a pod of somebody else has the name: nothing announces its end


def reconcile(p: Pass) -> Outcome:
    """The whole pass. A Conflict (the mirror was behind) ends it; it decides again on fresh facts."""
    raw = read_one(p, "batchsandbox", p.key.namespace, p.key.name)
    if raw is None:
        return Done(summary="no such sandbox")
    view = boxview.build(p, raw)
    plan = batch.plan(view)
    if any(isinstance(action, AssignPool) for action in plan.actions):
        return _assign(p, raw, plan)
    if _decided_to_expire(plan):
        raw = live(p, "batchsandbox", p.key.namespace, p.key.name) or raw
        view = boxview.build(p, raw)
        plan = batch.plan(view)
    p.step("planned")
    done = execute(p, "batchsandbox", raw, plan, restate=lambda refused: _restated(view, refused))
    if not done.gone:
        _follow_up(p, view, done)
    return _outcome(plan, done)


def _restated(view: BatchView, refused: Mapping[str, str]) -> Mapping[str, Any] | None:
    """The status that says which pod the server did not make, and why."""
    pod, words = min(refused.items())
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    return batch.plan(replace(view, create_refused=f"{pod}{more}: {words}")).status


def _decided_to_expire(plan: Plan) -> bool:
    """Deleting is final: it is decided once more on a live read (spec/batchsandbox.md 7)."""
    return any(isinstance(action, DeleteBox) for action in plan.actions)


def _assign(p: Pass, raw: Obj, plan: Plan) -> Outcome:
    """poolRef is `*`: choose a pool. The rest of the plan still shows what is."""
    chosen = assign.choose(p, raw)
    if chosen.assigned:
        return Done(summary=chosen.summary, progress=True)
    rest = tuple(action for action in plan.actions if not isinstance(action, AssignPool))
    shown = batch.plan(boxview.build(p, raw, waiting=chosen.waiting))
    if chosen.waiting is not None and shown.status is not None:
        assign.tell(p, raw, chosen.waiting, shown.status)
    done = execute(p, "batchsandbox", raw, Plan(rest, shown.status, shown.reasons, shown.again))
    again = min(w for w in (plan.again, chosen.again) if w is not None)
    return After(seconds=again, summary=chosen.summary, progress=done.writes > 0)


def _follow_up(p: Pass, view: BatchView, done: Applied) -> None:
    """Keys that this pass knows to be concerned: the pool of a sandbox with work for it, the tasks."""
    if done.obj is None:
        return
    spec = batchsandbox.parse(done.obj)
    adds = []
    pool = claims.effective_pool(spec)[0]
    if pool and pool != names.ANY_POOL and p.deep and (claims.wants(spec) or claims.needs_release(spec)):
        adds.append(Add(key=Key(POOL, spec.namespace, pool), reason=f"sandbox {spec.name} waits"))
    runs_tasks = spec.task_template is not None or names.FINALIZER_TASKS in spec.finalizers
    if runs_tasks and spec.phase != names.PAUSED and (p.deep or _concerns_tasks(view, done, spec.phase)):
        adds.append(Add(key=Key(TASKS, spec.namespace, spec.name), reason="its sandbox was reconciled"))
    if adds:
        p.store.queue.add(adds)


def _concerns_tasks(view: BatchView, done: Applied, phase: str) -> bool:
    """More than counters were written, a slot was cut whose task or result is still there, or a pod with an address
    has no task: new in its slot, or Redis forgot.

    Counters come from the tasks' pass: to wake it for them would poll every executor again for each end of a task.
    """
    if phase != view.spec.phase or any(word != "status" for word in done.counts):
        return True
    if view.tasks is None:
        return False
    if any(slot >= view.spec.replicas for slot in view.tasks.busy):
        return True
    pods = boxslots.listed(view).items()
    return any(pod.live and pod.ip and slot not in view.tasks.busy for slot, pod in pods)


def _outcome(plan: Plan, done: Applied) -> Outcome:
    said = ", ".join(f"{word} {count}" for word, count in done.counts.items()) or "; ".join(plan.reasons[:2])
    said = said or "in order"
    if done.failed:
        first = done.failed[0]
        if first.retry_after:
            return After(seconds=first.retry_after, summary=f"{said}; the server asks to wait")
        unclear = any(isinstance(error, Unavailable) for error in done.failed)
        if unclear or plan.again is None or plan.again < NOT_SOONER:  # what fails is not tried again at once
            return Retry(cause=str(first), summary=f"{said}; {len(done.failed)} writes failed")
        return After(seconds=min(plan.again, 30.0), summary=f"{said}; {len(done.failed)} writes failed")
    if done.refused:
        wait = min(max(plan.again, NOT_SOONER) if plan.again else NAME_TAKEN_AGAIN, NAME_TAKEN_AGAIN)
        return After(seconds=wait, summary=f"{said}; {len(done.refused)} pod names are taken")
    if plan.again is not None:
        return After(seconds=max(plan.again, 0.02), summary=said, progress=done.writes > 0)
    return Done(summary=said, progress=done.writes > 0)
