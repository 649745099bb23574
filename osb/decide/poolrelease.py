"""Which held pods come back, and what becomes of pods that are on their way back (spec/pool.md 6, 11).

A pod comes back when its sandbox asks for that, goes, shrinks, or no longer claims it. Only pods that the ledger
attributes to a sandbox are given back on its behalf. A claim that ended without the handshake leaves its mark on
the pod first (label `suspect`), so that even without the ledger nobody gets it before it was recycled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from osb.api import claims, names
from osb.api.batchsandbox import BoxSpec
from osb.decide import claim as records
from osb.decide import recycle
from osb.decide.plan import (
    Action,
    EmitEvent,
    Lose,
    Move,
    PatchObject,
    PatchPod,
    Recycle,
    Settle,
    counted,
    event,
    names_text,
)
from osb.decide.poolsort import Sorted, move
from osb.facts import ledger
from osb.facts.ledger import LedgerEntry
from osb.facts.pod import PodFact
from osb.facts.poolview import PoolView


@dataclass(slots=True)
class Returns:
    """Actions in order, when to look again, and pods whose policy could not be carried out."""

    actions: list[Action] = field(default_factory=list)
    again: float | None = None
    failed: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def look_in(self, seconds: float | None) -> None:
        if seconds is not None:
            self.again = seconds if self.again is None else min(self.again, seconds)


@dataclass(frozen=True, slots=True)
class Cause:
    """`abrupt`: the claim ended without the handshake. `confirm`: believe it only after a live read."""

    why: str
    abrupt: bool = False
    confirm: bool = False


def returns(view: PoolView, found: Sorted, *, dirty_budget: int) -> Returns:
    """Releases, recycling steps, acknowledgements, in this order."""
    out = Returns()
    by_box = _by_box(view)
    _release_held(view, out)
    _end_conflicts(view, out)
    out.actions.extend(
        Settle(name, e.pod_uid, e.box, e.box_uid, e.slot) for name, e in view.entries.items() if e.state == ledger.RESV
    )
    for name, entry, pod in found.recycling:
        _recycle(view, out, name, entry=entry, pod=pod)
    _recycle_dirty(view, out, found, budget=dirty_budget)
    for box in view.boxes.values():
        mine = by_box.get(box.uid, {})
        _acknowledge(view, out, box, mine=mine)
        if not mine:
            _former(view, out, box)
        _vanished(view, out, box, mine=mine)
    return out


def _former(view: PoolView, out: Returns, box: BoxSpec) -> None:
    """A record of another UID of this name: that Pool's pods went with it (spec/pool.md 6.8)."""
    pool, uid = claims.effective_pool(box)
    if pool != view.pool.name or uid in ("", view.pool.uid) or not claims.in_line(box):
        return
    lost = tuple(sorted(claims.claims(box)))
    if lost:
        out.actions.append(Lose(box.uid, lost))
        out.reasons.append(f"sandbox {box.name} lost {counted(len(lost), 'pod')} with the former pool of this name")


def _vanished(view: PoolView, out: Returns, box: BoxSpec, *, mine: dict[str, LedgerEntry]) -> None:
    """Have the recorded pods marked as lost that neither the cluster nor the ledger has.

    They were lost while the ledger was lost, or the pass that noticed died before it could record it.
    """
    pool, uid = claims.effective_pool(box)
    if not view.mirror_fresh or pool != view.pool.name or uid not in ("", view.pool.uid):
        return
    if box.deleting is not None or box.record_error is not None or box.detaching:
        return
    lost = {
        slot: (name, prefix)
        for slot, (name, prefix) in claims.slots(box).items()
        if slot < box.replicas and name not in mine and not _exists(view, name, prefix)
    }
    if lost:
        out.actions.append(Lose(box.uid, tuple(lost), tuple(lost.values())))
        out.reasons.append(f"sandbox {box.name} lost {counted(len(lost), 'pod')} unnoticed")


def _exists(view: PoolView, name: str, prefix: str) -> bool:
    pod = view.pods.get(name)
    return pod is not None and pod.uid.startswith(prefix)


def _by_box(view: PoolView) -> dict[str, dict[str, LedgerEntry]]:
    found: dict[str, dict[str, LedgerEntry]] = {}
    for name, entry in view.entries.items():
        if entry.box_uid and entry.state in ledger.TAKEN:
            found.setdefault(entry.box_uid, {})[name] = entry
    return found


# -- held > rel ----------------------------------------------------------------------------------------------


def _release_held(view: PoolView, out: Returns) -> None:
    released: dict[str, list[str]] = {}
    moves: list[Move] = []
    ordered = sorted(view.entries.items(), key=lambda item: -item[1].slot)  # of slots beyond replicas: highest first
    for name, entry in ordered:
        if entry.state != ledger.HELD:
            continue
        cause = why_back(view.boxes.get(entry.box_uid), name, entry, view)
        if cause is None:
            continue
        pod = view.pods.get(name)
        if cause.abrupt and pod is not None and pod.live and not pod.suspect:
            out.actions.append(_mark(pod, entry, cause.why))
        moves.append(_release(view, name, entry, cause))
        released.setdefault(cause.why, []).append(name)
    out.actions.extend(moves)
    out.reasons.extend(f"{counted(len(pods), 'pod', 'comes', 'come')} back: {why}" for why, pods in released.items())


def _mark(pod: PodFact, entry: LedgerEntry, why: str) -> PatchPod:
    patch = {"metadata": {"labels": {names.LABEL_SUSPECT: entry.box_uid}}}
    return PatchPod(pod.name, patch, uid=pod.uid, version=pod.version, why=why)


def _release(view: PoolView, name: str, entry: LedgerEntry, cause: Cause) -> Move:
    box = view.boxes.get(entry.box_uid)
    forced = box is not None and name in box.force
    policy = recycle.policy_of(entry, view.pool.recycle, forced=forced)
    made = move("release", name, entry, why=cause.why, policy=policy)
    return replace(made, confirm_box=cause.confirm)


def why_back(box: BoxSpec | None, name: str, entry: LedgerEntry, view: PoolView) -> Cause | None:
    """Why this held pod leaves its sandbox, None while it stays."""
    if box is None:
        return Cause("its sandbox is gone", abrupt=True, confirm=True)
    if box.record_error is not None and box.deleting is None:
        return None  # quarantined: nothing moves until its record can be read
    if name in box.release:
        return Cause("given back by its sandbox")
    if box.deleting is not None:
        if names.FINALIZER_TASKS in box.finalizers:
            return None  # its tasks still run
        abrupt = names.FINALIZER_POOL not in box.finalizers
        return Cause("its sandbox is being deleted", abrupt=abrupt)
    if box.detaching:
        return Cause("its sandbox is paused")
    pool, pool_uid = claims.effective_pool(box)
    if pool != view.pool.name or (pool_uid and pool_uid != view.pool.uid):
        return Cause("its sandbox left the pool", abrupt=True, confirm=True)
    return _by_record(box, name, entry)


def _by_record(box: BoxSpec, name: str, entry: LedgerEntry) -> Cause | None:
    if box.record is None or name not in box.record.pods:
        return Cause("its sandbox's record does not name it", abrupt=True, confirm=True)
    slot = box.record.pods.index(name)
    prefix = box.record.uid_of(slot)
    if prefix and not entry.pod_uid.startswith(prefix):
        return Cause("its sandbox's record means another pod", abrupt=True, confirm=True)
    if name in box.released:
        return Cause("its sandbox's record calls it released", confirm=True)
    if slot >= box.replicas:
        return Cause("its sandbox has fewer replicas now", confirm=True)
    return None


def _end_conflicts(view: PoolView, out: Returns) -> None:
    """Let pods that two records claimed be recycled, when no record claims them any more.

    Not while some record cannot be read: it may be one that does.
    """
    conflicts = [(name, entry) for name, entry in view.entries.items() if entry.state == ledger.CONF]
    if not conflicts:
        return
    claimed = {pod for box in view.boxes.values() for pod, _ in claims.claims(box).values()}
    unreadable = any(box.record_error is not None for box in view.boxes.values())
    for name, entry in conflicts:
        if name not in claimed and not unreadable and name in view.pods:
            out.actions.append(move("conf", name, entry, why="no record claims it any more"))


# -- recycling -----------------------------------------------------------------------------------------------


def _recycle(view: PoolView, out: Returns, name: str, *, entry: LedgerEntry, pod: PodFact | None) -> None:
    box = view.boxes.get(entry.box_uid)
    forced = box is not None and name in box.force
    policy = recycle.policy_of(entry, view.pool.recycle, forced=forced)
    work = recycle.Recycling(
        entry=entry, pod=pod, policy=policy, config=view.pool.restart_config, now=view.now, epoch=view.epoch
    )
    step = recycle.next_step(work)
    out.look_in(step.wait)
    if step.failed:
        out.failed.append(name)
    if step.kind == "wait":
        return
    if step.kind == "free" and pod is not None and (pod.suspect or pod.restart_record):
        out.actions.append(_cleaned(pod))
    version = pod.version if pod is not None else ""
    out.actions.append(
        Recycle(
            name,
            entry.pod_uid,
            version,
            entry.state,
            policy,
            step.kind,
            box=entry.box,
            box_uid=entry.box_uid,
            slot=entry.slot,
            failed=step.failed,
            why=step.why,
        )
    )


def _cleaned(pod: PodFact) -> PatchPod:
    """The patch that takes the marks of this life off a recycled pod: they must never count in another one."""
    patch = {"metadata": {"labels": {names.LABEL_SUSPECT: None}, "annotations": {names.RESTART_RECORD: None}}}
    return PatchPod(pod.name, patch, uid=pod.uid, version=pod.version, why="its recycling is complete")


def _recycle_dirty(view: PoolView, out: Returns, found: Sorted, *, budget: int) -> None:
    """Pods of unknown history, paced: those under way count, then current revision and oldest first."""
    under_way = [item for item in found.dirty if item[1].deleting or item[1].restart_record]
    waiting = [item for item in found.dirty if not (item[1].deleting or item[1].restart_record)]
    waiting.sort(key=lambda i: (i[1].revision != view.revision, i[1].created, i[1].name))
    for entry, pod in (*under_way, *waiting[: max(0, budget - len(under_way))]):
        _recycle(view, out, pod.name, entry=entry, pod=pod)
    if found.dirty:
        out.reasons.append(
            f"recycled because of their unknown history, {budget} at a time: {counted(len(found.dirty), 'pod')}"
        )


# -- acknowledgements without a pod --------------------------------------------------------------------------


def _acknowledge(view: PoolView, out: Returns, box: BoxSpec, *, mine: dict[str, LedgerEntry]) -> None:
    """Names that the sandbox waits for although the ledger attributes them to it no more: their pods are gone.

    A sandbox of which nothing at all is held is let go by whoever carries the plan out, after the moves above.
    """
    if box.record_error is not None or not _concerns(box, view):
        return
    owed = [name for name in _owed(box) if name not in mine]
    if owed and mine:
        body = records.acknowledged(box, owed).patch(box.version)
        why = "these pods are gone already"
        out.actions.append(PatchObject("batchsandbox", box.name, body, version=box.version, why=why))
    recorded = box.record.pods if box.record is not None else ()
    foreign = [name for name in box.release if name not in recorded and name not in mine]
    if foreign and box.deleting is None:
        out.actions.append(_forged(box, foreign))


def _concerns(box: BoxSpec, view: PoolView) -> bool:
    """Whether this pool has to answer the sandbox: it is served from here, or its leftover record names us."""
    pool, uid = claims.effective_pool(box)
    if not pool and box.record is not None:
        pool, uid = box.record.pool_ref, box.record.pool_uid
    return pool == view.pool.name and uid in ("", view.pool.uid)


def _owed(box: BoxSpec) -> Iterator[str]:
    """Recorded names whose acknowledgement the sandbox waits for."""
    if box.record is None:
        return
    everything = box.detaching or not box.pool_ref
    for slot, name in enumerate(box.record.pods):
        asked = name in box.release or (box.deleting is None and slot >= box.replicas)
        if name and name not in box.released and (everything or asked):
            yield name


def _forged(box: BoxSpec, foreign: list[str]) -> EmitEvent:
    text = f"Ignored alloc-release of pods that this sandbox does not hold: {names_text(foreign)}"
    return event("batchsandbox", "Warning", names.EVENT_FAILED_RELEASE, text, name=box.name)
