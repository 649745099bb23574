"""The next record of a sandbox: after a grant, a loss, an acknowledged release. Pure; `osb.apply.allocation` writes it.

One name per slot, so a record is bounded by replicas (spec/pool.md 2): a slot that gets another pod replaces the name
in place, the released list keeps only names still recorded, slots beyond replicas leave both lists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from osb.api import names, record
from osb.api.batchsandbox import BoxSpec
from osb.api.record import UID_PREFIX, Record


@dataclass(frozen=True, slots=True)
class Next:
    """What the sandbox's metadata becomes. A value None deletes the annotation; `finalizers` None leaves them."""

    annotations: Mapping[str, str | None]
    finalizers: tuple[str, ...] | None = None

    def patch(self, version: str) -> dict[str, Any]:
        """The merge patch, with its version precondition."""
        meta: dict[str, Any] = {"resourceVersion": version, "annotations": dict(self.annotations)}
        if self.finalizers is not None:
            meta["finalizers"] = list(self.finalizers)
        return {"metadata": meta}


def granted(
    box: BoxSpec, pool: str, pool_uid: str, pods: Iterable[tuple[int, str, str]], *, endpoints: Iterable[str]
) -> Next:
    """Record `pods` (slot, name, UID) in their slots, with the endpoints and the pool's finalizer, in one patch.

    A slot below them that never had a pod (its reservation was lost, or a former pod is still on its way out) is open.
    """
    old = box.record or Record()
    pods = tuple(pods)
    filled = {slot for slot, _, _ in pods}
    count = max(len(old.pods), max(filled, default=-1) + 1)
    listed = [*old.pods, *[""] * (count - len(old.pods))]
    uids = [*old.uids, *[""] * (count - len(old.uids))]
    for slot, name, uid in pods:
        listed[slot], uids[slot] = name, uid[:UID_PREFIX]
    still_open = {*old.open, *range(len(old.pods), count)}
    if old.pool_uid and old.pool_uid != pool_uid:
        still_open |= set(range(len(old.pods)))  # the old pool's pods died with it
    after = replace(
        old, pods=tuple(listed), uids=tuple(uids), pool_ref=pool, pool_uid=pool_uid, generation=box.generation,
        seq=old.seq + 1, open=tuple(sorted(still_open - filled)),
        failed=tuple(slot for slot in old.failed if slot not in filled),
    )  # fmt: skip
    return Next(
        {
            names.ALLOC_STATUS: record.format(after),
            names.ENDPOINTS: record.format_endpoints(endpoints),
            **_pruned(box, after.pods),
        },
        finalizers=with_finalizer(box, names.FINALIZER_POOL),
    )


def with_finalizer(box: BoxSpec, finalizer: str) -> tuple[str, ...] | None:
    """The finalizers with one more at the end; None when it is there already."""
    return None if finalizer in box.finalizers else (*box.finalizers, finalizer)


def without_finalizer(box: BoxSpec, finalizer: str) -> tuple[str, ...] | None:
    """The finalizers without one, the others in their order; None when it is not there."""
    if finalizer not in box.finalizers:
        return None
    return tuple(one for one in box.finalizers if one != finalizer)


def acknowledged(box: BoxSpec, pods: Collection[str]) -> Next:
    """`pods` are recycled: name them released; cut slots beyond replicas; a finished detach clears the record.

    A terminating sandbox whose every recorded pod is released loses the pool's finalizer in the same patch. A slot that
    nobody asked to give back (it was beyond replicas when its pod left, and is not any more) waits for another pod.
    """
    old = box.record or Record()
    wanted = _wanted_again(box, old, pods)
    old = replace(old, open=tuple(sorted({*old.open, *wanted})))
    pods = [name for name in pods if name not in {old.pods[slot] for slot in wanted}]
    done = {*box.released, *pods}
    everything = all(name in done or slot in old.open or slot in old.failed for slot, name in enumerate(old.pods))
    if (box.detaching or not box.pool_ref) and everything:
        return detached(box)
    keep = len(old.pods)
    if box.deleting is None:
        while keep > box.replicas and (old.pods[keep - 1] in done or keep - 1 in old.open or keep - 1 in old.failed):
            keep -= 1
    annotations: dict[str, str | None] = {}
    if keep < len(old.pods) or wanted:
        after = replace(
            old, pods=old.pods[:keep], uids=old.uids[:keep], seq=old.seq + 1,
            open=tuple(s for s in old.open if s < keep), failed=tuple(s for s in old.failed if s < keep),
        )  # fmt: skip
        annotations[names.ALLOC_STATUS] = record.format(after)
        annotations |= _pruned(box, after.pods)
    released = [name for name in (*box.released, *pods) if name in old.pods[:keep]]
    annotations[names.ALLOC_RELEASED] = record.format_names(released)
    finalizers = None
    if box.deleting is not None and everything and names.FINALIZER_TASKS not in box.finalizers:
        finalizers = without_finalizer(box, names.FINALIZER_POOL)
    return Next(annotations, finalizers=finalizers)


def _wanted_again(box: BoxSpec, old: Record, pods: Collection[str]) -> set[int]:
    if box.deleting is not None or box.detaching or not box.pool_ref:
        return set()
    back = {name for name in pods if name not in box.release and name not in box.released}
    return {slot for slot, name in enumerate(old.pods[: box.replicas]) if name in back}


def detached(box: BoxSpec) -> Next:
    """The pool has nothing more of this sandbox: no record, no release lists, no finalizer of the pool."""
    gone = dict.fromkeys((names.ALLOC_STATUS, names.ALLOC_RELEASE, names.ALLOC_RELEASED))
    return Next(gone, finalizers=without_finalizer(box, names.FINALIZER_POOL))


def freed(box: BoxSpec) -> Next:
    """Only the pool's finalizer goes: nothing recorded is attributed to this terminating sandbox any more."""
    return Next({}, finalizers=without_finalizer(box, names.FINALIZER_POOL))


def _pruned(box: BoxSpec, kept: Collection[str]) -> dict[str, str | None]:
    """Release lists without names that left the record; nothing when they stay as they are."""
    changes: dict[str, str | None] = {}
    if any(name not in kept for name in box.released):
        changes[names.ALLOC_RELEASED] = record.format_names(n for n in box.released if n in kept)
    if any(name not in kept for name in box.release):
        force = tuple(n for n in box.force if n in kept)
        pods = tuple(n for n in box.release if n in kept)
        changes[names.ALLOC_RELEASE] = record.format_release(record.Release(pods, force))
    return changes
