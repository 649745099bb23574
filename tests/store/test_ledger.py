"""The ledger: exactly what was asked or nothing, and only for the run that holds the pool. Real Redis."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from osb.errors import Fenced, LedgerNotReady
from osb.facts.ledger import LedgerEntry
from osb.local.redis import EmbeddedRedis
from osb.store.client import Store, connect
from osb.store.ledger import Ledger
from osb.store.ledger_types import Proof, parse, text
from tests.doubles.ledger_run import START, UID, derived, free, grant, moved, ready, rebuilt, state_of, take
from tests.doubles.mutant import Mutant
from tests.doubles.together import together

# -- allocate ------------------------------------------------------------


def test_exactly_the_named_pods_are_promised(store: Store, ledger: Ledger, proof: Proof) -> None:
    ready(store, "p0", "p1", "p2")
    rebuilt(ledger, proof, 3)
    taken = ledger.allocate(proof, "op1", [grant("p0", slot=0), grant("p2", slot=1)])
    assert taken.ok and taken.seqs == {"p0": 1, "p2": 2}
    entry = ledger.holders(["p2"])["p2"]
    assert entry == LedgerEntry(state="resv", pod_uid="u2", box_uid="s1-uid", box="s1", slot=1, seq=2, op="op1")
    assert ledger.available() == [("p1", 1.0)]
    assert set(ledger.todo()) == {"p0", "p2"}
    derived(ledger, store)


def test_one_pod_that_is_not_free_takes_nothing(store: Store, ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, {"p0": free("u0"), "p1": LedgerEntry(state="dirty", pod_uid="u1")})
    taken = ledger.allocate(proof, "op1", [grant("p0"), grant("p1", slot=1), grant("p9", slot=2)])
    assert not taken.ok and taken.pods == ("p1", "p9")
    assert state_of(ledger, "p0") == "free" and state_of(ledger, "p1") == "dirty"
    derived(ledger, store)


def test_a_pod_of_another_uid_under_the_name_is_not_taken(ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, 1)
    assert ledger.allocate(proof, "op1", [grant("p0", uid="other")]).pods == ("p0",)


def test_an_entry_of_somebody_else_is_never_overwritten(ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, 1)
    assert ledger.allocate(proof, "op1", [grant("p0", box="s1")]).ok
    assert not ledger.allocate(proof, "op2", [grant("p0", box="s2")]).ok
    assert not ledger.allocate(proof, "op1", [grant("p0", box="s2")]).ok
    assert ledger.holders(["p0"])["p0"].box == "s1"


def test_a_slot_that_has_a_pod_gets_no_second_one(ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, 2)
    assert ledger.allocate(proof, "op1", [grant("p0")]).ok
    taken = ledger.allocate(proof, "op2", [grant("p1")])
    assert not taken.ok and taken.slots == (("s1-uid", 0),) and taken.pods == ()
    assert state_of(ledger, "p1") == "free"


def test_one_pod_twice_or_one_slot_twice_in_a_call_takes_nothing(ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, 2)
    assert not ledger.allocate(proof, "op1", [grant("p0"), grant("p0", box="s2")]).ok
    assert not ledger.allocate(proof, "op2", [grant("p0"), grant("p1")]).ok
    assert ledger.counts()["free"] == 2


def test_an_allocation_whose_answer_was_lost_may_be_repeated(store: Store, ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, 2)
    first = ledger.allocate(proof, "op1", [grant("p0"), grant("p1", slot=1)])
    again = ledger.allocate(proof, "op1", [grant("p0"), grant("p1", slot=1)])
    assert again == first and ledger.counts()["resv"] == 2
    derived(ledger, store)


# -- who may write ------------------------------------------------------------


def test_a_worker_that_lost_the_pool_changes_nothing(store: Store, ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, 2)
    assert ledger.allocate(proof, "op1", [grant("p0")]).ok
    take(store)
    calls = [
        lambda: ledger.allocate(proof, "op2", [grant("p1")]),
        lambda: ledger.move(proof, [moved("cancel", "p0", "resv", box="s1", to="free")]),
        lambda: ledger.intend(proof, 10, ["n1"]),
        lambda: ledger.prove(proof),
        lambda: ledger.begin_rebuild(proof, "e2"),
        lambda: ledger.commit(proof, "e1", {}),
        lambda: ledger.drop(UID, proof=proof),
    ]
    before = ledger.state(entries=True)
    for call in calls:
        with pytest.raises(Fenced):
            call()
    assert ledger.state(entries=True) == before


def test_a_ledger_of_another_pool_uid_is_not_ready(ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, 1)
    with pytest.raises(LedgerNotReady):
        ledger.allocate(replace(proof, pool_uid="re-created"), "op1", [grant()])


def test_a_ledger_of_another_epoch_than_the_pass_has_read_is_not_ready(ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, 1, epoch="e1")
    assert ledger.prove(replace(proof, epoch="e1"))
    with pytest.raises(LedgerNotReady):
        ledger.prove(replace(proof, epoch="e0"))


def test_a_flushed_ledger_is_not_ready(store: Store, ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, 1)
    store.redis.delete(*store.redis.keys("osb:l:*"))
    with pytest.raises(LedgerNotReady):
        ledger.allocate(proof, "op1", [grant()])
    assert not ledger.meta().ready


def test_a_ledger_of_another_boot_of_redis_is_not_ready(redis_server: EmbeddedRedis, store: Store) -> None:
    rebuilt(store.ledger("ns", "warm"), take(store), 1)
    redis_server.stop()
    redis_server.start()
    again = connect(redis_server.url)
    try:
        proof, ledger = take(again), again.ledger("ns", "warm")
        assert ledger.meta().state == "ready" and not ledger.meta().ready
        with pytest.raises(LedgerNotReady):
            ledger.allocate(proof, "op1", [grant()])
        # When it is rebuilt, what it knew before the restart is handed over.
        former = ledger.begin_rebuild(proof, "e2")
        assert (former.uid, former.epoch, set(former.entries)) == (UID, "e1", {"p0"})
        assert former.boot not in ("", ledger.meta().boot_now)
    finally:
        again.close()


def test_a_proof_for_another_pool_is_refused_before_it_is_sent(ledger: Ledger, proof: Proof) -> None:
    with pytest.raises(ValueError, match="ns/other"):
        ledger.prove(replace(proof, member="ns/other"))


# -- proof, intent, looks ------------------------------------------------------------


def test_a_proof_holds_only_while_the_entry_is_as_named(ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, 1)
    ledger.allocate(proof, "op1", [grant()])
    claim = {"pod_uid": "u0", "state": "resv", "box_uid": "s1-uid"}
    assert ledger.prove(proof) and ledger.prove(proof, "p0", **claim)
    assert not ledger.prove(proof, "p0", **{**claim, "box_uid": "s2-uid"})
    ledger.move(proof, [moved("cancel", "p0", "resv", box="s1", to="dirty")])
    assert not ledger.prove(proof, "p0", **claim)
    assert not ledger.prove_all(proof, [("p0", "u0", "dirty", ""), ("p9", "u9", "free", "")])


def test_intents_stop_at_the_maximum_whatever_state_the_entries_are_in(
    store: Store, ledger: Ledger, proof: Proof
) -> None:
    rebuilt(ledger, proof, {"p1": START["doom"], "p2": START["free"]})
    assert not ledger.intend(proof, 3, ["n1", "n2"])
    assert ledger.counts()["new"] == 0
    assert ledger.intend(proof, 4, ["n1", "n2"])
    assert ledger.intend(proof, 4, ["n1", "n2"])  # the answer was lost
    assert not ledger.intend(proof, 4, ["n3"])
    assert not ledger.intend(proof, 99, ["p2"])  # the name is taken
    derived(ledger, store)


def test_a_born_pod_is_free_under_its_uid_and_enters_the_stock_when_ready(
    store: Store, ledger: Ledger, proof: Proof
) -> None:
    rebuilt(ledger, proof, 0)
    ledger.intend(proof, 9, ["p1", "p2"])
    ready(store, "p1")
    assert ledger.available() == []
    assert ledger.move(proof, [moved("born", "p1", "new"), moved("born", "p2", "new")]) == [True, True]
    assert ledger.available() == [("p1", 1.0)]
    ready(store, "p2")
    assert ledger.available(1) == [("p1", 1.0)] and ledger.available(1, start=1) == [("p2", 2.0)]
    assert ledger.available(0) == []
    derived(ledger, store)


def test_the_pods_of_one_sandbox_are_found_without_a_scan(ledger: Ledger, proof: Proof) -> None:
    entries = {
        f"p{n}": LedgerEntry(state="held", pod_uid=f"u{n}", box_uid="big", box="b", slot=n, seq=n)
        for n in (*range(100), 300)
    }
    rebuilt(ledger, proof, entries)
    assert {slot: pod for slot, (pod, _) in ledger.of_box("big", 301).items()} == {
        n: f"p{n}" for n in (*range(100), 300)
    }
    assert len(ledger.of_box("big")) == 100
    assert ledger.of_box("other") == {}


def test_the_oldest_unfinished_business_comes_first(ledger: Ledger, proof: Proof, clock: Any) -> None:
    rebuilt(ledger, proof, 3)
    for pod in ("p2", "p0"):
        clock.forward(5)
        ledger.allocate(proof, pod, [grant(pod, box=pod)])
    clock.forward(5)
    ledger.move(proof, [moved("cancel", "p2", "resv", box="p2", to="dirty")])
    assert list(ledger.todo().items()) == [("p0", clock.ms - 5000), ("p2", clock.ms)]


@pytest.mark.parametrize("entry", START.values(), ids=START)
def test_the_text_of_an_entry_reads_back(entry: LedgerEntry) -> None:
    assert parse(text(entry).encode()) == entry


@pytest.mark.parametrize("bad", [LedgerEntry(state="lent"), LedgerEntry(state="free", pod_uid="a|b")])
def test_an_entry_that_could_not_be_read_back_is_not_written(bad: LedgerEntry) -> None:
    with pytest.raises(ValueError, match=r"ledger"):
        text(bad)


# -- many clients ------------------------------------------------------------


def test_workers_that_fight_for_few_pods_never_share_one(redis_url: str, store: Store) -> None:
    """Eight threads with the same token race for 20 pods; each pod is promised once, by whole calls only."""
    proof = take(store)
    rebuilt(store.ledger("ns", "warm"), proof, 20)
    wins: list[tuple[str, ...]] = []

    def fight(worker: int) -> None:
        own = connect(redis_url)
        for n in range(40):
            pods = [f"p{(worker * 7 + n * 3 + k) % 20}" for k in range(2)]
            grants = [grant(pod, box=f"s{worker}-{n}", slot=k) for k, pod in enumerate(pods)]
            if own.ledger("ns", "warm").allocate(proof, f"{worker}-{n}", grants).ok:
                wins.append(tuple(pods))
        own.close()

    together(fight, range(8))
    handed = [pod for pods in wins for pod in pods]
    assert len(handed) == len(set(handed)) == store.ledger("ns", "warm").counts()["resv"]
    derived(store.ledger("ns", "warm"), store)


# -- the checks above are sharp ------------------------------------------------------------


MUTANTS = {
    "the token is not checked": (
        "ledger_move_v1", "if ledger_fenced() then", "if false then",
        test_a_worker_that_lost_the_pool_changes_nothing,
    ),
    "allocate overwrites": (
        "ledger_allocate_v1", "not e or e.state ~= 'free' or e.uid ~= uid", "not e",
        test_an_entry_of_somebody_else_is_never_overwritten,
    ),
    "the pool's uid is ignored": (
        "ledger_allocate_v1", "m[1] ~= ARGV[3] or", "",
        test_a_ledger_of_another_pool_uid_is_not_ready,
    ),
    "terminating pods do not count against the maximum": (
        "ledger_intend_v1", "redis.call('HLEN', KEYS[3])", "0",
        test_intents_stop_at_the_maximum_whatever_state_the_entries_are_in,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_each_broken_script_is_caught(store: Store, proof: Proof, name: str) -> None:
    script, old, new, check = MUTANTS[name]
    broken = Ledger(store.redis, Mutant(store, script, old, new), "ns", "warm")
    wanted = inspect.signature(check).parameters
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(**{k: v for k, v in {"store": store, "ledger": broken, "proof": proof}.items() if k in wanted})


@pytest.fixture(autouse=True)
def _no_leftover_threads() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() <= before
