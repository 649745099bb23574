"""Status, conditions and events of a pool: what its numbers and its troubles look like to people.

In: `PoolView` and `Findings` (what the plan found out). Out: the whole status as a dict, every counter always
there, and the events of conditions that became True. Events of writes come from whoever makes the write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osb.api import names
from osb.api.status import PoolStatus, with_condition, without_conditions
from osb.decide.plan import EmitEvent, counted, event
from osb.facts.poolview import PoolView

HELD = "Held"  # condition: the annotation `hold` stops this pool
HOLD_SHOWN = 200  # characters of the reason that people gave in it
LONG_OPEN = 5.0  # seconds a create may stay unobserved before it is worth a condition

_ORDER = (*names.POOL_CONDITIONS, HELD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Numbers for the counters; texts for conditions, "" = the condition is not True.

    `old`: pods of an old revision that wait for nobody but us.
    `held_old`: pods of an old revision that a sandbox has.
    `starting`: new pods are on their way.
    """

    total: int = 0
    allocated: int = 0
    available: int = 0
    updated: int = 0
    old: int = 0
    held_old: int = 0
    starting: bool = False
    pending: int = 0
    terminating: int = 0
    waiting: int = 0
    unmet: int = 0
    target: int = 0
    target_reason: str = "bufferMin"
    exhausted: bool = False
    blocked: str = ""
    create_failing: str = ""
    recycle_failing: str = ""
    starting_note: str = ""  # what idle pods that are not ready wait for


def status(view: PoolView, found: Findings) -> dict[str, Any]:
    """The status to write. `observedGeneration` is the generation of the spec that was planned."""
    return PoolStatus(
        observed_generation=view.pool.generation,
        revision=view.revision,
        total=found.total,
        allocated=found.allocated,
        available=found.available,
        updated=found.updated,
        pending=found.pending,
        terminating=found.terminating,
        waiting=found.waiting,
        unmet=found.unmet,
        target=found.target,
        target_reason=found.target_reason,
        conditions=conditions(view, found, stored=list(view.pool.conditions)),
    ).as_dict()


def conditions(view: PoolView, found: Findings, *, stored: list[Any]) -> list[dict[str, Any]]:
    """Ready always; the others only while True. Conditions of somebody else are kept."""
    wanted = troubles(view, found)
    kept = without_conditions(stored, *(kind for kind in _ORDER if kind not in wanted and kind != names.READY))
    made: list[dict[str, Any]] = kept
    ready, reason, message = readiness(view, found)
    texts = {names.READY: (reason, message), **wanted}
    for kind in _ORDER:
        if kind in texts:
            reason, message = texts[kind]
            made = with_condition(
                made,
                kind,
                reason=reason,
                message=message[:1000],
                now=view.now,
                status="False" if kind == names.READY and not ready else "True",
                generation=view.pool.generation,
            )
    return made


def readiness(view: PoolView, found: Findings) -> tuple[bool, str, str]:
    """True when the spec is valid, the ledger may be believed, and as many pods are warm as should be."""
    if view.pool.invalid:
        return False, "SpecInvalid", str(view.pool.invalid[0])
    if not view.ledger_ready:
        return False, "LedgerRebuilding", "allocations are being read from the cluster"
    warm = f"{counted(found.available, 'ready idle pod')}, target {found.target}"
    text = "; ".join((warm, *_beside_warm(view, found)))
    if found.available >= found.target:
        return True, "Warm", text
    note = f"; {found.starting_note}" if found.starting_note else ""
    return False, "Filling", f"{text}{note}"


def _beside_warm(view: PoolView, found: Findings) -> list[str]:
    """What people would not expect of a pool that is ready: a target that is met serves nobody by itself."""
    told: list[str] = []
    if found.unmet:
        hold = ", the pool is on hold" if view.pool.hold else ""
        full = f", all {view.pool.pool_max} of poolMax are in use" if found.exhausted else ""
        line = f"{_some(found.waiting, 'sandbox', 'sandboxes')} for {_some(found.unmet, 'pod')}"
        told.append(f"waiting: {line}{hold or full}")
    if found.held_old:
        told.append(f"{_some(found.held_old, 'held pod')} of an old revision, replaced when given back")
    return told


def _some(count: int, one: str, more: str = "") -> str:
    return f"{count} {one if count == 1 else more or one + 's'}"


def troubles(view: PoolView, found: Findings) -> dict[str, tuple[str, str]]:
    """Condition type -> (reason, message) of what is True now."""
    made: dict[str, tuple[str, str]] = {}
    if view.pool.invalid:
        first = view.pool.invalid[0]
        text = "; ".join(map(str, view.pool.invalid))
        made[names.SPEC_INVALID] = (first.reason, text)
    if found.create_failing:
        made[names.CREATE_FAILING] = ("CreateRefused", found.create_failing)
    if found.exhausted:
        text = (
            f"{counted(found.unmet, 'pod', 'is', 'are')} asked for, and all {view.pool.pool_max} of poolMax are in use"
        )
        made[names.CAPACITY_EXHAUSTED] = ("PoolMaxReached", text)
    if found.blocked:
        made[names.SCALING_BLOCKED] = ("WaitingForObservation", found.blocked)
    if found.old or _replacing(view, found):
        text = f"{found.updated} of {found.updated + found.old + found.held_old} updated"
        note = f"; {found.held_old} in use are replaced when they are given back" if found.held_old else ""
        made[names.ROLLING_OUT] = ("OldRevision", text + note)
    if not view.ledger_ready:
        made[names.LEDGER_REBUILDING] = ("Rebuilding", "allocations are being read from the cluster")
    if found.recycle_failing:
        made[names.RECYCLE_FAILING] = ("RecycleFailed", found.recycle_failing)
    if view.pool.recycle == names.RECYCLE_NOOP:
        text = "returned pods keep the files and processes of their last user"
        made[names.NOOP_RECYCLING] = ("NothingIsCleaned", text)
    if view.pool.hold:
        given = " ".join(view.pool.annotations.get(names.HOLD, "").split())
        why = f"{given[:HOLD_SHOWN]}: " if given.lower() != "true" else "annotation hold: "
        made[HELD] = ("HoldAnnotation", f"{why}nothing is created, deleted or handed out")
    return made


def _replacing(view: PoolView, found: Findings) -> bool:
    """A rollout has removed the last idle old pod, and what takes its place is not ready yet.

    Pods in use do not count: who waits for the rollout would wait for users.
    """
    rolling = any(c["type"] == names.ROLLING_OUT and c.get("status") == "True" for c in view.pool.conditions)
    return rolling and found.starting and found.available < found.target


_WARNED = (names.SPEC_INVALID, names.CAPACITY_EXHAUSTED, names.RECYCLE_FAILING, HELD)


def events(view: PoolView, new_status: Mapping[str, Any]) -> list[EmitEvent]:
    """The events that a new status calls for.

    One Warning per condition that became True or changed its reason; and one per warning about a label or
    annotation and version of the object that brought it.
    """
    before = {(c["type"], str(c.get("reason"))) for c in view.pool.conditions if c.get("status") == "True"}
    made = [
        event("pool", "Warning", c["type"], f"{c['reason']}: {c['message']}")
        for c in new_status["conditions"]
        if c["type"] in _WARNED and c.get("status") == "True" and (c["type"], c["reason"]) not in before
    ]
    fresh = [p for p in warnings(view) if p[0] not in view.memory.warned]
    return made + [event("pool", "Warning", reason, text) for _, reason, text in fresh]


def warnings(view: PoolView) -> list[tuple[str, str, str]]:
    """(identity, reason, message) of harmless mistakes, for which a default is in force."""
    return [
        (f"{p.reason}/{p.field}/{view.pool.generation}", p.reason, f"{p.field}: {p.message}")
        for p in view.pool.problems
        if p.level == "warning"
    ]
