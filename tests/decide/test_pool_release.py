"""Pods on their way back: when a held pod is released, marked, recycled, acknowledged; and when it is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from osb.api import names
from osb.api.batchsandbox import BoxSpec
from osb.api.pool import PoolSpec
from osb.api.record import Record
from osb.decide.plan import Action, EmitEvent, Lose, Move, PatchObject, PatchPod, Recycle, Settle
from osb.decide.poolrelease import returns
from osb.decide.poolsort import sort
from osb.errors import RecordUnreadable
from osb.facts.ledger import LedgerEntry
from osb.facts.pod import PodFact
from osb.facts.poolview import PoolView

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
TASKS, POOL = names.FINALIZER_TASKS, names.FINALIZER_POOL


def pod(name: str, **kw: Any) -> PodFact:
    fields = {"phase": "Running", "ready": True, "revision": "r1", **kw}
    return PodFact("ns", name, f"uid-{name}", "7", "Pool", "warm", "pool-uid", **fields)


def entry(name: str, state: str = "held", slot: int = 0, **kw: Any) -> LedgerEntry:
    fields = {"box": "ns/s", "box_uid": "uid-s", "seq": 4, **kw}
    return LedgerEntry(state=state, pod_uid=f"uid-{name}", slot=slot, **fields)


def box(*pods: str, replicas: int | None = None, **kw: Any) -> BoxSpec:
    uids = tuple(f"uid-{p}"[:8] for p in pods)
    record = kw.pop("record", Record(pods=pods, uids=uids, pool_ref="warm", pool_uid="pool-uid"))
    fields = {"finalizers": (POOL,), "pool_ref": "warm", "name": "s", "uid": "uid-s", **kw}
    count = len(pods) if replicas is None else replicas
    return BoxSpec(namespace="ns", version="5", replicas=count, record=record, **fields)


def back(
    entries: dict[str, LedgerEntry],
    *boxes: BoxSpec,
    pods: list[PodFact] | None = None,
    recycle: str = "Delete",
    budget: int = 10,
) -> list[Action]:
    facts = [pod(name) for name in entries] if pods is None else pods
    spec = PoolSpec(namespace="ns", name="warm", uid="pool-uid", recycle=recycle)
    view = PoolView(
        now=NOW,
        pool=spec,
        revision="r1",
        pods={p.name: p for p in facts},
        entries=entries,
        names=(),
        boxes={b.uid: b for b in boxes},
        epoch="e1",
    )
    return returns(view, sort(view), dirty_budget=budget).actions


def moves(actions: list[Action]) -> list[tuple[str, str]]:
    return [(a.what, a.name) for a in actions if isinstance(a, Move)]


def steps(actions: list[Action]) -> list[tuple[str, str, str]]:
    return [(a.name, a.step, a.policy) for a in actions if isinstance(a, Recycle)]


def test_a_held_pod_that_its_sandbox_uses_stays() -> None:
    assert back({"a": entry("a")}, box("a")) == []


def test_a_pod_asked_back_is_released_and_the_policy_is_pinned() -> None:
    (move,) = back({"a": entry("a")}, box("a", release=("a",)), recycle="Noop")
    assert isinstance(move, Move)
    assert (move.what, move.policy, move.box_uid, move.confirm_box) == ("release", "Noop", "uid-s", False)


def test_a_forced_return_is_deleted_whatever_the_policy() -> None:
    (move,) = back({"a": entry("a")}, box("a", release=("a",), force=("a",)), recycle="Noop")
    assert isinstance(move, Move)
    assert move.policy == "Delete"


def test_a_terminating_sandbox_gives_all_back_once_its_tasks_are_gone() -> None:
    entries = {"a": entry("a"), "b": entry("b", slot=1)}
    busy = box("a", "b", deleting=NOW, finalizers=(TASKS, POOL))
    assert back(entries, busy) == []
    assert moves(back(entries, replace(busy, release=("b",)))) == [("release", "b")]
    assert sorted(moves(back(entries, replace(busy, finalizers=(POOL,))))) == [("release", "a"), ("release", "b")]


def test_slots_beyond_replicas_come_back_highest_first() -> None:
    entries = {"a": entry("a"), "b": entry("b", slot=1), "c": entry("c", slot=2)}
    actions = back(entries, box("a", "b", "c", replicas=1))
    assert moves(actions) == [("release", "c"), ("release", "b")]


@pytest.mark.parametrize(
    "changed",
    [
        None,
        box("a", pool_ref=""),
        box("x"),
        box("a", record=None),
        box("a", record=Record(pods=("a",), uids=("another",), pool_ref="warm", pool_uid="pool-uid")),
        box("a", record=Record(pods=("a",), pool_ref="warm", pool_uid="an-earlier-pool")),
        box("a", deleting=NOW, finalizers=("someone/else",)),
    ],
    ids=[
        "gone",
        "poolRef cleared",
        "record overwritten",
        "record removed",
        "other uid",
        "other pool",
        "finalizer stripped",
    ],
)
def test_a_claim_that_ends_without_the_handshake_marks_the_pod_before_the_ledger_moves(changed: BoxSpec | None) -> None:
    actions = [a for a in back({"a": entry("a")}, *([changed] if changed else [])) if not isinstance(a, Lose)]
    assert [type(a) for a in actions] == [PatchPod, Move]
    mark = actions[0]
    assert isinstance(mark, PatchPod)
    assert mark.patch == {"metadata": {"labels": {names.LABEL_SUSPECT: "uid-s"}}}
    assert (mark.uid, mark.version) == ("uid-a", "7")


def test_a_recorded_pod_that_neither_cluster_nor_ledger_has_is_lost_after_a_live_look() -> None:
    (lost,) = back({}, box("x"))
    assert isinstance(lost, Lose)
    assert (lost.slots, lost.pods[0][0]) == ((0,), "x")


def test_pods_of_a_former_pool_of_the_name_are_lost_once_nothing_of_them_is_held() -> None:
    former = box("a", record=Record(pods=("a",), uids=("uid-a",), pool_ref="warm", pool_uid="an-earlier-pool"))
    assert back({}, former) == [Lose("uid-s", (0,))]
    assert not any(isinstance(a, Lose) for a in back({"a": entry("a")}, former))


def test_what_only_a_view_says_is_confirmed_before_a_held_pod_moves() -> None:
    for changed in ([], [box("x")], [box("a", "b", replicas=0)]):
        released = [a for a in back({"a": entry("a")}, *changed) if isinstance(a, Move)]
        assert all(m.confirm_box for m in released)
        assert released


def test_an_edited_pool_ref_moves_nothing_while_the_record_names_this_pool() -> None:
    assert back({"a": entry("a")}, box("a", pool_ref="cold")) == []


def test_a_template_beside_the_pool_ref_does_not_take_a_sandbox_out_of_the_pool() -> None:
    assert back({"a": entry("a")}, box("a", written={"spec": {}})) == []


def test_a_quarantined_sandbox_keeps_its_pods_until_it_is_deleted() -> None:
    broken = box("a", record=None, record_error=RecordUnreadable("x", "is not JSON"))
    assert back({"a": entry("a")}, broken) == []
    assert moves(back({"a": entry("a")}, replace(broken, deleting=NOW))) == [("release", "a")]


def test_a_detaching_sandbox_gives_back_without_suspicion() -> None:
    record = Record(pods=("a",), uids=("uid-a",), pool_ref="warm", pool_uid="pool-uid", detaching=True)
    assert moves(back({"a": entry("a")}, box("a", pool_ref="", record=record))) == [("release", "a")]


def test_names_that_the_ledger_does_not_attribute_are_ignored_and_reported() -> None:
    # Given a sandbox that asks back a pod of another one
    mine = box("a", release=("victim",))
    other = box("victim", name="o", uid="uid-o")
    entries = {"a": entry("a"), "victim": entry("victim", box="ns/o", box_uid="uid-o")}
    # Then nothing happens to the victim
    actions = back(entries, mine, other)
    assert [type(a) for a in actions] == [EmitEvent]
    (warning,) = actions
    assert isinstance(warning, EmitEvent)
    assert (warning.type, warning.name) == ("Warning", "s")
    assert "[victim]" in warning.message


def test_a_pod_asked_back_that_is_gone_already_is_acknowledged_without_replay() -> None:
    (patch,) = back({"a": entry("a")}, box("a", "b", release=("b",)))
    assert isinstance(patch, PatchObject)
    assert patch.version == "5"
    assert patch.patch["metadata"]["annotations"][names.ALLOC_RELEASED] == '{"pods":["b"]}'


@pytest.mark.parametrize(
    ("policy", "the_pod", "step"),
    [
        ("Delete", pod("a"), "delete"),
        ("Delete", pod("a", deleting=5), None),
        ("Delete", None, "gone"),
        ("Noop", pod("a"), "free"),
        ("Noop", None, "gone"),
        ("Restart", pod("a", container_ids=(("main", "1", True),)), "attempt"),
        ("Restart", pod("a", phase="Pending", ready=False), "delete"),
    ],
)
def test_a_pod_in_recycling_takes_its_next_step(policy: str, the_pod: PodFact | None, step: str | None) -> None:
    entries = {"a": entry("a", "rel", policy=policy)}
    actions = back(entries, box("a", release=("a",)), pods=[the_pod] if the_pod else [], recycle=policy)
    assert [s for _, s, _ in steps(actions)] == ([step] if step else [])


def test_the_policy_pinned_at_the_release_counts_not_todays() -> None:
    entries = {"a": entry("a", "rel", policy="Restart")}
    running = [pod("a", container_ids=(("main", "1", True),))]
    assert steps(back(entries, box("a"), pods=running, recycle="Noop")) == [("a", "attempt", "Restart")]


def test_marks_are_taken_off_before_a_recycled_pod_is_free() -> None:
    actions = back({"a": entry("a", "rel", policy="Noop")}, pods=[pod("a", suspect="uid-s")], recycle="Noop")
    assert [type(a) for a in actions] == [PatchPod, Recycle]
    clean = actions[0]
    assert isinstance(clean, PatchPod)
    assert clean.patch["metadata"]["labels"] == {names.LABEL_SUSPECT: None}


def test_unknown_history_is_deleted_under_noop_and_paced() -> None:
    entries = {f"d{i}": LedgerEntry(state="dirty", pod_uid=f"uid-d{i}") for i in range(5)}
    assert steps(back(entries, recycle="Noop", budget=2)) == [("d0", "delete", "Delete"), ("d1", "delete", "Delete")]
    going = [pod(f"d{i}", deleting=5 if i < 2 else 0) for i in range(5)]
    assert steps(back(entries, pods=going, recycle="Noop", budget=2)) == []


def test_a_conflict_ends_only_when_no_record_claims_the_pod() -> None:
    entries = {"a": entry("a", "conf", box_uid="", box="")}
    assert back(entries, box("a"), box("a", name="t", uid="uid-t")) == []
    assert moves(back(entries, box("b", release=()))) == [("conf", "a")]


def test_an_open_reservation_is_settled_never_judged() -> None:
    (action,) = back({"a": entry("a", "resv")}, box(record=None, replicas=1, created=NOW - timedelta(seconds=9)))
    assert isinstance(action, Settle)
