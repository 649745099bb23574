"""Write what the task side owns on a sandbox: final results, the release list, and the removal of its finalizer.

In: the raw sandbox and what to add. Out: the object as stored. One merge patch with the version it was computed
from; a conflict is computed again on a live read, at most three times. Next: the mirror (write-through).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from osb.api import batchsandbox, names, record
from osb.apply.hand import Hand
from osb.decide import taskresults
from osb.decide.tasknode import Node
from osb.errors import Conflict, NotFound

Obj = dict[str, Any]

TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the annotations should contain in addition; `finish` also removes the task finalizer."""

    finals: tuple[Node, ...] = ()
    give: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
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
    annotations = dict(_results(box, wanted.finals)) | dict(_release(box, wanted.give, wanted.force))
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


def _results(box: batchsandbox.BoxSpec, finals: Iterable[Node]) -> Iterable[tuple[str, str]]:
    stored = taskresults.parse(box.annotations.get(names.TASK_RESULTS))
    merged = stored.plus(finals)
    if merged.indexes() != stored.indexes() or (not stored.readable and merged.indexes()):
        yield names.TASK_RESULTS, merged.text()


def _release(box: batchsandbox.BoxSpec, give: Iterable[str], force: Iterable[str]) -> Iterable[tuple[str, str]]:
    recorded = set(box.record.pods) if box.record is not None else set()
    pods = sorted({*box.release, *(set(give) & recorded)})
    forced = sorted({*box.force, *(set(force) & recorded)})
    if set(pods) != set(box.release) or set(forced) != set(box.force):
        yield names.ALLOC_RELEASE, record.format_release(record.Release(tuple(pods), tuple(forced)))
