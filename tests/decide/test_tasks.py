"""Starting, finding and observing tasks: views and steps, no executor, no cluster, no clock."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as change

from osb.decide import tasks
from osb.decide.taskasks import asks
from osb.decide.tasknode import (
    ASSIGNED,
    BY_RESULT,
    COMPLETED,
    FAILED,
    PENDING,
    RELEASED,
    RUNNING,
    SUCCEED,
    UNKNOWN,
    Answer,
    Node,
    TaskCounters,
    index_of,
    task_name,
)
from osb.decide.taskresults import Results
from tests.doubles.taskviews import (
    BROKEN,
    NOW,
    SILENCE,
    ended,
    node,
    pod,
    reasons,
    says,
    view,
)

# -- starting --------------------------------------------------------------------------------------------


def test_a_task_starts_on_its_slots_pod_once_that_pod_answered() -> None:
    step = tasks.step(view(answers={"u0": says()}))
    assert step.nodes[0].resource == ASSIGNED
    assert [(c.pod, c.task) for c in step.calls] == [("p0", {"name": "b-0", "process": {"command": ["sleep", "60"]}})]
    assert step.again == 3


def test_each_task_goes_to_the_pod_of_its_own_slot_whatever_the_order_of_the_pods() -> None:
    pods = [pod(2), pod(0), pod(1)]
    step = tasks.step(view(3, pods=pods, answers={p.uid: says() for p in pods}))
    assert {c.task["name"]: c.pod for c in step.calls if c.task} == {"b-0": "p0", "b-1": "p1", "b-2": "p2"}


def test_a_missing_slot_keeps_its_task_waiting_and_no_other_task_moves_up() -> None:
    step = tasks.step(view(2, pods=[pod(1)], answers={"u1": says()}))
    assert step.nodes[0].resource == PENDING
    assert [c.pod for c in step.calls] == ["p1"]


def test_a_pod_that_has_not_answered_gets_no_task() -> None:
    """Two silent pods after a restart could run each other's tasks."""
    step = tasks.step(view(2, ran=True, answers={"u0": SILENCE, "u1": BROKEN}))
    assert step.calls == ()
    assert {n.resource for n in step.nodes.values()} == {PENDING}
    assert "recovering" in step.nodes[0].error
    again = tasks.step(view(2, nodes=list(step.nodes.values()), answers={"u0": SILENCE, "u1": BROKEN}))
    assert "recovering" in again.nodes[0].error


def test_a_task_that_never_ran_waits_for_its_executor_and_recovers_nothing() -> None:
    step = tasks.step(view(answers={"u0": SILENCE}))
    assert step.nodes[0].error == "cannot connect"


@pytest.mark.parametrize(
    "unfit", [{"usable": False}, {"usable": False, "over": True}, {"usable": False, "ip": ""}], ids=str
)
def test_a_terminating_failed_or_addressless_pod_gets_no_task(unfit: dict[str, Any]) -> None:
    step = tasks.step(view(pods=[pod(0, **unfit)], answers={"u0": says()}))
    assert step.calls == ()
    assert step.nodes[0].resource == PENDING


def test_of_two_pods_of_one_slot_the_ready_one_is_taken() -> None:
    pods = [pod(0, uid="a"), pod(0, uid="b", name="new", ready=True)]
    step = tasks.step(view(pods=pods, answers={"a": says(), "b": says()}))
    assert [c.pod for c in step.calls] == ["new"]


def test_a_task_that_already_runs_is_not_sent_again_before_the_keep_alive_is_due() -> None:
    fresh = tasks.step(view(nodes=[node(sent=NOW - 10)], answers={"u0": says("b-0")}))
    assert fresh.calls == ()
    due = tasks.step(view(nodes=[node(sent=NOW - 31)], answers={"u0": says("b-0")}))
    assert len(due.calls) == 1


def test_an_invalid_task_is_reported_once_and_never_sent() -> None:
    first = tasks.step(view(template={"spec": {}}, answers={"u0": says()}))
    assert first.calls == ()
    assert reasons(first) == ["InvalidTaskTemplate"]
    assert first.counters == TaskCounters(pending=1)
    second = tasks.step(view(template={"spec": {}}, nodes=list(first.nodes.values()), answers={"u0": says()}))
    assert second.events == ()


@pytest.mark.parametrize("pooled", [True, False])
def test_an_invalid_task_stays_pending_with_its_reason_however_silent_its_pod_is(pooled: bool) -> None:
    patches = [{}, {"spec": {"process": None}}]
    nodes: list[Node] = []
    told: list[str] = []
    for _ in range(5):
        answers = {"u0": says("b-0"), "u1": SILENCE}
        step = tasks.step(view(2, patches=patches, pooled=pooled, nodes=nodes, answers=answers))
        nodes = list(step.nodes.values())
        told += reasons(step)
    assert told == ["InvalidTaskTemplate"]
    assert step.counters == TaskCounters(running=1, pending=1)
    assert nodes[1].error.startswith("invalid task: ")


def test_a_bad_patch_does_not_stop_the_other_tasks() -> None:
    step = tasks.step(view(2, patches=[{"spec": {"process": None}}], answers={"u0": says(), "u1": says()}))
    assert [c.pod for c in step.calls] == ["p1"]


def test_a_changed_template_is_reported_once_and_leaves_the_running_task_alone() -> None:
    first = tasks.step(view(nodes=[node()], answers={"u0": says("b-0")}))
    other = {"spec": {"process": {"command": ["other"]}}}
    second = tasks.step(view(nodes=list(first.nodes.values()), template=other, answers={"u0": says("b-0")}))
    assert reasons(second) == ["TaskTemplateChangeIgnored"]
    assert second.calls == ()
    third = tasks.step(view(nodes=list(second.nodes.values()), template=other, answers={"u0": says("b-0")}))
    assert third.events == ()


# -- recovery --------------------------------------------------------------------------------------------


def test_after_a_loss_of_memory_a_running_task_is_found_and_not_started_again() -> None:
    step = tasks.step(view(answers={"u0": says("b-0")}))
    assert step.nodes[0].pod_uid == "u0"
    assert step.nodes[0].state == RUNNING
    assert step.counters == TaskCounters(running=1)


def test_a_task_stays_where_it_runs_and_the_displaced_one_takes_the_other_pod() -> None:
    """A reference controller assigned task 1 to the pod of slot 0."""
    step = tasks.step(view(2, answers={"u0": says("b-1"), "u1": says()}))
    assert step.nodes[1].pod_uid == "u0"
    assert step.nodes[0].pod_uid == "u1"
    assert [(c.pod, c.task and c.task["name"]) for c in step.calls if c.index == 0] == [("p1", "b-0")]
    assert not [c for c in step.calls if c.pod == "p0" and c.task and c.task["name"] != "b-1"]


def test_while_one_pod_is_silent_no_task_is_displaced_onto_a_pod_that_runs_another() -> None:
    step = tasks.step(view(2, answers={"u0": says("b-1"), "u1": SILENCE}))
    assert step.nodes[0].resource == PENDING
    assert all(c.index == 1 for c in step.calls)


def test_a_persisted_result_is_not_run_again_after_a_loss_of_memory() -> None:
    step = tasks.step(view(results=Results(ok=frozenset({0})), answers={"u0": says()}))
    assert step.calls == ()
    assert step.counters == TaskCounters(succeed=1)


def test_a_released_result_needs_no_pod_and_asks_nobody_after_a_loss_of_memory() -> None:
    seen = view(pods=[], release=True, results=Results(failed={0: (3, "Failed")}))
    assert asks(seen) == ()
    step = tasks.step(seen)
    assert step.calls == ()
    assert step.counters == TaskCounters(failed=1)
    assert step.nodes[0].resource == RELEASED


# -- observing -------------------------------------------------------------------------------------------


def test_a_final_result_is_latched_with_its_details() -> None:
    step = tasks.step(view(nodes=[node()], answers={"u0": says(ended("b-0", 137, "TaskTimeout"))}))
    done = step.nodes[0]
    assert (done.resource, done.state, done.exit_code, done.reason) == (COMPLETED, FAILED, 137, "TaskTimeout")
    assert step.counters == TaskCounters(failed=1)


@pytest.mark.parametrize(
    "answer",
    [says("b-0"), says(), SILENCE, says(ended("b-0", 9))],
    ids=["running", "gone", "silent", "other"],
)
def test_nothing_changes_a_result_once_it_is_final(answer: Answer) -> None:
    done = node(resource=COMPLETED, state=SUCCEED)
    step = tasks.step(view(nodes=[done], answers={"u0": answer}))
    assert step.nodes[0].state == SUCCEED
    assert step.calls == ()


def test_settled_tasks_are_not_asked_and_looked_at_every_thirty_seconds() -> None:
    seen = view(nodes=[node(resource=COMPLETED, state=SUCCEED)])
    assert asks(seen) == ()
    assert tasks.step(seen).again == 30


def test_running_tasks_are_asked_every_three_seconds() -> None:
    seen = view(nodes=[node()], answers={"u0": says("b-0")})
    assert asks(seen) == ("u0",)
    assert tasks.step(seen).again == 3


def test_an_assigned_task_that_was_never_seen_counts_as_unknown() -> None:
    never = node(state="", started=False, fails=1, error="x")
    step = tasks.step(view(nodes=[never], answers={"u0": BROKEN}))
    assert step.counters == TaskCounters(unknown=1)


def test_an_executor_that_never_answers_makes_its_task_unknown_and_is_reported_once() -> None:
    nodes: list[Node] = []
    told: list[str] = []
    for _ in range(5):
        step = tasks.step(view(nodes=nodes, answers={"u0": SILENCE}))
        nodes = list(step.nodes.values())
        told += reasons(step)
    assert step.counters == TaskCounters(unknown=1)
    assert told == ["TaskExecutorUnreachable"]


def test_a_silent_executor_is_asked_ever_more_rarely() -> None:
    quiet = node(fails=6, asked=NOW - 20)
    assert asks(view(nodes=[quiet])) == ()
    assert asks(view(nodes=[change(quiet, asked=NOW - 31)])) == ("u0",)


def test_the_longest_unasked_pods_come_first() -> None:
    nodes = [node(0, asked=NOW - 1), node(1, asked=NOW - 9), node(2, asked=NOW - 5)]
    assert asks(view(3, nodes=nodes)) == ("u1", "u2", "u0")


def test_a_task_that_vanished_is_started_again_counted_and_told() -> None:
    step = tasks.step(view(nodes=[node()], answers={"u0": says()}))
    assert step.nodes[0].restarts == 1
    assert len(step.calls) == 1
    assert reasons(step) == ["TaskRestarted"]


def test_a_task_that_keeps_vanishing_is_started_ever_more_slowly() -> None:
    waits = []
    for restarts in (1, 2, 3, 20):
        step = tasks.step(view(nodes=[node(restarts=restarts)], answers={"u0": says()}))
        assert step.calls == ()
        waits.append(step.nodes[0].hold_until - NOW)
    assert waits == [6, 12, 24, 300]


def test_the_sum_of_the_counters_is_always_the_number_of_tasks() -> None:
    nodes = [
        node(0),
        node(1, state=""),
        node(2, state=UNKNOWN),
        node(3, resource=COMPLETED, state=SUCCEED),
        Node(index=4),
        Node(index=5, fails=9),
        node(6, resource=RELEASED, state=FAILED, why=BY_RESULT),
    ]
    counted = tasks.step(view(8, nodes=nodes)).counters
    assert sum(counted.status().values()) == 8
    assert counted == TaskCounters(running=1, succeed=1, failed=1, unknown=3, pending=2)


# -- pods that change ------------------------------------------------------------------------------------


def test_a_replaced_pod_gets_the_task_that_was_running_and_it_is_told() -> None:
    step = tasks.step(view(pods=[pod(0, uid="new")], nodes=[node()], answers={"new": says()}))
    assert step.nodes[0].pod_uid == "new"
    assert len(step.calls) == 1
    assert reasons(step) == ["TaskRestarted"]
    assert step.nodes[0].restarts == 1


def test_the_result_of_a_finished_task_outlives_its_pod_and_is_made_durable() -> None:
    done = node(resource=COMPLETED, state=SUCCEED)
    step = tasks.step(view(pods=[pod(0, uid="new")], nodes=[done], answers={"new": says()}))
    assert step.calls == ()
    assert step.counters == TaskCounters(succeed=1)
    assert step.results is not None
    assert step.results.ok == {0}


def test_a_new_address_of_the_same_pod_is_followed() -> None:
    step = tasks.step(view(pods=[pod(0, ip="10.9.9.9")], nodes=[node(sent=0)], answers={"u0": says("b-0")}))
    assert step.nodes[0].ip == "10.9.9.9"
    assert [c.ip for c in step.calls] == ["10.9.9.9"]


def test_a_terminating_pod_gets_nothing_started_any_more() -> None:
    step = tasks.step(view(pods=[pod(0, usable=False)], nodes=[node()], answers={"u0": says()}))
    assert step.calls == ()


# -- foreign tasks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "index"),
    [("b-0", 0), ("b-17", 17), ("b-1-0", None), ("c-0", None), ("b-", None), ("b-01", None), ("b", None)],
)
def test_only_exact_names_are_ours(name: str, index: int | None) -> None:
    assert index_of("b", name) == index


@pytest.mark.parametrize("index", [0, 9, 10, 1499])
def test_the_longest_sandbox_name_gives_names_that_a_file_system_takes_and_that_are_ours(index: int) -> None:
    box = "x" * 253
    name = task_name(box, index)
    assert len(name) <= 255
    assert index_of(box, name) == index
    assert index_of("y" * 253, name) is None
    assert name == f"{box}-{index}" or index > 9


def test_a_pool_pod_with_a_foreign_task_is_replaced_and_nothing_is_posted_to_it() -> None:
    step = tasks.step(view(answers={"u0": says("other-0")}))
    assert step.calls == ()
    assert reasons(step) == ["PodNotClean"]
    assert [(d.name, d.uid) for d in step.delete] == [("p0", "u0")]


def test_the_slot_of_an_unclean_pod_is_opened_for_another_one() -> None:
    assert tasks.step(view(answers={"u0": says("other-0")})).reopen == ("p0",)


def test_a_foreign_task_that_took_the_place_of_ours_is_named() -> None:
    step = tasks.step(view(pooled=False, nodes=[node()], answers={"u0": says("stranger-0")}))
    assert reasons(step) == ["TaskRestarted"]
    assert "runs [stranger-0] instead of task b-0" in step.events[0].message


def test_in_a_pod_of_its_own_the_sandbox_replaces_a_foreign_task() -> None:
    step = tasks.step(view(pooled=False, answers={"u0": says("other-0")}))
    assert len(step.calls) == 1
    assert step.delete == ()


def test_the_observation_is_chosen_by_name_among_several() -> None:
    step = tasks.step(view(nodes=[node()], answers={"u0": says(ended("other-0"), "b-0")}))
    assert step.nodes[0].state == RUNNING


def test_a_pending_task_forgets_an_executor_that_was_asked_in_vain_when_its_pod_is_gone() -> None:
    silent = Node(index=0, pod="p9", fails=3, error="recovering: refused")
    step = tasks.step(view(pods=[], nodes=[silent]))
    assert step.nodes[0] == Node(index=0)
    assert step.counters == TaskCounters(pending=1)
