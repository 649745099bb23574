"""Idle pods leave: out of the stock by a ledger move first, then deleted with UID and version.

Next: what was removed is told once, under the reasons that users know.
"""

from __future__ import annotations

from collections.abc import Sequence

from osb.api import names
from osb.apply import pods as pod_writes
from osb.apply.hand import in_parallel
from osb.apply.poolwork import PoolWork
from osb.decide import plan as plans
from osb.decide.plan import names_text
from osb.errors import ApiError, Conflict
from osb.store.ledger_types import Move


def dooms(work: PoolWork, group: list[plans.Doom]) -> None:
    """Out of the stock first, then deleted: a planned delete cannot hit a pod that was given away meanwhile."""
    moves = [
        Move(what="doom", pod=d.name, pod_uid=d.uid, from_state=d.from_state, box_uid=work.box_uid(d.name))
        for d in group
        if d.from_state != "doom"
    ]
    work.move(moves)
    doomed = [d for d in group if (e := work.entries.get(d.name)) is not None and e.state == "doom"]

    def delete(d: plans.Doom) -> bool:
        return pod_writes.delete_pod(work.hand, work.hand.key.namespace, d.name, uid=d.uid, version=d.version)

    _deleted(work, doomed, in_parallel(work.hand, delete, doomed))


def _deleted(work: PoolWork, doomed: Sequence[plans.Doom], results: Sequence[bool | ApiError]) -> None:
    removed: list[str] = []
    gone: list[Move] = []
    for d, result in zip(doomed, results, strict=True):
        if isinstance(result, ApiError):
            work.failed(result)
            if not isinstance(result, Conflict):
                work.tell("Warning", names.EVENT_FAILED_DELETE, f"Failed to delete pool pod {d.name}: {result}")
            continue
        removed.append(d.name)
        if result:
            gone.append(
                Move(
                    what="gone",
                    pod=d.name,
                    pod_uid=d.uid,
                    from_state="doom",
                    box_uid=work.box_uid(d.name),
                )
            )
    work.move(gone)
    work.done.count("deleted", removed)
    if removed:
        causes = sorted({d.why for d in doomed if d.name in set(removed)})
        work.tell("Normal", names.EVENT_SUCCESSFUL_DELETE,
                   f"Deleted {len(removed)} pool pod(s) ({'; '.join(causes)}): {names_text(removed)}")  # fmt: skip
        _tell_left(work, [d for d in doomed if d.name in set(removed)])


def _tell_left(work: PoolWork, left: Sequence[plans.Doom]) -> None:
    """Evictions and rollouts under the reasons that users know, told when the deletes are done."""
    evicted = [d.name for d in left if d.reason == names.EVENT_POD_EVICTED]
    replaced = [d.name for d in left if d.reason == names.EVENT_POD_UPDATED]
    if evicted:
        what = "Evicted idle pod" if len(evicted) == 1 else f"Evicted {len(evicted)} idle pods"
        work.tell("Normal", names.EVENT_POD_EVICTED, f"{what}: {names_text(evicted)}")
    if replaced:
        text = f"deleted {len(replaced)} pod(s) for revision {work.view.revision}: {names_text(replaced)}"
        work.tell("Normal", names.EVENT_POD_UPDATED, f"Rolling update: {text}")


def deletes(work: PoolWork, group: list[plans.DeletePod]) -> None:
    def delete(d: plans.DeletePod) -> bool:
        return pod_writes.delete_pod(
            work.hand, work.hand.key.namespace, d.name, uid=d.uid, version=d.version, grace=d.grace
        )

    for d, result in zip(group, in_parallel(work.hand, delete, group), strict=True):
        if isinstance(result, ApiError):
            work.failed(result)
        else:
            work.done.count("deleted", [d.name])
