"""Refill a pool's ledger from the cluster (spec/protocols.md 5, Rebuild).

In: a pass that holds the pool's key and found its ledger missing, foreign, or older than Redis. Out: a ledger
that is ready, or nothing. Everything is read live: the Pool, its pods, all sandboxes of the namespace. Records
minus acknowledged releases are claims; two claims on one pod are reserved for both, reported, and never handed
out. Every waiting sandbox is touched between the list and the commit, which kills claims of workers from
before the loss.

What an unclaimed pod becomes (spec/pool.md 6.7):

* free, when it was never Running;
* dirty by policy, with an open restart attempt, a suspect label, or when it is older than a time in which nobody
  watched; so too when some sandbox still shows its address, or has lost its record and shows none, for then the
  record was edited while the ledger was lost;
* else dirty and adopted, which is one small write that also disarms deletes still in flight.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osb.api import batchsandbox, claims, names
from osb.api.batchsandbox import BoxSpec
from osb.api.pool import PoolSpec
from osb.api.reading import part
from osb.apply.hand import in_parallel
from osb.apply.poolplan import ADOPT
from osb.errors import ApiError, NotFound
from osb.facts.ledger import CONF, DIRTY, DOOM, FREE, HELD, REL, LedgerEntry
from osb.facts.pod import PodFact
from osb.obs import metrics
from osb.obs.log import get_logger
from osb.reconcile import gather
from osb.reconcile.world import Pass
from osb.store.ledger_types import Former, Move, Proof

log = get_logger("reconcile")

RUNNING = ("Running",)
UNWATCHED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Claim:
    box: BoxSpec
    slot: int
    seq: int
    readable: bool


def rebuild(p: Pass, pool: PoolSpec) -> bool:
    """True when the ledger is ready afterwards. `pool` must be a live read: only its UID may be rebuilt for."""
    ledger = p.store.ledger(p.key.namespace, p.key.name)
    proof = Proof(member=p.key.member, token=p.token, pool_uid=pool.uid)
    epoch = uuid.uuid4().hex
    p.check()
    former = ledger.begin_rebuild(proof, epoch)
    p.step("rebuild-begun")
    pods = {pod.name: pod for pod in gather.live_pods(p, "poolpod", pool.uid)}
    boxes = _touched(p, [box.spec for box in gather.live_boxes(p, pool.name, all_claims=True)], pool, epoch)
    found = claims_on(pods, boxes, pool)
    trusted = _trusted(p, former, pool)
    shown = {address for box in boxes for address in box.endpoints or () if address}
    known = not any(_stripped(box, pool.name) for box in boxes)
    entries = {
        name: entry_of(
            pod, found.get(name, ()), former, trusted=trusted,
            watched=known and pod.ip not in shown and _watched(p, pod),
        )
        for name, pod in pods.items()
    }  # fmt: skip
    p.step("rebuild-listed")
    p.check()
    seq = max((entry.seq for entry in entries.values()), default=0)
    ledger.commit(proof, epoch, entries, seq=max(seq, former.seq))
    metrics.inc("opensandbox_ledger_rebuilds_total", result="ok")
    states: dict[str, int] = {}
    for entry in entries.values():
        states[entry.state] = states.get(entry.state, 0) + 1
    tell = log.warning if pods else log.info  # a new pool has lost nothing
    tell("rebuilt a ledger from the cluster", pool=p.key.member, trusted=trusted, pods=len(pods), **states)
    return True


def conflicts_over(p: Pass, pool_uid: str) -> list[BoxSpec]:
    """Sandboxes that are now the only claimants of a pod that two records claimed: a rebuild gives it to them."""
    ledger = p.store.ledger(p.key.namespace, p.key.name)
    entries = ledger.holders(list(ledger.todo()))
    disputed = {name: entry.pod_uid for name, entry in entries.items() if entry.state == CONF}
    if not disputed:
        return []
    claimants: dict[str, list[BoxSpec]] = {}
    for box in (one.spec for one in gather.boxes_of_pool(p, p.key.name)[0]):
        if box.record_error is not None:
            return []  # it may claim any of them
        if box.record is None or (box.record.pool_uid and box.record.pool_uid != pool_uid):
            continue
        for name, uid in claims.claims(box).values():
            if name in disputed and (not uid or disputed[name].startswith(uid)):
                claimants.setdefault(name, []).append(box)
    return [boxes[0] for boxes in claimants.values() if len(boxes) == 1]


def _touched(p: Pass, boxes: Sequence[BoxSpec], pool: PoolSpec, epoch: str) -> list[BoxSpec]:
    """Every sandbox that wants pods gets one small patch; its answer is its record from here on."""
    body = {"metadata": {"annotations": {names.ALLOC_EPOCH: epoch}}}

    def touch(box: BoxSpec) -> BoxSpec | None:
        for attempt in range(5):
            try:
                return batchsandbox.parse(p.kube.patch("batchsandbox", box.namespace, box.name, body))
            except NotFound:
                return None
            except ApiError as error:
                if error.definite or attempt == 4:
                    raise
        return None

    def waits(box: BoxSpec) -> bool:
        return claims.effective_pool(box)[0] == pool.name and bool(claims.wants(box, pool.uid))

    waiting = [box for box in boxes if waits(box)]
    result = [box for box in boxes if not waits(box)]
    for box, answer in zip(waiting, in_parallel(p, touch, waiting), strict=True):
        if isinstance(answer, ApiError):
            raise answer
        if answer is not None and answer.uid == box.uid:
            result.append(answer)
    return result


def claims_on(pods: Mapping[str, PodFact], boxes: Sequence[BoxSpec], pool: PoolSpec) -> dict[str, list[_Claim]]:
    """Pod name -> who claims it.

    An unreadable record claims every pod of this pool that its text names, or whose address its sandbox shows.
    """
    found: dict[str, list[_Claim]] = {}
    for box in boxes:
        if box.record_error is not None:
            text = " ".join(str(box.annotations.get(key, "")) for key in (names.ALLOC_STATUS, names.ALLOC_RELEASE))
            for name, fact in pods.items():
                if name in text or (fact.ip and fact.ip in (box.endpoints or ())):
                    found.setdefault(name, []).append(_Claim(box, 0, 0, False))
            continue
        record = box.record
        if record is None or (record.pool_uid and record.pool_uid != pool.uid):
            continue
        for slot, (name, uid) in claims.claims(box).items():
            pod = pods.get(name)
            if pod is not None and (not uid or pod.uid.startswith(uid)):
                found.setdefault(name, []).append(_Claim(box, slot, record.seq, True))
    return found


def _stripped(box: BoxSpec, pool: str) -> bool:
    """The sandbox has been given pods, as its finalizer or its status says, and nothing on it tells which.

    Its record is gone or cannot be read, and it shows no address. (A manifest that somebody sends again takes record
    and finalizer with it, but not the status.)
    """
    if (box.record is not None and box.record_error is None) or any(box.endpoints or ()):
        return False
    counted = claims.effective_pool(box)[0] == pool and bool(box.status.get("allocated"))
    return counted or names.FINALIZER_POOL in box.finalizers


def entry_of(pod: PodFact, claimed: Sequence[_Claim], former: Former, *, trusted: bool, watched: bool) -> LedgerEntry:
    """The state of one pod."""
    old = former.entries.get(pod.name)
    same = old is not None and old.pod_uid == pod.uid
    if pod.terminal and not claimed:
        return LedgerEntry(state=DOOM, pod_uid=pod.uid)
    if len(claimed) > 1:
        return LedgerEntry(state=CONF, pod_uid=pod.uid)
    if claimed:
        one = claimed[0]
        state, policy = HELD, ""
        if same and old is not None and old.state == REL and old.box_uid == one.box.uid:
            state, policy = REL, old.policy
        return LedgerEntry(
            state=state, pod_uid=pod.uid, box_uid=one.box.uid, box=one.box.name, slot=one.slot,
            seq=old.seq if same and old is not None else one.seq, policy=policy,
        )  # fmt: skip
    if same and old is not None and old.state == DOOM:
        return LedgerEntry(state=DOOM, pod_uid=pod.uid)
    if pod.deleting:
        return LedgerEntry(state=DOOM, pod_uid=pod.uid)
    if not pod.suspect and not pod.restart_record:
        never_ran = pod.phase not in RUNNING and not pod.container_ids
        if never_ran or (trusted and same and old is not None and old.state == FREE):
            return LedgerEntry(state=FREE, pod_uid=pod.uid)
        if watched:
            return LedgerEntry(state=DIRTY, pod_uid=pod.uid, policy=ADOPT)
    return LedgerEntry(state=DIRTY, pod_uid=pod.uid, seq=old.seq if same and old is not None else 0)


def _watched(p: Pass, pod: PodFact) -> bool:
    """False for a pod that is older than a time in which nobody watched the cluster: anything may have happened."""
    if p.settings.trust_unclaimed:
        return True
    gap = p.store.duty.unwatched()
    if gap is None:
        return True
    ended_ms = int((p.now().timestamp() - gap.age) * 1000)
    return float(gap.text or 0) <= UNWATCHED_SECONDS or pod.created > ended_ms


def adopt(p: Pass, proof: Proof, limit: int = 400) -> int:
    """Touch pods that a rebuild found unclaimed under watch, then free them.

    The touch disarms deletes that were decided before and are still in flight. Returns how many pods are left for
    the next pass.
    """
    ledger = p.store.ledger(p.key.namespace, p.key.name)
    state = ledger.state()
    if not state.counts.get(DIRTY):
        return 0
    todo = [(n, e) for n, e in ledger.holders(list(state.todo)).items() if e.state == DIRTY and e.policy == ADOPT]
    pods = gather.pods_named(p, "poolpod", [name for name, _ in todo[:limit]])

    def touch(item: tuple[str, LedgerEntry]) -> tuple[Move, dict[str, Any] | None]:
        name, entry = item
        pod = pods.get(name)
        if pod is None or pod.uid != entry.pod_uid:
            return Move(what="gone", pod=name, pod_uid=entry.pod_uid, from_state=DIRTY), None
        meta = {"annotations": {names.ADOPTED: state.meta.epoch}, "resourceVersion": pod.version}
        answer = p.kube.patch("pod", p.key.namespace, name, {"metadata": meta})
        return Move(what="recycled", pod=name, pod_uid=entry.pod_uid, from_state=DIRTY), answer

    results = [r for r in in_parallel(p, touch, todo[:limit]) if not isinstance(r, ApiError)]
    p.step("adopted")
    ledger.move(proof, [move for move, _ in results])
    stored = [raw for _, raw in results if raw is not None]
    if stored:
        p.forward.put("poolpod", stored, own=p.key, versioned=True)
    return len(todo) - len(results)


def _trusted(p: Pass, former: Former, pool: PoolSpec) -> bool:
    """A Redis that restarted with its data: only the boot differs, and the Pool's own mark is not ahead of it."""
    if not p.settings.ledger_trust_restart or not former.epoch or former.uid != pool.uid:
        return False
    mark = part(pool.status, "ledger")
    seq = mark.get("seq") or 0
    return not mark or (mark.get("epoch") == former.epoch and isinstance(seq, int) and seq <= former.seq)
