"""Give recycled pods back: acknowledge on the sandbox, then free in the ledger, in that order (spec/protocols.md 5).

In: pods whose recycling is complete. Out: ledger moves that may be made now. A sandbox that is gone needs no
acknowledgement; a terminating one loses the pool's finalizer in the same patch once everything it had is released.
Losses are recorded here too: the slot is open for a substitute, or given up.

Every patch: live read, prove the entry, write with the version just read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from osb.api import batchsandbox, claims, names, record
from osb.api.batchsandbox import BoxSpec
from osb.apply.hand import Hand
from osb.decide import claim as records
from osb.decide.lost import mark_lost
from osb.errors import NotFound
from osb.facts.ledger import LedgerEntry
from osb.store.ledger_types import Move, Proof

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recycled:
    """One pod that is done: `gone`, or clean and still there."""

    pod: str
    entry: LedgerEntry
    gone: bool


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What an acknowledgement came to.

    `moves`, `stored`: for the ledger and for the mirror; both empty when the sandbox must be looked at again.
    `base`: the version that was read and patched. It may be newer than the one that the pass decided on.
    """

    box: str
    moves: tuple[Move, ...] = ()
    stored: Obj | None = None
    pods: tuple[str, ...] = ()
    base: str = ""


def acknowledge(hand: Hand, proof: Proof, box_uid: str, done: Sequence[Recycled]) -> Acknowledged:
    """Acknowledge all pods of one sandbox in one patch. Raises ApiError when it could not be written."""
    box = done[0].entry.box
    name = box.rpartition("/")[2]
    namespace = hand.key.namespace
    try:
        raw = hand.kube.get("batchsandbox", namespace, name)
    except NotFound:
        raw = None
    if raw is None or raw["metadata"]["uid"] != box_uid:
        return Acknowledged(box, moves_of(done), pods=tuple(one.pod for one in done))
    spec = batchsandbox.parse(raw)
    held = {pod for pod, _ in claims.claims(spec).values()}
    owed = [one.pod for one in done if one.pod in held]
    if not owed and spec.deleting is None:
        return Acknowledged(box, moves_of(done), pods=tuple(one.pod for one in done))
    ledger = hand.store.ledger(namespace, hand.key.name)
    entries = [(one.pod, one.entry.pod_uid, one.entry.state, box_uid) for one in done]
    if not ledger.prove_all(proof, entries):
        return Acknowledged(box)
    hand.check()
    hand.step("acknowledge")
    body = records.acknowledged(spec, owed).patch(str(raw["metadata"]["resourceVersion"]))
    try:
        stored = hand.kube.patch("batchsandbox", namespace, name, body)
    except NotFound:
        stored = None
    hand.step("acknowledged")
    return Acknowledged(box, moves_of(done), stored, tuple(one.pod for one in done), raw["metadata"]["resourceVersion"])


def moves_of(done: Sequence[Recycled]) -> tuple[Move, ...]:
    """rel or dirty to free, or to nothing."""
    return tuple(
        Move(
            what="gone" if one.gone else "recycled", pod=one.pod, pod_uid=one.entry.pod_uid,
            from_state=one.entry.state, box_uid=one.entry.box_uid,
        )
        for one in done
    )  # fmt: skip


def finish(hand: Hand, raw: Obj, pods: Collection[str]) -> Obj | None:
    """Acknowledge `pods`, of which the (ready) ledger has nothing any more, without replaying anything.

    A terminating sandbox loses the pool's finalizer when nothing is left; a finished detach loses the record. None when
    there is nothing to write.
    """
    spec = batchsandbox.parse(raw)
    leaves = spec.detaching or (spec.record is not None and not spec.pool_ref)
    after = records.acknowledged(spec, pods) if pods or leaves else None
    if spec.deleting is not None and names.FINALIZER_TASKS not in spec.finalizers:
        if names.FINALIZER_POOL not in spec.finalizers:
            return None
        after = after if after is not None and after.finalizers is not None else records.freed(spec)
    if after is None:
        return None
    meta = raw["metadata"]
    hand.check()
    hand.step("finish")
    try:
        return hand.kube.patch("batchsandbox", meta["namespace"], meta["name"], after.patch(meta["resourceVersion"]))
    except NotFound:
        return None


def unanswered(spec: BoxSpec) -> bool:
    """Whether a sandbox waits for anything from its pool at all: cheap, asked of every sandbox in a full pass."""
    return claims.needs_release(spec) or (spec.record is not None and not spec.pool_ref)


def owed(spec: BoxSpec, mine: Collection[str], *, pool: str) -> tuple[str, ...] | None:
    """Recorded names to acknowledge although the ledger has nothing of them (they are gone).

    `mine` are the pods that the ledger still attributes to the sandbox. An empty tuple: only a finalizer or a
      record is left to take off. None: nothing is owed.
    """
    if spec.record_error is not None and spec.deleting is None:
        return None
    recorded = spec.record.pods if spec.record is not None else ()
    if pool not in (claims.effective_pool(spec)[0], spec.record.pool_ref if spec.record is not None else ""):
        return None
    leaves = spec.detaching or (spec.record is not None and not spec.pool_ref)
    names_ = tuple(
        name
        for slot, name in enumerate(recorded)
        if name and name not in spec.released and name not in mine
        and (leaves or name in spec.release or (spec.deleting is None and slot >= spec.replicas))
    )  # fmt: skip
    ends = spec.deleting is not None and not mine and names.FINALIZER_TASKS not in spec.finalizers
    if names_ or (leaves and not mine) or (ends and names.FINALIZER_POOL in spec.finalizers):
        return names_
    return None


def record_loss(hand: Hand, raw: Obj, slots: Collection[int]) -> Obj | None:
    """Mark lost slots in the record and rewrite the endpoints, in one patch. None when they are marked already."""
    spec = batchsandbox.parse(raw)
    given = {slot for slot in slots if claims.delivered(spec, slot)}
    after = mark_lost(spec.record, slots, policy=spec.lost_policy, delivered=given)
    if after is spec.record:
        return None
    addresses = list(spec.endpoints or ())
    for slot in range(len(addresses)):
        if slot in slots:
            addresses[slot] = ""
    body = records.Next(
        {names.ALLOC_STATUS: record.format(after), names.ENDPOINTS: record.format_endpoints(addresses)}
    ).patch(str(raw["metadata"]["resourceVersion"]))
    hand.check()
    hand.step("lost")
    return hand.kube.patch("batchsandbox", spec.namespace, spec.name, body)
