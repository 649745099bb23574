"""Events of a sandbox, one per transition: what the next status shows that the stored one did not.

In: a view and the next status. Out: `EmitEvent`s. Events of single writes (a pod made or refused, pods
granted) come from whoever makes the write (spec/batchsandbox.md 13).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from osb.api import claims, names
from osb.api.batchsandbox import BoxSpec
from osb.decide.conditions import Conditions, stored
from osb.decide.plan import Action, EmitEvent, event, names_text
from osb.facts.boxview import BatchView

BOX = "batchsandbox"
_PHASES = {
    names.PAUSING: (names.EVENT_PAUSING, "Pausing sandbox"),
    names.PAUSED: (names.EVENT_PAUSED, "Sandbox is paused"),
    names.RESUMING: (names.EVENT_RESUMING, "Resuming sandbox"),
}
# Warned about when they become True; those in _EACH also whenever reason or message change.
_WARNED = (
    names.POD_FAILED,
    names.PAUSE_FAILED,
    names.RESUME_FAILED,
    names.SPEC_INVALID,
    names.POOL_REF_UPDATE_REJECTED,
    names.QUARANTINED,
    names.POOL_ALLOCATION_PENDING,
)
_EACH = frozenset({names.SPEC_INVALID, names.PAUSE_FAILED, names.RESUME_FAILED})
# Waits that somebody has to act on. Whoever finds no pool for `*` tells that itself (FailedPoolAssign).
_STUCK = (
    names.WAIT_POOL_NOT_FOUND,
    names.WAIT_POOL_DELETING,
    names.WAIT_POOL_SPEC_INVALID,
    names.WAIT_REQUEST_EXCEEDS_POOL,
    names.WAIT_CANNOT_CREATE,
)


def transitions(view: BatchView, status: Mapping[str, Any]) -> tuple[Action, ...]:
    """Events for the step from the stored status to `status`."""
    before, after = stored(view.spec.status, now=view.now), stored(status, now=view.now)
    return (
        *_phase(view.spec.phase, status["phase"]),
        *_warnings(before, after),
        *_lost(before, after),
        *_stuck(before, after),
    )


def once_per_generation(spec: BoxSpec) -> tuple[EmitEvent, ...]:
    """What to say of a spec that works but not as its author may think, for whoever shows it first in a status."""
    if spec.generation <= spec.observed:
        return ()
    found = [event(BOX, "Warning", p.reason, str(p)) for p in spec.problems if p.level == "warning"]
    if spec.has_template and spec.pool_ref not in ("", names.ANY_POOL) and spec.generation == 1:
        # Later it may be the hint that this pool was chosen by, when poolRef was *.
        text = f"spec.template has no effect: the pods are those of pool {spec.pool_ref}"
        found.append(event(BOX, "Normal", "TemplateIgnored", text))
    extra = len(spec.shard_patches) - spec.replicas
    if spec.shard_patches and spec.pool_ref:
        text = "spec.shardPatches has no effect on pods of a pool"
        found.append(event(BOX, "Warning", "ShardPatchesIgnored", text))
    elif extra > 0:
        text = f"spec.shardPatches has {extra} more entries than spec.replicas; they have no effect"
        found.append(event(BOX, "Normal", "ShardPatchesIgnored", text))
    return tuple(found)


def endpoints_repaired(view: BatchView, found: Sequence[str]) -> tuple[Action, ...]:
    """A warning when published endpoints are rewritten that we cannot have written: somebody edited them.

    A slot's pod keeps its address for life, and a lost pod's address is taken out, so another address beside a
    usable pod is not ours; neither is what cannot be read, nor none at all while pods are shown as ready.
    """
    spec = view.spec
    present, published = names.ENDPOINTS in spec.annotations, spec.endpoints
    if not present:
        edited = spec.phase == names.SUCCEED and bool(spec.status.get("ready")) and any(found)
    elif published is None:
        edited = True
    else:
        was = [*published, *[""] * (len(found) - len(published))]
        edited = any(old not in ("", new) and new for old, new in zip(was, found, strict=False))
        edited = edited or bool(published and not found and claims.pooled(spec) and spec.record is None)
    if not edited:
        return ()
    told = "were removed" if not present else f"were {str(spec.annotations[names.ENDPOINTS])[:200]}"
    text = f"The endpoints {told}, which is not what its pods have; they are written again: {names_text(list(found))}"
    return (event(BOX, "Warning", names.EVENT_ENDPOINTS_REPAIRED, text),)


def _phase(before: str, after: str) -> tuple[Action, ...]:
    if before == after:
        return ()
    if after in _PHASES:
        return (event(BOX, "Normal", *_PHASES[after]),)
    if before == names.RESUMING and after == names.SUCCEED:
        return (event(BOX, "Normal", names.EVENT_RESUMED, "Sandbox is running again"),)
    return ()


def _warnings(before: Conditions, after: Conditions) -> list[Action]:
    found: list[Action] = []
    for kind in _WARNED:
        if not after.has(kind):
            continue
        reason, message = after.text(kind, "reason"), after.text(kind)
        told = (before.text(kind, "reason"), before.text(kind))
        if not before.has(kind) or (kind in _EACH and told != (reason, message)):
            text = message if reason in message else f"{reason}: {message}"
            found.append(event(BOX, "Warning", kind, text))
    return found


def _lost(before: Conditions, after: Conditions) -> list[Action]:
    """That a paused sandbox has nothing to be resumed from any more."""
    said = (names.COND_PAUSED, names.REASON_SNAPSHOT_NOT_FOUND)
    if not after.has(*said) or before.has(*said):
        return []
    return [event(BOX, "Warning", names.EVENT_SNAPSHOT_DELETED, after.text(names.COND_PAUSED))]


def _stuck(before: Conditions, after: Conditions) -> list[Action]:
    if not after.has(names.PROGRESSING, names.REASON_WAITING_FOR_POOL):
        return []
    message = after.text(names.PROGRESSING)
    code = next((c for c in _STUCK if message.startswith(c)), "")
    if not code or before.text(names.PROGRESSING).startswith(code):
        return []
    return [event(BOX, "Warning", code, message)]
