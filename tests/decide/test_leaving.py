"""What a terminating sandbox says that it waits for."""

from __future__ import annotations

from typing import Any

import pytest

from osb.api import names, times
from osb.decide import batch, leaving
from osb.decide.plan import EmitEvent, Plan
from osb.decide.recycle import RestartRecord
from osb.facts.boxview import BatchView, Leaving, Returning
from osb.facts.ledger import CONF, HELD, REL, LedgerEntry
from osb.facts.pod import PodFact
from tests.doubles.boxes import NOW, UID, after, at, box, of, pod, status, view

RESTART = names.RECYCLE_RESTART


def entry(state: str = REL, policy: str = RESTART) -> LedgerEntry:
    return LedgerEntry(state=state, pod_uid="uid-warm-1", box_uid=UID, box="box", slot=0, seq=5, policy=policy)


def pool_pod(record: RestartRecord | None = None, **changes: Any) -> PodFact:
    text = record.text() if record is not None else ""
    return pod("warm-1", container_ids=(("main", "c1", True),), restart_record=text, **changes)


def attempted(*, ago: float, retries: int = 1, runner: str = "") -> RestartRecord:
    when = times.format(at(-ago))
    return RestartRecord(
        id=f"{UID}:5", started=when, containers={"main": "c1"}, last_retry=when, retries=retries, open=runner
    )


def going(*pods: Returning, age: float = 1, **pool: Any) -> BatchView:
    """A sandbox that was deleted `age` seconds ago and has these pods on their way back to its pool."""
    spec = box(poolRef="warm", deleting=True, finalizers=(names.FINALIZER_POOL,), status=status("Succeed"))
    there = Leaving(**{"pool": "warm", "policy": RESTART, "pods": pods, **pool})
    return view(spec, now=at(age - 1), leaving=there)


def back(record: RestartRecord | None = None, **changes: Any) -> Returning:
    return Returning(name="warm-1", entry=entry(), pod=pool_pod(record, **changes))


def why(seen: BatchView) -> list[str]:
    return list(batch.plan(seen).reasons)


def test_a_finalizer_of_ours_is_named_with_the_pod_the_policy_the_attempt_and_the_limit() -> None:
    # Given a restart that began 10 s ago and changed nothing yet
    told = why(going(back(attempted(ago=10))))
    # Then 20 s of this interval are left, and two more attempts of at most 10 s and an interval each
    assert told == [
        f"terminating; finalizer {names.FINALIZER_POOL} holds it: pool warm has 1 pod of it to take back",
        "pod warm-1: recycle policy Restart, restart 1 of 3: waiting for the containers to restart; "
        "if nothing helps, it is deleted in 2 min at the latest",
    ]


@pytest.mark.parametrize(
    ("one", "text"),
    [
        (back(), "recycle policy Restart, restart 1 of 3 is due"),
        (back(attempted(ago=3, runner="w")), "restart 1 of 3: a restart attempt is running"),
        (back(attempted(ago=31, retries=2)), "restart 3 of 3 is due"),
        (back(attempted(ago=31, retries=3)), "it is deleted in the pool's next pass (3 restarts changed nothing)"),
        (back(deleting=1), "the pod is terminating"),
        (Returning(name="warm-1", entry=entry(policy=names.RECYCLE_DELETE), pod=pool_pod()),
         "recycle policy Delete, it is deleted in the pool's next pass"),
        (Returning(name="warm-1", entry=entry()), "the pod is gone, which the pool's next pass records"),
        (Returning(name="warm-1", entry=entry(HELD), pod=pool_pod()), "not taken back yet"),
        (Returning(name="warm-1", entry=entry(CONF), pod=pool_pod()), "another sandbox's record claims it too"),
    ],
)  # fmt: skip
def test_each_pod_says_what_comes_next(one: Returning, text: str) -> None:
    assert text in why(going(one))[1]


@pytest.mark.parametrize(
    ("pool", "text"),
    [
        ({"hold": True}, "pool warm, which is on hold"),
        ({"exists": False}, "Pool warm is gone"),
        ({"believed": False}, "the ledger of pool warm is rebuilt first"),
        ({"pool": ""}, "its record does not say which pool it is of"),
        ({}, "pool warm has nothing of it left, and its next pass removes the finalizer"),
    ],
)
def test_what_keeps_the_pool_from_its_work_is_told(pool: dict[str, Any], text: str) -> None:
    assert text in why(going(**pool))[0]
    assert "nothing of ours" not in why(going(**pool))[0]


def test_many_pods_are_cut() -> None:
    told = why(going(*[back() for _ in range(9)]))
    assert (len(told), told[-1]) == (2 + leaving.SHOWN, "and 4 more pods")


def test_others_finalizers_are_named_when_none_is_ours() -> None:
    told = why(view(box(deleting=True, finalizers=("example.com/keep",))))
    assert told == ["terminating; nothing of ours holds it; finalizers of others do: example.com/keep"]
    assert why(view(box(deleting=True))) == ["terminating; nothing of ours holds it"]


def shown(plan: Plan) -> dict[str, Any]:
    assert plan.status is not None
    return next(c for c in plan.status["conditions"] if c["type"] == names.PROGRESSING)


def test_a_deletion_that_lasts_longer_than_usual_is_told_on_the_sandbox_once() -> None:
    # Given a sandbox that goes as usual: it is looked at again when that is over
    early = batch.plan(going(back(attempted(ago=10)), age=20))
    assert (early.status, early.actions, early.again) == (None, (), 40)
    # When it takes longer
    seen = going(back(attempted(ago=40, retries=2)), age=70)
    late = batch.plan(seen)
    # Then condition and Event name the finalizer's cause, the pod and the attempt
    assert shown(late)["reason"] == names.REASON_WAITING_FOR_RECYCLING
    assert "pool warm has 1 pod of it to take back" in shown(late)["message"]
    assert "pod warm-1: recycle policy Restart, restart 3 of 3 is due" in shown(late)["message"]
    assert [(e.type, e.reason) for e in of(late, EmitEvent)] == [("Warning", names.EVENT_DELETION_WAITS)]
    assert late.status is not None and late.status["phase"] == "Succeed"
    # And the next look writes nothing new although time went on
    assert late.again == leaving.LOOK
    there = going(back(attempted(ago=40, retries=2)), age=75)
    stored = after(there.spec, late.status)
    again = batch.plan(view(stored, now=at(74), leaving=there.leaving))
    assert (again.status, again.actions) == (late.status, ())


def test_nothing_about_a_pause_is_said_of_a_terminating_sandbox() -> None:
    from osb.decide.pausetext import standing

    spec = box(deleting=True, pause=True, status=status("Pausing"), finalizers=(names.FINALIZER_TASKS,))
    assert standing(view(spec, pod(), now=NOW)) == ""
