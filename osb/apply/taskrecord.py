"""Write what the task side owns on a sandbox: final results, the release list, and the removal of its finalizer.

In: the raw sandbox and what to add. Out: the object as stored. One merge patch with the version it was computed
from; a conflict is computed again on a live read, at most three times. Next: the mirror (write-through).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from osb.api import batchsandbox, claims, names, record
from osb.api.batchsandbox import BoxSpec
from osb.apply.hand import Hand
from osb.decide import taskresults
from osb.decide.taskresults import Results
from osb.errors import Conflict, NotFound

Obj = dict[str, Any]

TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the annotations should contain in addition; `finish` also removes the task finalizer.

    `reopen`: pods that are taken from the sandbox because they are not fit for it, so that their slots wait for
      other ones and nothing counts as lost.
    """

    results: Results | None = None
    give: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    reopen: tuple[str, ...] = ()
    finish: bool = False


def write_record(hand: Hand, obj: Obj, wanted: Wanted) -> tuple[Obj | None, bool]:
    """(the object as stored, whether a write was made); None when the sandbox is gone or is another one by now.

    Raises Conflict after three lost races, and what the API server answers otherwise.
    """
    uid = obj["metadata"]["uid"]
    for attempt in range(TRIES):
        patch = patch_for(obj, wanted)
        if patch is None:
            return obj, False
        hand.check()
        hand.step("record")
        meta = obj["metadata"]
        try:
            stored = hand.kube.patch("batchsandbox", meta["namespace"], meta["name"], patch)
        except NotFound:
            return None, False
        except Conflict:
            if attempt == TRIES - 1:
                raise
            live = live_box(hand, meta["namespace"], meta["name"], uid=uid)
            if live is None:
                return None, False
            obj = live
            continue
        hand.forward.put("batchsandbox", [stored], own=hand.key, versioned=attempt == 0)
        return stored, True
    raise AssertionError("unreachable: the last try returns or raises")


def patch_for(obj: Obj, wanted: Wanted) -> Obj | None:
    """The merge patch that `obj` needs, None when it has everything already.

    Only names that the record of `obj` itself contains are given back, so a name that left the record
    meanwhile is never brought back.
    """
    box = batchsandbox.parse(obj)
    annotations: Obj = {
        **dict(_results(box, wanted.results)),
        **dict(_release(box, wanted.give, wanted.force)),
        **dict(_reopened(box, wanted.reopen)),
    }
    meta: Obj = {"annotations": annotations} if annotations else {}
    if wanted.finish and names.FINALIZER_TASKS in box.finalizers:
        meta["finalizers"] = [item for item in box.finalizers if item != names.FINALIZER_TASKS]
    if not meta:
        return None
    return {"metadata": {"resourceVersion": box.version, **meta}}


def live_box(hand: Hand, namespace: str, name: str, *, uid: str = "") -> Obj | None:
    """The sandbox as the API server has it; None when it is gone, or another UID."""
    try:
        obj = hand.kube.get("batchsandbox", namespace, name)
    except NotFound:
        return None
    return obj if not uid or obj["metadata"]["uid"] == uid else None


def _results(box: BoxSpec, wanted: Results | None) -> Iterable[tuple[str, str]]:
    if wanted is None:
        return
    stored = taskresults.parse(box.annotations.get(names.TASK_RESULTS))
    merged = stored.merged(wanted).below(slots(box))
    if merged != stored or (not stored.readable and merged.indexes()):
        yield names.TASK_RESULTS, merged.text()


def slots(box: BoxSpec) -> int:
    """How many slots the sandbox has. A pool cuts those beyond replicas: until then their results count."""
    recorded = len(box.record.pods) if box.record is not None and claims.pooled(box) else 0
    return max(box.replicas, recorded)


def _reopened(box: BoxSpec, pods: Iterable[str]) -> Iterable[tuple[str, str]]:
    held = claims.slots(box)
    unfit = {slot for slot, (pod, _) in held.items() if pod in set(pods)}
    if unfit and box.record is not None:
        after = replace(box.record, open=tuple(sorted({*box.record.open, *unfit})), seq=box.record.seq + 1)
        yield names.ALLOC_STATUS, record.format(after)


def _release(box: BoxSpec, give: Iterable[str], force: Iterable[str]) -> Iterable[tuple[str, str]]:
    recorded = set(box.record.pods) if box.record is not None else set()
    pods = sorted({*box.release, *(set(give) & recorded)})
    forced = sorted({*box.force, *(set(force) & recorded)})
    if set(pods) != set(box.release) or set(forced) != set(box.force):
        yield names.ALLOC_RELEASE, record.format_release(record.Release(tuple(pods), tuple(forced)))
