"""Ledger moves of a pool's plan, confirmed by live reads where a sandbox has the pod, and the losses they reveal.

Next: the record of a sandbox that lost a pod (`osb.apply.release`), then the other actions of the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from osb.api import batchsandbox, claims, names
from osb.api.key import Key
from osb.apply import pods as pod_writes
from osb.apply import release
from osb.apply.hand import in_parallel
from osb.apply.poolwork import Obj, PoolWork
from osb.decide import plan as plans
from osb.errors import ApiError, NotFound
from osb.facts.adds import Add
from osb.facts.ledger import HELD, LedgerEntry
from osb.obs import metrics
from osb.store.ledger_types import Move


def _ledger_move(m: plans.Move) -> Move:
    return Move(what=m.what, pod=m.name, pod_uid=m.uid, from_state=m.from_state, box_uid=m.box_uid, policy=m.policy,
                to="dirty" if m.what == "cancel" else "")  # fmt: skip


def moves(work: PoolWork, group: list[plans.Move]) -> None:
    sure = [m for m in group if not (m.live or m.confirm_box)]
    unsure = [m for m in group if m.live or m.confirm_box]
    for m, holds in zip(unsure, in_parallel(work.hand, partial(_confirmed, work), unsure), strict=True):
        if isinstance(holds, ApiError):
            work.failed(holds)
        elif holds:
            sure.append(m)
    before = {m.name: work.entries.get(m.name) for m in sure}
    results = work.move([_ledger_move(m) for m in sure])
    gone = [m.name for m, ok in zip(sure, results, strict=True) if ok]
    _journal(work, [m for m in sure if m.what == "release" and m.name in gone], before)
    _record_losses(work, [entry for name in gone if (entry := before[name]) is not None and entry.state == HELD
                         and name not in work.entries])  # fmt: skip
    if gone:
        work.done.retry(0.05)  # what these moves make possible is decided on the ledger as it is now


def _journal(work: PoolWork, released: Sequence[plans.Move], before: Mapping[str, LedgerEntry | None]) -> None:
    """One entry for each sandbox whose pods are taken back."""
    hand = work.hand
    pods: dict[tuple[str, str], list[str]] = {}
    for m in released:
        entry = before[m.name]
        if entry is not None:
            pods.setdefault((f"{hand.key.namespace}/{entry.box.rpartition('/')[2]}", m.why), []).append(m.name)
    entries = [
        {"what": "takes back", "pool": hand.key.member, "box": box, "pods": taken, "why": why, "pass": hand.token[:8]}
        for (box, why), taken in pods.items()
    ]
    if entries:
        hand.store.journal.append(*entries)


def settles(work: PoolWork, group: list[plans.Settle]) -> None:
    """Reservations are settled at the start of a pass; one that is open here is the next pass's business."""
    work.done.retry(0.2)


def _confirmed(work: PoolWork, move: plans.Move) -> bool:
    """Does the reason still hold by a live read? Absence in a copy proves nothing for what a sandbox has."""
    if move.confirm_box:
        return _box_let_go(work, move)
    pod = pod_writes.live_pod(work.hand, work.hand.key.namespace, move.name, uid=move.uid)
    if pod is None:
        return True
    ended = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    return ended or bool(pod["metadata"].get("deletionTimestamp"))


def _box_let_go(work: PoolWork, move: plans.Move) -> bool:
    """True when the live sandbox is gone, or its record does not claim this pod below its replicas any more."""
    entry = work.entries.get(move.name)
    try:
        name = entry.box.rpartition("/")[2] if entry is not None else ""
        raw = work.hand.kube.get("batchsandbox", work.hand.key.namespace, name)
    except NotFound:
        return True
    spec = batchsandbox.parse(raw)
    if spec.uid != move.box_uid or claims.effective_pool(spec)[0] != work.view.pool.name:
        return True
    held = claims.claims(spec)
    return not any(
        name == move.name and slot < spec.replicas and (not uid or move.uid.startswith(uid))
        for slot, (name, uid) in held.items()
    )


def loses(work: PoolWork, group: list[plans.Lose]) -> None:
    """Believed only if the live Pool is the one that this pass is about, and the named pods are really gone."""
    live = work.hand.kube.get("pool", work.hand.key.namespace, work.hand.key.name)
    if live["metadata"]["uid"] != work.view.pool.uid:
        work.done.retry(0.1)
        return
    believed = [lost for lost in group if all(_pod_is_gone(work, *pod) for pod in lost.pods)]
    if len(believed) < len(group):
        work.done.retry()
    ledger = work.hand.store.ledger(work.hand.key.namespace, work.hand.key.name)
    ledger.prove(work.proof)
    _record_losses(work, [
        LedgerEntry(state=HELD, pod_uid="", box_uid=lost.box_uid, slot=slot)
        for lost in believed for slot in lost.slots
    ])  # fmt: skip


def _pod_is_gone(work: PoolWork, name: str, prefix: str) -> bool:
    pod = pod_writes.live_pod(work.hand, work.hand.key.namespace, name)
    return pod is None or not str(pod["metadata"]["uid"]).startswith(prefix)


def _record_losses(work: PoolWork, lost: Sequence[LedgerEntry]) -> None:
    by_box: dict[str, list[int]] = {}
    for entry in lost:
        raw = work.raws.get(entry.box_uid)
        if raw is not None and not raw["metadata"].get("deletionTimestamp"):
            by_box.setdefault(entry.box_uid, []).append(entry.slot)

    def one(item: tuple[str, list[int]]) -> Obj | None:
        return release.record_loss(work.hand, work.raws[item[0]], item[1])

    for (uid, slots), stored in zip(by_box.items(), in_parallel(work.hand, one, by_box.items()), strict=True):
        if isinstance(stored, ApiError):
            work.failed(stored)
            continue
        if stored is not None:
            work.stored(uid, stored)
            _say_lost(work, stored, slots)


def _say_lost(work: PoolWork, raw: Obj, slots: Sequence[int]) -> None:
    policy = (raw.get("spec") or {}).get("lostPodPolicy") or names.LOST_REPLACE
    metrics.inc("opensandbox_lost_pods_total", len(slots), policy=policy)
    text = f"Lost the pod of slot {', '.join(map(str, slots))}: its state is gone"
    work.hand.events.emit(raw, "Warning", names.POD_LOST, text, component=names.COMPONENT_POOL)
    work.hand.store.queue.add([_box_key(work, raw, "a pod is lost")])
    work.done.retry(0.05)


def _box_key(work: PoolWork, raw: Obj, reason: str) -> Add:
    meta = raw["metadata"]
    return Add(key=Key("batchsandbox", meta["namespace"], meta["name"]), reason=reason)
