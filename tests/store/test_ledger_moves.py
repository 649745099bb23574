"""Entries change state only as the table says, each for itself, and only for their own sandbox. Real Redis."""

from __future__ import annotations

from dataclasses import replace

import pytest

from osb.store.client import Store
from osb.store.ledger import Ledger
from osb.store.ledger_types import Move, Proof
from tests.doubles.ledger_run import START, derived, free, grant, moved, ready, rebuilt, state_of
from tests.doubles.mutant import Mutant

LEGAL = {
    ("settle", "resv", "held"), ("cancel", "resv", "free"), ("cancel", "resv", "dirty"),
    ("release", "held", "rel"), ("repin", "rel", "rel"), ("recycled", "rel", "free"),
    ("recycled", "dirty", "free"), ("doom", "free", "doom"), ("doom", "dirty", "doom"), ("doom", "rel",
    "doom"), ("born", "new", "free"), ("conf", "conf", "dirty"), ("orphan", "-", "dirty"), *(("gone", state,
    "-") for state in START), *(("lost", state, "-") for state in START),
}  # fmt: skip
EVERY_MOVE = [
    (what, start, to)
    for what, to in (
        ("settle", "held"), ("cancel", "free"), ("cancel", "dirty"), ("release", "rel"), ("repin", "rel"),
        ("recycled", "free"), ("doom", "doom"), ("born", "free"), ("conf", "dirty"), ("orphan", "dirty"),
        ("gone", "-"), ("lost", "-"),
    )
    for start in (*START, "-")
]  # fmt: skip


@pytest.mark.parametrize(("what", "start", "to"), EVERY_MOVE, ids=lambda value: str(value))
def test_only_the_moves_of_the_table_are_made(
    store: Store, ledger: Ledger, proof: Proof, what: str, start: str, to: str
) -> None:
    ready(store, "p1")
    rebuilt(ledger, proof, {"p1": START[start]} if start != "-" else {})
    box = START[start].box if start != "-" else ""
    made = ledger.move(
        proof,
        [moved(what, "p1", start, box=box, to=to if what in ("cancel", "recycled") else "", policy="Delete")],
    )
    assert made == [(what, start, to) in LEGAL]
    assert state_of(ledger, "p1") == (to if made[0] else start)
    derived(ledger, store)


def test_a_move_whose_entry_is_not_as_named_stays_and_the_others_go_on(
    store: Store, ledger: Ledger, proof: Proof
) -> None:
    rebuilt(ledger, proof, 4)
    ledger.allocate(proof, "op1", [grant(f"p{n}", slot=n) for n in range(3)])
    made = ledger.move(
        proof,
        [
            moved("settle", "p0", "resv", box="s1"),
            moved("settle", "p1", "resv", box="s2"),  # another sandbox's
            moved("settle", "p2", "resv", box="s1", pod_uid="other"),
            moved("settle", "p3", "free"),
        ],
    )
    assert made == [True, False, False, False]
    assert [state_of(ledger, f"p{n}") for n in range(4)] == ["held", "resv", "resv", "free"]
    derived(ledger, store)


def test_release_pins_the_policy_and_repin_makes_it_stricter(ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, {"p1": START["held"]})
    assert ledger.move(proof, [moved("release", "p1", "held", box="s1", policy="Restart")]) == [True]
    assert ledger.holders(["p1"])["p1"].policy == "Restart"
    assert ledger.move(proof, [moved("repin", "p1", "rel", box="s1", policy="Delete")]) == [True]
    assert ledger.holders(["p1"])["p1"] == replace(START["held"], state="rel", policy="Delete")


def test_a_freed_pod_carries_nothing_of_its_former_holder(ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, {"p1": START["rel"]})
    assert ledger.move(proof, [moved("recycled", "p1", "rel", box="s1")]) == [True]
    assert ledger.holders(["p1"])["p1"] == free("u1")
    assert ledger.of_box("s1-uid") == {}


def test_a_move_without_a_clear_target_is_refused_before_it_is_sent(ledger: Ledger, proof: Proof) -> None:
    for what, to in (("cancel", ""), ("cancel", "held"), ("steal", "")):
        with pytest.raises(ValueError, match=what):
            ledger.move(proof, [moved(what, "p1", "resv", box="s1", to=to)])


def test_only_the_pod_acknowledged_now_is_freed_and_only_from_its_own_sandbox(ledger: Ledger, proof: Proof) -> None:
    # Given: p0 went from s1 to s2 after a release; s1 still remembers its name in its cumulative list.
    rebuilt(ledger, proof, 2)
    ledger.allocate(proof, "a", [grant("p0", box="s1", slot=0), grant("p1", box="s1", slot=1)])
    ledger.move(proof, [moved("settle", pod, "resv", box="s1") for pod in ("p0", "p1")])
    ledger.move(proof, [moved("release", "p0", "held", box="s1", policy="Noop")])
    ledger.move(proof, [moved("recycled", "p0", "rel", box="s1")])
    ledger.allocate(proof, "b", [grant("p0", box="s2")])
    ledger.move(proof, [moved("settle", "p0", "resv", box="s2")])
    # When: s1 releases p1 and names both again.
    again = [moved("release", pod, "held", box="s1", policy="Noop") for pod in ("p0", "p1")]
    # Then: s2 keeps its pod.
    assert ledger.move(proof, again) == [False, True]
    assert ledger.holders(["p0"])["p0"].box == "s2" and state_of(ledger, "p0") == "held"


def test_a_sandbox_made_again_under_its_name_does_not_own_the_old_ones_pods(ledger: Ledger, proof: Proof) -> None:
    rebuilt(ledger, proof, {"p1": START["held"]})
    again = Move(what="release", pod="p1", pod_uid="u1", from_state="held", box_uid="s1-new", policy="Noop")
    assert ledger.move(proof, [again]) == [False]
    assert ledger.of_box("s1-new") == {} and set(ledger.of_box("s1-uid")) == {0}


def test_a_script_that_does_not_look_whose_pod_it_is_would_be_noticed(store: Store, proof: Proof) -> None:
    mutant = Mutant(store, "ledger_move_v1", "or e.box_uid ~= m.box_uid", "")
    with pytest.raises(AssertionError):
        test_only_the_pod_acknowledged_now_is_freed_and_only_from_its_own_sandbox(
            Ledger(store.redis, mutant, "ns", "warm"), proof
        )
