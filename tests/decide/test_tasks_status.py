"""Answers to calls, counters for the status, and reading an executor's task."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as change

from osb.api import batchsandbox
from osb.decide import tasks
from osb.decide.tasknode import (
    COMPLETED,
    FAILED,
    RELEASED,
    RUNNING,
    SUCCEED,
    UNKNOWN,
    Answer,
    Node,
    TaskCounters,
    observed,
)
from tests.doubles.taskviews import (
    BROKEN,
    NOW,
    SILENCE,
    TEMPLATE,
    ended,
    node,
    says,
    view,
)

# -- answers to calls ------------------------------------------------------------------------------------


def test_a_refused_start_is_tried_again_more_slowly() -> None:
    step = tasks.step(view(answers={"u0": says()}))
    nodes: dict[int, Node] = dict(step.nodes)
    waits = []
    for _ in range(6):
        nodes = tasks.settle("b", nodes, calls=step.calls, answers={0: BROKEN}, now=NOW)
        waits.append(nodes[0].hold_until - NOW)
    assert waits == [6, 12, 24, 48, 60, 60]
    assert tasks.step(view(nodes=list(nodes.values()), answers={"u0": says()})).calls == ()


def test_a_refusal_is_told_once_and_again_when_the_words_change() -> None:
    step = tasks.step(view(answers={"u0": says()}))
    nodes: dict[int, Node] = dict(step.nodes)
    told = []
    for words in ("no such folder", "no such folder", "busy"):
        answer = Answer(ok=False, error=f"status=500 {words}")
        after = tasks.settle("b", nodes, calls=step.calls, answers={0: answer}, now=NOW)
        told.append([(e.type, e.reason, e.message) for e in tasks.refused(nodes, after)])
        nodes = after
    start = "The executor in p0 does not take task 0: status=500"
    assert told == [
        [("Warning", "TaskRefused", f"{start} no such folder")],
        [],
        [("Warning", "TaskRefused", f"{start} busy")],
    ]


def test_silence_is_no_refusal() -> None:
    step = tasks.step(view(answers={"u0": says()}))
    after = tasks.settle("b", step.nodes, calls=step.calls, answers={0: SILENCE}, now=NOW)
    assert tasks.refused(step.nodes, after) == ()


def test_a_thousand_refusals_are_few_events_of_bounded_length() -> None:
    before = {i: node(i, told="") for i in range(1000)}
    after = {i: node(i, told="x", error="w" * 5000) for i in range(1000)}
    told = tasks.refused(before, after)
    assert len(told) == 5
    assert told[-1].message.endswith("(and 995 more tasks are refused)")
    assert max(len(e.message) for e in told) < 600


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize(("answer", "words"), [(BROKEN, "answer"), (SILENCE, "not answer")])
def test_an_executor_that_answered_is_never_said_not_to_answer(answer: Answer, words: str, bound: bool) -> None:
    known = node(fails=2) if bound else Node(index=0, fails=2)
    (event,) = tasks.step(view(nodes=[known], answers={"u0": answer})).events
    assert words in event.message
    assert ("not answer" in event.message) is (answer is SILENCE)


def test_a_start_that_ended_at_once_is_a_result() -> None:
    step = tasks.step(view(answers={"u0": says()}))
    nodes = tasks.settle("b", step.nodes, calls=step.calls, answers={0: says(ended("b-0"))}, now=NOW)
    assert (nodes[0].resource, nodes[0].state) == (COMPLETED, SUCCEED)


def test_a_call_that_was_not_made_changes_nothing() -> None:
    step = tasks.step(view(answers={"u0": says()}))
    assert tasks.settle("b", step.nodes, calls=step.calls, answers={}, now=NOW) == dict(step.nodes)


# -- for the sandbox's status ----------------------------------------------------------------------------


def box(**status: Any) -> batchsandbox.BoxSpec:
    raw = {
        "metadata": {"name": "b", "namespace": "ns", "annotations": status.pop("annotations", {})},
        "spec": {"replicas": 3, "taskTemplate": TEMPLATE, **status.pop("spec", {})},
        "status": status,
    }
    return batchsandbox.parse(raw)


def test_a_new_sandbox_counts_all_its_tasks_as_pending() -> None:
    assert tasks.counters([], box()) == TaskCounters(pending=3)


def test_a_paused_sandbox_counts_no_task_as_running_or_waiting() -> None:
    results = {"sandbox.opensandbox.io/task-results": '{"v":1,"ok":"0","failed":{"1":[2,""]}}'}
    paused = box(phase="Paused", annotations=results)
    assert tasks.counters([node(2)], paused) == TaskCounters(succeed=1, failed=1)


def test_the_summary_says_what_is_over_what_is_busy_and_whether_all_is_stopped() -> None:
    results = {"sandbox.opensandbox.io/task-results": '{"v":1,"ok":"0"}'}
    given = box(annotations=results, spec={"taskResourcePolicyWhenCompleted": "Release", "poolRef": "p"})
    nodes = [node(0, resource=RELEASED, state=SUCCEED, pod_uid=""), node(1), Node(index=2)]
    said = tasks.summary(nodes, given)
    assert said.counts == (1, 1, 0, 0, 1)
    assert said.done == {0}
    assert said.busy == {1}
    assert not said.stopped
    assert tasks.summary([change(n, resource=RELEASED) for n in nodes], given).stopped


def test_a_result_counts_when_it_is_on_the_object() -> None:
    over = node(0, resource="completed", state=SUCCEED)
    assert tasks.counters([over], box()) == TaskCounters(running=1, pending=2)
    known = {"sandbox.opensandbox.io/task-results": '{"v":1,"ok":"0"}'}
    assert tasks.counters([over], box(annotations=known)) == TaskCounters(succeed=1, pending=2)


@pytest.mark.parametrize("policy", ["Release", "Retain", "Sometimes"])
def test_a_slot_given_back_stays_given_back_whatever_the_policy_becomes(policy: str) -> None:
    known = {"sandbox.opensandbox.io/task-results": '{"v":1,"ok":"0","back":"0"}'}
    assert tasks.summary([], box(annotations=known, spec={"taskResourcePolicyWhenCompleted": policy})).done == {0}


def test_a_cut_pod_is_kept_until_its_result_has_left_the_object() -> None:
    known = {"sandbox.opensandbox.io/task-results": '{"v":1,"ok":"0-3"}'}
    assert tasks.summary([], box(annotations=known)).busy == {3}


def test_the_summary_names_failures_and_executors_in_trouble_in_few_words() -> None:
    failed = ",".join(f'"{i}":[{i},"Failed"]' for i in range(7))
    known = {"sandbox.opensandbox.io/task-results": f'{{"v":1,"failed":{{{failed},"7":[137,"PodLost"]}}}}'}
    stuck = [Node(index=i, resource="pending", pod=f"p{i}", fails=3, error="no answer " * 99) for i in (8, 9)]
    said = tasks.summary(stuck, box(annotations=known, spec={"replicas": 10}))
    assert said.failed.startswith("failed: task 0 (exit code 0, Failed), task 1 (exit code 1, Failed)")
    assert said.failed.endswith("task 4 (exit code 4, Failed) and 3 more")
    assert said.trouble.startswith("task 8 has trouble with its executor: no answer")
    assert said.trouble.endswith("(and 1 more)")
    assert len(said.trouble) < 300
    lost = {"sandbox.opensandbox.io/task-results": '{"v":1,"failed":{"1":[137,"PodLost"]}}'}
    assert tasks.summary([], box(annotations=lost)).failed == "failed: task 1 (PodLost: its pod was not replaced)"
    assert tasks.summary([node(0)], box()).trouble == ""


def test_counters_of_a_running_sandbox_after_a_loss_keep_results() -> None:
    results = {"sandbox.opensandbox.io/task-results": '{"v":1,"ok":"0-1"}'}
    assert tasks.counters([], box(annotations=results)) == TaskCounters(succeed=2, pending=1)


# -- reading an executor's task --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"processStatus": {"running": {"startedAt": "x"}}}, RUNNING),
        ({"processStatus": {"terminated": {"exitCode": 0}}}, SUCCEED),
        ({"processStatus": {"terminated": {"exitCode": 137}}}, FAILED),
        ({"processStatus": {"waiting": {"reason": "Pending"}}}, UNKNOWN),
        ({"processStatus": {}}, UNKNOWN),
        ({"podStatus": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}, RUNNING),
        ({"podStatus": {"phase": "Running"}}, UNKNOWN),
        ({"podStatus": {"phase": "Succeeded"}}, SUCCEED),
        ({"podStatus": {"phase": "Failed"}}, FAILED),
        ({}, UNKNOWN),
        ({"processStatus": {"terminated": {"exitCode": "0"}}}, UNKNOWN),
    ],
    ids=str,
)
def test_the_state_is_read_from_the_status(status: dict[str, Any], state: str) -> None:
    found = observed({"name": "b-0", **status})
    assert found is not None
    assert found.state == state


@pytest.mark.parametrize("raw", [{}, {"name": 3}, {"name": ""}], ids=str)
def test_an_element_without_a_name_is_no_task(raw: dict[str, Any]) -> None:
    assert observed(raw) is None
