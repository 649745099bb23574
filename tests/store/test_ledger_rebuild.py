"""A ledger is replaced as a whole or not at all, by the one run that holds the pool. Real Redis."""

from __future__ import annotations

import time

import pytest

from osb.errors import Fenced, LedgerNotReady
from osb.facts.ledger import LedgerEntry
from osb.store import keys
from osb.store.client import Store
from osb.store.ledger import COMMIT_LIMIT, Ledger
from osb.store.ledger_types import Grant, Move, Proof
from osb.store.mirror import Put
from tests.doubles.ledger_run import POOL, UID, free, take


def held(uid: str, *, box: str, slot: int = 0, seq: int = 1) -> LedgerEntry:
    return LedgerEntry(state="held", pod_uid=uid, box_uid=f"{box}-uid", box=box, slot=slot, seq=seq)


def test_a_commit_replaces_everything_and_derives_the_rest(store: Store, ledger: Ledger) -> None:
    proof = take(store)
    ledger.begin_rebuild(proof, "e1")
    ledger.commit(proof, "e1", {"old": free("u-old"), "gone": held("u-gone", box="s0")})
    store.mirror.put("poolpod", [Put(name="ns/p1", version="1", uid="u1", doc=b"", pool="ns/warm", rank=3.0)])
    ledger.begin_rebuild(proof, "e2")
    ledger.commit(
        proof,
        "e2",
        {"p1": free("u1"), "p2": held("u2", box="s1", seq=7), "p3": LedgerEntry(state="conf", pod_uid="u3")},
    )
    seen = ledger.state(entries=True)
    assert set(seen.entries) == {"p1", "p2", "p3"} and set(seen.todo) == {"p3"}
    assert (seen.meta.epoch, seen.meta.ready, seen.meta.seq) == ("e2", True, 7)
    assert {state: n for state, n in seen.counts.items() if n} == {"free": 1, "held": 1, "conf": 1}
    assert ledger.available() == [("p1", 3.0)]
    assert set(ledger.of_box("s1-uid")) == {0} and ledger.of_box("s0-uid") == {}


def test_nothing_is_served_between_the_beginning_of_a_rebuild_and_its_commit(store: Store, ledger: Ledger) -> None:
    proof = take(store)
    ledger.begin_rebuild(proof, "e1")
    ledger.commit(proof, "e1", {"p1": free("u1")})
    ledger.begin_rebuild(proof, "e2")
    with pytest.raises(LedgerNotReady):
        ledger.allocate(proof, "op", [Grant("p1", "u1", "s-uid", "s", 0)])
    with pytest.raises(LedgerNotReady):
        ledger.move(proof, [Move(what="doom", pod="p1", pod_uid="u1", from_state="free")])
    with pytest.raises(LedgerNotReady):
        ledger.intend(proof, 9, ["n1"])


def test_a_late_commit_of_a_worker_that_was_overtaken_is_refused(store: Store, ledger: Ledger) -> None:
    # Given: a worker froze in its rebuild, and another one finished its own.
    slow = take(store)
    ledger.begin_rebuild(slow, "slow")
    quick = take(store)
    ledger.begin_rebuild(quick, "quick")
    ledger.commit(quick, "quick", {"p1": held("u1", box="s1")})
    # When the first one goes on, then nothing changes.
    with pytest.raises(Fenced):
        ledger.commit(slow, "slow", {"p1": free("u1")})
    assert ledger.holders(["p1"])["p1"].state == "held"
    # Nor may a run commit an epoch it did not begin.
    with pytest.raises(LedgerNotReady):
        ledger.commit(quick, "slow", {"p1": free("u1")})
    with pytest.raises(LedgerNotReady):
        ledger.commit(take(store), "quick", {"p1": free("u1")})
    assert ledger.holders(["p1"])["p1"].state == "held"


def test_a_commit_after_a_flush_is_refused(store: Store, ledger: Ledger) -> None:
    proof = take(store)
    ledger.begin_rebuild(proof, "e1")
    store.redis.delete(*store.redis.keys("osb:l:*"))
    with pytest.raises(LedgerNotReady):
        ledger.commit(proof, "e1", {"p1": free("u1")})


def test_a_commit_whose_answer_was_lost_may_be_repeated(store: Store, ledger: Ledger) -> None:
    proof = take(store)
    ledger.begin_rebuild(proof, "e1")
    ledger.commit(proof, "e1", {"p1": free("u1")})
    assert ledger.allocate(proof, "op", [Grant("p1", "u1", "s-uid", "s", 0)]).ok
    ledger.commit(proof, "e1", {"p1": free("u1")})
    assert ledger.holders(["p1"])["p1"].state == "resv"


def test_sequence_numbers_never_go_back(store: Store, ledger: Ledger) -> None:
    proof = take(store)
    ledger.begin_rebuild(proof, "e1")
    ledger.commit(proof, "e1", {"p1": held("u1", box="s1", seq=40), "p2": free("u2")}, seq=12)
    assert ledger.allocate(proof, "op", [Grant("p2", "u2", "s2", "s2", 0)]).seqs == {"p2": 41}
    ledger.begin_rebuild(proof, "e2")
    ledger.commit(proof, "e2", {"p3": free("u3")})
    assert ledger.allocate(proof, "op", [Grant("p3", "u3", "s2", "s2", 0)]).seqs == {"p3": 42}
    ledger.begin_rebuild(proof, "e3")
    ledger.commit(proof, "e3", {"p3": free("u3")}, seq=99)
    assert ledger.allocate(proof, "op2", [Grant("p3", "u3", "s2", "s2", 0)]).seqs == {"p3": 100}


def test_a_rebuild_that_died_does_not_hide_what_was_there_before(store: Store, ledger: Ledger) -> None:
    proof = take(store)
    first = ledger.begin_rebuild(proof, "e1")
    assert (first.uid, first.epoch, first.boot, first.entries) == ("", "", "", {})
    ledger.commit(proof, "e1", {"p1": free("u1")})
    boot = ledger.meta().boot
    ledger.begin_rebuild(take(store), "e2")  # and its worker dies
    former = ledger.begin_rebuild(take(store), "e3")
    assert (former.uid, former.epoch, former.boot) == (UID, "e1", boot)
    assert set(former.entries) == {"p1"}


def test_a_distrusted_ledger_counts_as_none(store: Store, ledger: Ledger) -> None:
    proof = take(store)
    ledger.begin_rebuild(proof, "e1")
    ledger.commit(proof, "e1", {"p1": free("u1")})
    store.mirror.reset("poolpod")
    assert not ledger.meta().ready
    former = ledger.begin_rebuild(proof, "e2")
    assert (former.uid, former.epoch, former.boot) == ("", "", "")


def test_the_ledger_of_a_pool_made_again_is_seen_as_foreign(store: Store, ledger: Ledger) -> None:
    proof = take(store)
    ledger.begin_rebuild(proof, "e1")
    ledger.commit(proof, "e1", {"p1": held("u1", box="s1")})
    again = take(store, uid="pool-uid-2")
    with pytest.raises(LedgerNotReady):
        ledger.prove(again)
    former = ledger.begin_rebuild(again, "e2")
    assert former.uid == UID
    ledger.commit(again, "e2", {"q1": free("v1")})
    assert set(ledger.entries()) == {"q1"} and ledger.of_box("s1-uid") == {}
    with pytest.raises(LedgerNotReady):
        ledger.prove(Proof(POOL.member, again.token, UID))


def test_ten_thousand_pods_are_rebuilt_in_parts_and_read_fast(store: Store, ledger: Ledger) -> None:
    entries = {f"p{n}": free(f"u{n}") for n in range(9000)} | {
        f"h{n}": held(f"v{n}", box=f"s{n}", seq=n) for n in range(1000)
    }
    assert len(entries) > 4 * COMMIT_LIMIT
    proof = take(store)
    ledger.begin_rebuild(proof, "e0")
    # A rebuild that died half way leaves parts behind: they must not show up in the next one.
    store.redis.hset(keys.ledger(POOL.member, "new"), "ghost", "free|g|||-1|0||")
    ledger.begin_rebuild(proof, "e1")
    ledger.commit(proof, "e1", entries)
    started = time.perf_counter()
    read = ledger.entries()
    seconds = time.perf_counter() - started
    assert read == entries
    assert seconds < 1.0  # about 40 ms on an idle core
    counts = ledger.counts()
    assert (counts["free"], counts["held"]) == (9000, 1000)
    assert ledger.meta().seq == 999
    assert not store.redis.exists(keys.ledger(POOL.member, "new"))
    # And a small one afterwards.
    ledger.begin_rebuild(proof, "e2")
    ledger.commit(proof, "e2", {})
    assert ledger.entries() == {} and ledger.meta().ready


def test_a_dropped_ledger_leaves_nothing_behind(store: Store, ledger: Ledger) -> None:
    proof = take(store)
    ledger.begin_rebuild(proof, "e1")
    ledger.commit(proof, "e1", {"p1": held("u1", box="s1"), "p2": LedgerEntry(state="dirty", pod_uid="u2")})
    assert store.redis.smembers(keys.LEDGERS) == {b"ns/warm"}
    assert not ledger.drop("another-uid")
    assert ledger.meta().ready
    assert ledger.drop(UID, proof=proof)
    assert store.redis.keys("osb:l:*") == []
    assert not ledger.drop(UID)
