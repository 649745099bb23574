"""What a terminating sandbox still waits for in its pool, in words, and the condition when it takes long. Pure.

In: a `BatchView` with `leaving`. Out: reasons for the log and `osbctl explain`, and the next status once a deletion
lasts longer than usual. The steps themselves are the pool's (`osb.decide.poolrelease`, `osb.decide.recycle`); this
side decides nothing, it only asks the same functions what comes next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from osb.api import names, times
from osb.decide import recycle
from osb.decide.conditions import stored
from osb.decide.plan import Action, event
from osb.decide.recycle import Recycling, RestartRecord
from osb.decide.waittext import span
from osb.facts import ledger
from osb.facts.boxview import BatchView, Leaving, Returning

USUAL = 60.0  # seconds: a pod's grace period and some passes; beyond it the sandbox itself says what it waits for
LOOK = 15.0  # seconds between looks from then on: what the pool does to its pods wakes no sandbox
SHOWN = 5  # pods


def reasons(view: BatchView) -> tuple[str, ...]:
    """Which finalizer holds the sandbox and why, then one line per pod that has to come back first."""
    assert view.leaving is not None  # the caller's condition
    head = f"terminating; finalizer {names.FINALIZER_POOL} holds it: {_wait(view.leaving)}"
    left = len(view.leaving.pods) - SHOWN
    return (head, *_pods(view, exact=True), *([f"and {left} more pods"] if left > 0 else []))


def overdue(view: BatchView) -> float:
    """Seconds beyond the usual length of a deletion; negative before."""
    began = view.spec.deleting or view.now
    return (view.now - began - timedelta(seconds=USUAL)).total_seconds()


def told(view: BatchView) -> tuple[Mapping[str, Any], tuple[Action, ...]]:
    """The status that says what an overdue deletion waits for, and one Event when it says so first.

    No times are in it: a message that changes with the clock would be a write with each look.
    """
    assert view.leaving is not None  # the caller's condition
    before = stored(view.spec.status, now=view.now)
    first = not before.has(names.PROGRESSING, names.REASON_WAITING_FOR_RECYCLING)
    text = "; ".join((f"Being deleted; {_wait(view.leaving)}", *_pods(view, exact=False)))[:1000]
    before.set(names.PROGRESSING, names.REASON_WAITING_FOR_RECYCLING, text, renew=first)
    status = {**view.spec.status, "conditions": before.dump(names.BOX_CONDITIONS)}
    return status, (event("batchsandbox", "Warning", names.EVENT_DELETION_WAITS, text),) if first else ()


def _wait(leaving: Leaving) -> str:
    if not leaving.pool:
        return "its record does not say which pool it is of"
    if not leaving.exists:
        return f"Pool {leaving.pool} is gone, and with the pool's next pass so is the finalizer"
    if leaving.hold:
        return f"its pods must be back in pool {leaving.pool}, which is on hold and takes and recycles none"
    if not leaving.believed:
        return f"the ledger of pool {leaving.pool} is rebuilt first"
    if not leaving.pods:
        return f"pool {leaving.pool} has nothing of it left, and its next pass removes the finalizer"
    count = len(leaving.pods)
    return f"pool {leaving.pool} has {count} pod{'' if count == 1 else 's'} of it to take back"


def _pods(view: BatchView, *, exact: bool) -> Iterator[str]:
    assert view.leaving is not None  # the caller's condition
    for one in view.leaving.pods[:SHOWN]:
        yield f"pod {one.name}: {_pod(view, view.leaving, one, exact=exact)}"


def _pod(view: BatchView, leaving: Leaving, one: Returning, *, exact: bool) -> str:
    if one.entry.state == ledger.CONF:
        return "another sandbox's record claims it too"
    if one.entry.state != ledger.REL:
        return "not taken back yet"
    policy = recycle.policy_of(one.entry, leaving.policy, forced=one.name in view.spec.force)
    work = Recycling(
        entry=one.entry, pod=one.pod, policy=policy, config=leaving.config, now=view.now, epoch=leaving.epoch
    )
    step = recycle.next_step(work)
    text = f"recycle policy {policy}, {_step(work, step)}"
    limit = _limit(work) if exact and step.kind in ("wait", "attempt") else None
    return text if limit is None else f"{text}; if nothing helps, it is deleted in {span(limit)} at the latest"


def _step(work: Recycling, step: recycle.Step) -> str:
    """The next step; of a restart also which attempt it is."""
    record = _record(work)
    if step.kind == "attempt":
        number = record.retries + 1 if record is not None else 1
        return f"restart {number} of {work.config.max_retries} is due"
    if step.kind == "wait" and record is not None and work.pod is not None and not work.pod.deleting:
        return f"restart {record.retries} of {work.config.max_retries}: {step.why}"
    if step.kind == "wait":
        return step.why
    if step.kind == "gone":
        return "the pod is gone, which the pool's next pass records"
    done = "it is deleted" if step.kind == "delete" else "it goes back into the stock"
    return f"{done} in the pool's next pass ({step.why})"


def _record(work: Recycling) -> RestartRecord | None:
    """The restart record of this life of the pod."""
    if work.policy != names.RECYCLE_RESTART or work.pod is None:
        return None
    found = recycle.parse_record(work.pod.restart_record)
    return found if found is not None and found.id == recycle.life_id(work.entry, work.epoch) else None


def _limit(work: Recycling) -> float | None:
    """Seconds until the restarts that are left are used up, each with its longest exec; None for other policies."""
    if work.policy != names.RECYCLE_RESTART or work.pod is None or work.pod.deleting:
        return None
    record = _record(work)
    containers = len(record.containers) if record is not None else len(work.pod.container_ids)
    each = work.config.retry_interval + recycle.EXEC_SECONDS * max(1, containers)
    if record is None:
        return work.config.max_retries * each
    last = times.parse_or_none(record.last_retry or record.started) or work.now
    running = each if record.open else work.config.retry_interval
    left = max(0.0, running - (work.now - last).total_seconds())
    return left + max(0, work.config.max_retries - record.retries) * each
