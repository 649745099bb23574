"""Record who got what, and settle what is not known: the API half of the ledger's protocol (spec/protocols.md 5).

In: reservations that the ledger has just made (or left over). Out: for each the ledger move that follows from the
answer, and the objects as stored, for the mirror. One annotation patch and one status patch per sandbox, whatever its
size. Every decision that an answer allows is in `_judged`: a reading alone never frees a pod.

Next: `osb.store.ledger.move` carries the moves out, `osb.store.forward` the objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from osb.api import batchsandbox, claims
from osb.api.batchsandbox import BoxSpec
from osb.apply.hand import Hand
from osb.apply.status import write_status
from osb.decide import claim as records
from osb.decide.endpoints import endpoints
from osb.decide.lost import replaced_losses
from osb.decide.pause import acknowledged
from osb.decide.status import box_status
from osb.errors import ApiError, NotFound, Unavailable
from osb.facts.boxview import BatchView
from osb.facts.pod import PodFact
from osb.obs import trace
from osb.store.ledger_types import HELD, RESV, Move

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sandbox and the pods reserved for it.

    `box`: the content that was decided on.
    `raw`: the same object as read.
    `pods`: the reserved pods by slot.
    `held`: its other living pods by slot.
    `first`: nobody has asked for these pods before (protocols.md, rule 6).
    """

    pool: str
    pool_uid: str
    box: BoxSpec
    raw: Obj
    pods: Mapping[int, PodFact]
    held: Mapping[int, PodFact] = field(default_factory=dict)
    first: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of a claim.

    `moves`: for the ledger.
    `stored`: the object, for the mirror.
    `delivered`: the record names the pods.
    `again`: seconds until another pass must look, None when nothing is open.
    `cause`: what the server said.
    `told`: the status was written too; else the sandbox's own pass has to.
    """

    claim: Claim
    moves: tuple[Move, ...] = ()
    stored: Obj | None = None
    delivered: bool = False
    again: float | None = None
    cause: str = ""
    writes: int = 0
    told: bool = False
    read: bool = False  # `stored` was read, not answered to a write: somebody else's change may be in it


def deliver(hand: Hand, claim: Claim) -> Settled:
    """Send the claim patch, then the status. Never raises for what the server answers."""
    return show(hand, take(hand, claim))


def take(hand: Hand, claim: Claim) -> Settled:
    """Send the claim patch: from its answer on the client has its endpoints. Never raises for what the server says."""
    meta = claim.raw["metadata"]
    view = view_of(hand, claim)
    found = endpoints(view)
    addresses = found if found is not None else list(claim.box.endpoints or ())
    pods = [(slot, pod.name, pod.uid) for slot, pod in sorted(claim.pods.items())]
    body = records.granted(claim.box, claim.pool, claim.pool_uid, pods, endpoints=addresses)
    hand.check()
    hand.step("claim")
    try:
        answer = hand.kube.patch(
            "batchsandbox", meta["namespace"], meta["name"], body.patch(str(meta["resourceVersion"]))
        )
    except Unavailable as error:
        return Settled(claim=claim, again=0.2, cause=str(error))
    except ApiError as error:
        return _judged(hand, claim, error)
    hand.step("claimed")
    if trace.on:
        trace.mark("claimed", claim.box.member, hand.token[:8])
    return Settled(claim=claim, moves=_moves(claim, "settle", HELD), stored=answer, delivered=True, writes=1)


def view_of(hand: Hand, claim: Claim) -> BatchView:
    """The sandbox as it looks with its new pods."""
    return BatchView(now=hand.now(), spec=claim.box, slots={**claim.held, **claim.pods})


def show(hand: Hand, settled: Settled) -> Settled:
    """Write the status after a claim that this pass has just written, because it knows the pods.

    A status that the server refuses is repaired by the sandbox's own pass.
    """
    claim, answer = settled.claim, settled.stored
    if not settled.delivered or not settled.writes or answer is None:
        return settled
    box = batchsandbox.parse(answer)
    view = BatchView(now=hand.now(), spec=box, slots={**claim.held, **claim.pods})
    change = replace(acknowledged(view), conditions=replaced_losses(view, claim.box.record))
    stored, writes, cause, told = answer, settled.writes, settled.cause, False
    try:
        stored, wrote = write_status(hand, "batchsandbox", answer, box_status(view, change))
        writes, told = writes + int(wrote), True
        if trace.on:
            trace.mark("status", claim.box.member, hand.token[:8])
    except ApiError as error:
        cause = f"status: {error}"
    return replace(settled, stored=stored, cause=cause, writes=writes, told=told)


def _judged(hand: Hand, claim: Claim, error: ApiError) -> Settled:
    """A definite refusal: read live, then decide what the reservation becomes."""
    box = claim.box
    try:
        live = hand.kube.get("batchsandbox", box.namespace, box.name)
    except NotFound:
        live = None
    except ApiError as unread:
        return Settled(claim=claim, again=0.2, cause=f"{error}; and then {unread}")
    if live is not None and live["metadata"]["uid"] == box.uid and names_them(live, claim):
        return Settled(claim=claim, moves=_moves(claim, "settle", HELD), stored=live, read=True, delivered=True,
                       cause=str(error))  # fmt: skip
    to = "free" if claim.first else "dirty"
    same = live is not None and live["metadata"]["uid"] == box.uid
    return Settled(
        claim=claim, moves=_moves(claim, "cancel", to), stored=live if same else None, read=True,
        again=(error.retry_after or 0.05) if same else None, cause=str(error), writes=1,
    )  # fmt: skip


def names_them(live: Obj, claim: Claim) -> bool:
    """True when the live record has every pod of the claim in its slot, by name and UID, and not released."""
    held = claims.claims(batchsandbox.parse(live))
    return all(
        slot in held and held[slot][0] == pod.name and (not held[slot][1] or pod.uid.startswith(held[slot][1]))
        for slot, pod in claim.pods.items()
    )


def _moves(claim: Claim, what: str, to: str) -> tuple[Move, ...]:
    return tuple(
        Move(what=what, pod=pod.name, pod_uid=pod.uid, from_state=RESV, box_uid=claim.box.uid,
             to=to if what == "cancel" else "")
        for pod in claim.pods.values()
    )  # fmt: skip


def settle(hand: Hand, claim: Claim, prove: Any) -> Settled:
    """Settle reservations of earlier passes: each is in the record, is rolled forward, or is wanted no more.

    They may be of different passes, so each slot is judged by itself. `claim.raw` is a live read. `prove()` is
    called after that read and before the patch that uses its version: True when the ledger still says what
    this pass believes.
    """
    landed = {slot: pod for slot, pod in claim.pods.items() if names_them(claim.raw, replace(claim, pods={slot: pod}))}
    wanted = set(claims.wants(claim.box, claim.pool_uid))
    forward = {slot: pod for slot, pod in claim.pods.items() if slot not in landed and slot in wanted}
    given_up = {slot: pod for slot, pod in claim.pods.items() if slot not in landed and slot not in forward}
    sure = _moves(replace(claim, pods=landed), "settle", HELD) + _moves(
        replace(claim, pods=given_up), "cancel", "dirty"
    )
    if not forward:
        shown = replace(claim, pods=landed)
        return Settled(claim=shown, moves=sure, stored=claim.raw, read=True, delivered=bool(landed))
    if not prove():
        return Settled(claim=claim, again=0.0)
    sent = deliver(hand, replace(claim, pods=forward, held={**claim.held, **landed}))
    return replace(sent, moves=sure + sent.moves)
