"""Take a key, run its recipe, turn the outcome into queue operations, metrics and one log line.

In: a key from a Celery task (a wake-up or a hand-sent task). Out: a short sentence that Flower shows. Nothing
else decides on retries. The recipe of the kind comes next: `osb.reconcile.pool`, `.batchsandbox`,
`.snapshot`, `.recycle`, `.tasks`.

The task loops while its key is dirty again, bounded by passes and time, instead of waiting for the next wake-up:
under load one pass serves all that came in during the last one.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable

from osb.api.key import BATCHSANDBOX, POOL, RECYCLE, SNAPSHOT, TASKS, Key
from osb.errors import ApiError, Conflict, DeadlinePassed, Fenced, OsbError, StoreDown
from osb.obs import heap, trace
from osb.obs.deadline import Deadline
from osb.obs.log import get_logger
from osb.reconcile import batchsandbox, gather, pool, quarantine, recycle, report, snapshot, tasks
from osb.reconcile.contract import After, Done, Outcome, Part, Retry, Stop
from osb.reconcile.world import Halted, Pass, World
from osb.store.queue import How

STOPPING = "stopping"  # what `handle` says when this process takes no more: another one should
MAX_PASSES = 50
MAX_SECONDS = 5.0
CONFLICT_WAIT = 0.05
FENCED_WAIT = 0.1
BIG_PASS = 0.1  # seconds: a pass that took longer may have needed much memory

Recipe = Callable[[Pass], Outcome]

RECIPES: dict[str, Recipe] = {
    POOL: pool.reconcile,
    BATCHSANDBOX: batchsandbox.reconcile,
    SNAPSHOT: snapshot.reconcile,
    RECYCLE: recycle.reconcile,
    TASKS: tasks.reconcile,
}

log = get_logger("reconcile")


def handle(world: World, key: Key, *, reason: str = "", hand: bool = False, task_id: str = "") -> str:
    """Reconcile `key` if it asks for it and nobody else does. Never raises for anything the key's owner can cause."""
    if world.stop.is_set():
        return STOPPING
    ran, text = _passes(world, key, reason=reason, hand=hand, task_id=task_id)
    if hand and ran:
        with contextlib.suppress(StoreDown):
            world.store.queue.hand_tell(key.kind, task_id, text)
    return text


def _passes(world: World, key: Key, *, reason: str, hand: bool, task_id: str) -> tuple[bool, str]:
    """(whether there was a pass, what all of them said)."""
    said: list[str] = []
    started = time.monotonic()
    for number in range(MAX_PASSES):
        staying = number < MAX_PASSES - 1 and time.monotonic() - started < MAX_SECONDS and not world.stop.is_set()
        state, summary, again = _once(world, key, reason=reason, hand=hand, task_id=task_id, staying=staying)
        if state != "run":
            return number > 0, "; ".join(said) or state
        if summary and (not said or said[-1] != summary):
            said.append(summary)
        if not again or not staying:
            break
        hand = False
    return True, "; ".join(said[-6:])


def _once(world: World, key: Key, *, reason: str, hand: bool, task_id: str, staying: bool) -> tuple[str, str, bool]:
    """One pass: begin, recipe, end. Returns the begin state, the summary and whether the key is dirty again.

    `staying`: the caller goes on when it is, so no wake-up has to travel through the broker for that.
    """
    token = uuid.uuid4().hex
    sent = time.monotonic()
    try:
        begin = world.store.queue.begin(key, token, hand=hand, task_id=task_id)
    except StoreDown as down:
        log.warning("Redis is away", key=key.text, error=str(down))
        return "error", "", False
    report.began(key.kind, begin.state, begin.waited_ms)
    if begin.newly_quarantined:
        quarantine.tell(world.events, key)
    if begin.state != "run":
        return begin.state, "", False
    if trace.on:
        trace.mark("begin", key.text, token[:8])
    started = time.monotonic()
    deadline = Deadline()
    lease = world.keeper.hold(key, token, sent=sent)
    one = Pass(
        world=world, key=key, token=token, deep=begin.deep or hand, deadline=deadline,
        lease=lease, reason=(hand and reason) or begin.reason or reason, waited_ms=begin.waited_ms,
    )  # fmt: skip
    try:
        with world.watchdog.watching(key.text, deadline), deadline.use():
            outcome = _outcome(one)
    finally:
        world.keeper.drop(lease)
    again = _end(one, outcome, staying=staying)
    if trace.on:
        trace.mark("end", key.text, f"{token[:8]} {type(outcome).__name__}")
    took = time.monotonic() - started
    _report(one, outcome, took)
    if one.deep and took > BIG_PASS:
        heap.trim()
    return "run", outcome.summary, again


def _outcome(one: Pass) -> Outcome:
    """Run the recipe; every failure becomes an outcome."""
    try:
        if one.world.stop.is_set():
            return After(seconds=0.0, summary="stopping, handed back")
        if one.world.halted():
            return After(seconds=5.0, summary=one.world.halt_reason)
        return RECIPES[one.key.kind](one)
    except Conflict as conflict:
        return _behind(one, conflict)
    except Halted as halted:
        return After(seconds=5.0, summary=str(halted))
    except Fenced as fenced:
        # Taken over: this says nothing to anybody. Still ours (Redis was away too long to renew): all is owed again.
        return After(seconds=FENCED_WAIT, summary=f"fenced: {fenced}")
    except DeadlinePassed as late:
        return Retry(cause=str(late), summary="stopped at its deadline")
    except StoreDown as down:
        return Retry(cause=f"Redis: {down}", summary="Redis is away")
    except ApiError as error:
        wait = error.retry_after
        if wait:
            return After(seconds=wait, summary=f"the API server asks to wait {wait:g} s")
        return Retry(cause=str(error), summary=f"failed: {str(error)[:160]}")
    except OsbError as error:
        return Retry(cause=str(error), summary=f"failed: {str(error)[:160]}")
    except Exception as error:
        log.exception("a reconcile crashed", key=one.key.text)
        report.crashed(one.key.kind)
        return Retry(cause=repr(error), summary=f"crashed: {error!r:.160}")


def _behind(one: Pass, conflict: Conflict) -> Outcome:
    """The facts were older than the object: the next pass gets it as it is now, however late its event comes."""
    try:
        gather.refresh(one)
    except (ApiError, StoreDown) as error:
        log.info("facts could not be refreshed after a conflict", key=one.key.text, error=str(error))
    return After(seconds=CONFLICT_WAIT, summary=f"conflict, again: {conflict}")


def _end(one: Pass, outcome: Outcome, *, staying: bool) -> bool:
    """Give the key back with its outcome; True when it is dirty again."""
    words: dict[type[Outcome], How] = {
        Done: "done",
        After: "after",
        Retry: "retry",
        Stop: "stop",
        Part: "part",
    }
    seconds = getattr(outcome, "seconds", 0.0)
    try:
        ended = one.store.queue.end(
            one.key, one.token, words[type(outcome)], seconds=seconds, progress=outcome.progress, staying=staying
        )
    except StoreDown as down:
        log.warning("the end of a pass was not recorded; its lease will run out", key=one.key.text, error=str(down))
        return False
    if not ended.ours:
        log.info("the key was taken over while this pass ran", key=one.key.text)
    return ended.again


def _report(one: Pass, outcome: Outcome, took: float) -> None:
    report.finished(one.key.kind, outcome, took)
    say = log.warning if isinstance(outcome, Retry) else log.info
    say(
        "Reconcile finished", key=one.key.text, reason=one.reason, outcome=type(outcome).__name__.lower(),
        summary=outcome.summary, cause=getattr(outcome, "cause", ""), duration=round(took, 4), deep=one.deep,
        waited=one.waited_ms, requeueAfter=getattr(outcome, "seconds", None),
    )  # fmt: skip
