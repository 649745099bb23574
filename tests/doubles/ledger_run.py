"""One run over one pool's ledger: a token, entries, pods that are ready, and what must always be in step."""

from __future__ import annotations

import uuid
from typing import Any

from osb.api.key import Key
from osb.facts.adds import Add
from osb.facts.ledger import LedgerEntry
from osb.store import keys
from osb.store.client import Store
from osb.store.ledger import Ledger
from osb.store.ledger_types import Grant, Move, Proof
from osb.store.mirror import Put

POOL = Key("pool", "ns", "warm")
UID = "pool-uid"


def take(store: Store, key: Key = POOL, *, uid: str = UID) -> Proof:
    """The token of a new run, as a worker gets it; an earlier run of the key is fenced off."""
    store.queue.forget(key)
    store.queue.add([Add(key=key)])
    token = uuid.uuid4().hex
    assert store.queue.begin(key, token).state == "run"
    return Proof(key.member, token, uid)


def free(uid: str) -> LedgerEntry:
    return LedgerEntry(state="free", pod_uid=uid)


def rebuilt(ledger: Ledger, proof: Proof, entries: dict[str, LedgerEntry] | int, *, epoch: str = "e1") -> None:
    """A ready ledger with these entries; a number means that many free pods p0, p1, … of UIDs u0, u1, …"""
    if isinstance(entries, int):
        entries = {f"p{n}": free(f"u{n}") for n in range(entries)}
    ledger.begin_rebuild(proof, epoch)
    ledger.commit(proof, epoch, entries)


def ready(store: Store, *pods: str) -> None:
    """These pods are Ready in the mirror; pod pN has UID uN and rank N."""
    puts = [
        Put(name=f"ns/{pod}", version="1", uid=f"u{pod[1:]}", doc=b"", pool="ns/warm", rank=float(pod[1:]))
        for pod in pods
    ]
    store.mirror.put("poolpod", puts)


def grant(pod: str = "p0", *, box: str = "s1", slot: int = 0, uid: str = "") -> Grant:
    return Grant(pod, uid or f"u{pod[1:]}", f"{box}-uid", box, slot)


def moved(what: str, pod: str, from_state: str, *, box: str = "", **more: Any) -> Move:
    more.setdefault("pod_uid", f"u{pod[1:]}")
    return Move(what=what, pod=pod, from_state=from_state, box_uid=f"{box}-uid" if box else "", **more)


def state_of(ledger: Ledger, pod: str) -> str:
    entry = ledger.holders([pod]).get(pod)
    return entry.state if entry else "-"


def derived(ledger: Ledger, store: Store) -> None:
    """Everything that is derived from the entries is in step with them."""
    seen = ledger.state(entries=True)
    counts = {state: 0 for state in seen.counts}
    for entry in seen.entries.values():
        counts[entry.state] += 1
    assert seen.counts == counts
    unfinished = {"new", "resv", "rel", "dirty", "doom", "conf"}
    assert set(seen.todo) == {pod for pod, e in seen.entries.items() if e.state in unfinished}
    by = {f"{e.box_uid}/{e.slot}": pod for pod, e in seen.entries.items() if e.slot >= 0}
    raw = store.redis.hgetall(keys.ledger(ledger.member, "by"))
    assert {key.decode(): pod.decode() for key, pod in raw.items()} == by
    ranks = {name.decode(): value.decode() for name, value in store.redis.hgetall(keys.RANK).items()}
    stock = {
        pod
        for pod, e in seen.entries.items()
        if e.state == "free" and ranks.get(f"ns/{pod}", "").partition("|")[2] == e.pod_uid
    }
    assert {pod for pod, _ in ledger.available(1000)} == stock


START = {
    "new": LedgerEntry(state="new"),
    "free": free("u1"),
    "resv": LedgerEntry(state="resv", pod_uid="u1", box_uid="s1-uid", box="s1", slot=0, seq=4, op="o"),
    "held": LedgerEntry(state="held", pod_uid="u1", box_uid="s1-uid", box="s1", slot=0, seq=4, op="o"),
    "rel": LedgerEntry(state="rel", pod_uid="u1", box_uid="s1-uid", box="s1", slot=0, seq=4, op="o", policy="Noop"),
    "dirty": LedgerEntry(state="dirty", pod_uid="u1", seq=4),
    "doom": LedgerEntry(state="doom", pod_uid="u1"),
    "conf": LedgerEntry(state="conf", pod_uid="u1"),
}
