"""Stopping tasks: results, release, deletion, deadlines, pause and scale-in."""

from __future__ import annotations

from dataclasses import replace as change_view
from typing import Any

import pytest

from osb.decide import tasks
from osb.decide.taskasks import asks
from osb.decide.tasknode import (
    BY_DELETE,
    BY_PAUSE,
    BY_RESULT,
    COMPLETED,
    RELEASED,
    RELEASING,
    SUCCEED,
    Node,
    TaskCounters,
)
from osb.decide.taskresults import Results
from osb.decide.taskview import DELETE, HOLD, PAUSE, TaskPod
from tests.doubles.taskviews import (
    BROKEN,
    NOW,
    SILENCE,
    change_answers,
    ended,
    node,
    pod,
    reasons,
    says,
    view,
)

# -- release by result -----------------------------------------------------------------------------------


def test_under_release_a_result_is_durable_before_the_executor_is_cleared() -> None:
    step = tasks.step(view(release=True, nodes=[node()], answers={"u0": says(ended("b-0"))}))
    assert step.nodes[0].resource == RELEASING
    assert step.results is not None
    assert [(c.task, c.needs_results) for c in step.calls] == [(None, True)]
    assert step.give == ()


def test_a_pod_is_given_back_only_after_its_executor_answered_without_the_task() -> None:
    going = node(resource=RELEASING, state=SUCCEED, why=BY_RESULT, stop_since=NOW - 3)
    known = Results(ok=frozenset({0}))
    for answer in (SILENCE, BROKEN, says(ended("b-0"))):
        held = tasks.step(view(release=True, nodes=[going], results=known, answers={"u0": answer}))
        assert held.nodes[0].resource == RELEASING
        assert held.give == ()
    gone = tasks.step(view(release=True, nodes=[going], results=known, answers={"u0": says()}))
    assert gone.nodes[0].resource == RELEASED
    assert (gone.give, gone.force) == (("p0",), ())
    assert gone.counters == TaskCounters(succeed=1)


def test_a_released_task_is_never_called_again_whatever_its_old_pod_runs() -> None:
    over = node(resource=RELEASED, state=SUCCEED, why=BY_RESULT, pod_uid="", ip="")
    seen = view(release=True, nodes=[over], results=Results(ok=frozenset({0})), given=frozenset({"p0"}))
    assert asks(seen) == ()
    step = tasks.step(change_answers(seen, {"u0": says("other-0")}))
    assert (step.calls, step.give, step.events) == ((), (), ())
    assert step.nodes[0] == over
    assert step.again is None


def test_the_release_policy_is_read_in_every_pass() -> None:
    done = node(resource=COMPLETED, state=SUCCEED)
    assert tasks.step(view(nodes=[done])).nodes[0].resource == COMPLETED
    assert tasks.step(view(nodes=[done], release=True)).nodes[0].resource == RELEASING


def test_an_owned_pod_whose_task_is_over_is_deleted_under_release() -> None:
    over = node(resource=RELEASED, state=SUCCEED, why=BY_RESULT, pod_uid="", ip="")
    step = tasks.step(view(pooled=False, release=True, nodes=[over], results=Results(ok=frozenset({0}))))
    assert [(d.name, d.uid) for d in step.delete] == [("p0", "u0")]
    assert step.give == ()


def test_a_name_that_is_not_in_the_record_is_never_given_back() -> None:
    over = node(resource=RELEASED, state=SUCCEED, why=BY_RESULT, pod_uid="", ip="")
    step = tasks.step(view(release=True, nodes=[over], recorded=frozenset(), results=Results(ok=frozenset({0}))))
    assert step.give == ()


def test_nothing_is_given_back_twice() -> None:
    over = node(resource=RELEASED, state=SUCCEED, why=BY_RESULT, pod_uid="", ip="")
    known = Results(ok=frozenset({0}))
    step = tasks.step(view(release=True, nodes=[over], given=frozenset({"p0"}), results=known))
    assert step.give == ()


# -- deletion --------------------------------------------------------------------------------------------


def test_a_task_that_was_never_started_is_over_at_once_when_the_sandbox_is_deleted() -> None:
    seen = view(intent=DELETE, nodes=[Node(index=0)])
    assert asks(seen) == ()
    step = tasks.step(seen)
    assert step.finished
    assert step.calls == ()


def test_a_running_task_is_cleared_on_deletion() -> None:
    step = tasks.step(view(intent=DELETE, nodes=[node()], answers={"u0": says("b-0")}))
    assert step.nodes[0].resource == RELEASING
    assert [c.task for c in step.calls] == [None]
    assert not step.finished
    assert step.again == 1


def test_deletion_without_memory_asks_the_pods_and_ignores_the_spec() -> None:
    seen = view(intent=DELETE, template={"spec": "nonsense"}, tasks={})
    assert asks(seen) == ("u0",)
    running = tasks.step(change_answers(seen, {"u0": says("b-0")}))
    assert [c.task for c in running.calls] == [None]
    clean = tasks.step(change_answers(seen, {"u0": says()}))
    assert clean.finished


def test_a_failed_question_does_not_end_a_deletion() -> None:
    step = tasks.step(view(intent=DELETE, nodes=[node()], answers={"u0": SILENCE}))
    assert not step.finished
    assert step.nodes[0].resource == RELEASING


@pytest.mark.parametrize(
    "pods",
    [[], [pod(0, uid="another")], [pod(0, usable=False, over=True)]],
    ids=["gone", "replaced", "terminal"],
)
def test_a_pod_that_is_gone_replaced_or_terminal_ends_the_stop(pods: list[TaskPod]) -> None:
    going = node(resource=RELEASING, why=BY_DELETE, stop_since=NOW - 1)
    step = tasks.step(view(intent=DELETE, pods=pods, nodes=[going]))
    assert step.finished


def test_an_absent_task_right_after_a_start_is_confirmed_by_a_second_look() -> None:
    """The start may still be on its way to the executor."""
    first = tasks.step(view(intent=DELETE, nodes=[node(tried=NOW - 1)], answers={"u0": says()}))
    assert not first.finished
    second = tasks.step(view(intent=DELETE, nodes=list(first.nodes.values()), answers={"u0": says()}))
    assert second.finished


def test_a_deleted_sandbox_gives_its_pods_back_as_they_become_free() -> None:
    nodes = [
        node(0, resource=RELEASING, why=BY_DELETE, stop_since=NOW - 3),
        node(1, resource=RELEASING, why=BY_DELETE, stop_since=NOW - 3),
    ]
    step = tasks.step(view(2, intent=DELETE, nodes=nodes, answers={"u0": says(), "u1": says("b-1")}))
    assert step.give == ("p0",)
    assert not step.finished


def test_nothing_is_ever_started_in_a_sandbox_that_goes_away() -> None:
    for intent in (DELETE, PAUSE):
        for memory in ([], [Node(index=0)], [node(state="", started=False)]):
            step = tasks.step(view(intent=intent, nodes=memory, answers={"u0": says()}))
            assert all(call.task is None for call in step.calls)


# -- stop deadlines --------------------------------------------------------------------------------------


def stopping(*, since: float, **changes: Any) -> Node:
    return node(**({"resource": RELEASING, "why": BY_DELETE, "stop_since": NOW - since} | changes))


def test_an_executor_that_answers_has_sixty_seconds() -> None:
    before = tasks.step(view(intent=DELETE, nodes=[stopping(since=59)], answers={"u0": says("b-0")}))
    assert before.nodes[0].resource == RELEASING
    late = view(intent=DELETE, nodes=[stopping(since=60)])
    assert asks(late) == ()
    after = tasks.step(late)
    assert after.finished
    assert (after.give, after.force) == (("p0",), ("p0",))
    assert reasons(after) == ["TaskStopTimeout"]


def test_a_silent_executor_has_eight_seconds() -> None:
    early = stopping(since=7, fails=2, heard=NOW - 20)
    assert not tasks.step(view(intent=DELETE, nodes=[early])).finished
    late = stopping(since=8, fails=2, heard=NOW - 20)
    step = tasks.step(view(intent=DELETE, nodes=[late]))
    assert step.finished
    assert step.force == ("p0",)


def test_an_executor_that_answers_with_errors_is_not_silent() -> None:
    broken = stopping(since=20, fails=5, heard=NOW - 1)
    step = tasks.step(view(intent=DELETE, nodes=[broken], answers={"u0": BROKEN}))
    assert step.nodes[0].resource == RELEASING
    assert [c.task for c in step.calls] == [None]


def test_a_pod_that_was_not_reached_for_want_of_budget_is_not_silent() -> None:
    step = tasks.step(view(intent=DELETE, nodes=[stopping(since=20, fails=0, heard=NOW - 30)]))
    assert step.nodes[0].resource == RELEASING


def test_an_owned_pod_past_the_deadline_is_deleted() -> None:
    step = tasks.step(view(intent=DELETE, pooled=False, nodes=[stopping(since=60)]))
    assert [(d.name, d.uid) for d in step.delete] == [("p0", "u0")]
    assert (step.give, step.finished) == ((), True)


# -- pause -----------------------------------------------------------------------------------------------


def test_a_pause_stops_tasks_and_never_gives_a_pod_back() -> None:
    first = tasks.step(view(intent=PAUSE, nodes=[node()], answers={"u0": says("b-0")}))
    assert [c.task for c in first.calls] == [None]
    second = tasks.step(view(intent=PAUSE, nodes=list(first.nodes.values()), answers={"u0": says()}))
    assert second.nodes[0].resource == RELEASED
    assert second.give == ()
    assert tasks.all_stopped(second.nodes.values(), 1)
    assert not second.finished


def test_a_stubborn_task_does_not_hold_up_a_pause_for_ever() -> None:
    late = stopping(since=60, why=BY_PAUSE)
    step = tasks.step(view(intent=PAUSE, nodes=[late]))
    assert tasks.all_stopped(step.nodes.values(), 1)
    assert (step.give, step.force, step.delete) == ((), (), ())
    assert reasons(step) == ["TaskStopTimeout"]


def test_the_exit_of_a_task_that_a_pause_stopped_is_no_result() -> None:
    going = stopping(since=1, why=BY_PAUSE)
    step = tasks.step(view(intent=PAUSE, nodes=[going], answers={"u0": says(ended("b-0", 143))}))
    assert not step.nodes[0].final


def test_results_are_durable_before_a_pause_clears_the_executor() -> None:
    done = node(resource=COMPLETED, state=SUCCEED)
    step = tasks.step(view(intent=PAUSE, nodes=[done], answers={"u0": says(ended("b-0"))}))
    assert step.results is not None
    assert [c.needs_results for c in step.calls] == [True]


def test_after_a_failed_pause_tasks_start_again_and_no_pod_is_given_back() -> None:
    over = node(resource=RELEASED, why=BY_PAUSE, pod_uid="", ip="")
    step = tasks.step(view(release=True, nodes=[over], answers={"u0": says()}))
    assert len(step.calls) == 1
    assert step.give == ()


def test_after_a_pause_a_finished_task_is_not_run_again() -> None:
    over = node(resource=RELEASED, state=SUCCEED, why=BY_PAUSE, pod_uid="", ip="")
    step = tasks.step(view(nodes=[over], results=Results(ok=frozenset({0})), answers={"u0": says()}))
    assert step.calls == ()
    assert step.nodes[0].resource == COMPLETED


def test_a_resumed_sandbox_starts_what_was_running_on_its_new_pod() -> None:
    seen = view(
        2,
        pods=[pod(0, uid="n0"), pod(1, uid="n1")],
        results=Results(ok=frozenset({0})),
        answers={"n0": says(), "n1": says()},
    )
    assert [c.index for c in tasks.step(seen).calls] == [1]


def test_a_paused_sandbox_makes_no_call_and_counts_only_results() -> None:
    step = tasks.step(view(2, intent=HOLD, nodes=[node(0)], results=Results(ok=frozenset({1}))))
    assert step.calls == ()
    assert step.nodes == {}
    assert step.counters == TaskCounters(succeed=1)
    assert step.again is None


# -- scale-in --------------------------------------------------------------------------------------------


def test_tasks_beyond_replicas_are_stopped_then_forgotten() -> None:
    pods = [pod(0), pod(1)]
    first = tasks.step(view(1, pods=pods, nodes=[node(0), node(1)], answers={"u0": says("b-0"), "u1": says("b-1")}))
    assert [(c.index, c.task) for c in first.calls] == [(1, None)]
    assert first.counters == TaskCounters(running=1)
    second = tasks.step(view(1, pods=pods, nodes=list(first.nodes.values()), answers={"u0": says("b-0"), "u1": says()}))
    assert set(second.nodes) == {0}
    assert second.give == ()


def test_a_cut_task_is_stopped_even_if_nobody_remembers_it() -> None:
    seen = view(1, pods=[pod(0), pod(1)], answers={"u0": says("b-0"), "u1": says("b-1")})
    assert [(c.index, c.task) for c in tasks.step(seen).calls if c.task is None] == [(1, None)]


def test_a_cut_task_that_does_not_stop_has_its_pod_recycled_by_deletion() -> None:
    stubborn = node(1, resource=RELEASING, why="scale-in", stop_since=NOW - 60)
    pods = [pod(0), pod(1)]
    step = tasks.step(view(1, pods=pods, nodes=[node(0), stubborn], answers={"u0": says("b-0")}))
    assert (step.give, step.force) == (("p1",), ("p1",))
    later = tasks.step(
        view(
            1,
            pods=[pod(0)],
            nodes=list(step.nodes.values()),
            given=frozenset({"p1"}),
            answers={"u0": says("b-0")},
        )
    )
    assert set(later.nodes) == {0}


def test_a_cut_result_leaves_the_object_and_the_index_runs_anew_when_it_comes_back() -> None:
    known = Results(ok=frozenset({0, 1}))
    seen = view(1, pods=[pod(0), pod(1)], results=known, answers={"u0": says(ended("b-0")), "u1": says(ended("b-1"))})
    cut = tasks.step(seen)
    assert cut.results == Results(ok=frozenset({0}))
    back = tasks.step(view(2, results=Results(ok=frozenset({0})), answers={"u0": says(ended("b-0")), "u1": says()}))
    assert [(c.index, c.pod) for c in back.calls] == [(1, "p1")]


def test_a_pooled_result_leaves_with_its_slot_of_the_record() -> None:
    known = Results(ok=frozenset({0, 1}))
    held = {"results": known, "answers": {"u0": says(ended("b-0"))}}
    waits = tasks.step(view(1, slots=2, **held))
    assert (waits.results, waits.again) == (None, 3)
    assert tasks.step(view(1, slots=1, **held)).results == Results(ok=frozenset({0}))


@pytest.mark.parametrize("final", [True, False])
def test_an_index_that_comes_back_while_it_is_stopped_runs_anew(final: bool) -> None:
    state = SUCCEED if final else "RUNNING"
    stopping = node(1, resource=RELEASING, why="scale-in", state=state, stop_since=NOW - 3)
    step = tasks.step(view(2, nodes=[node(0), stopping], answers={"u0": says("b-0"), "u1": says()}))
    assert step.results is None
    assert step.nodes[1] == Node(index=1)
    assert step.counters == TaskCounters(running=1, pending=1)


# -- slots that are not filled again -------------------------------------------------------------------------


def test_a_task_whose_slot_is_given_up_with_its_pod_has_failed_and_is_not_said_to_start_again() -> None:
    # Given a running task whose pod is gone
    nodes = [node(0), node(1)]
    gone = view(2, pods=[pod(0)], nodes=nodes, doomed=frozenset({0, 1}), answers={"u0": says("b-0")})
    step = tasks.step(gone)
    # Then nothing is said or final before the loss is on the object
    assert (step.events, step.results, step.again) == ((), None, 3)
    # When it is
    final = tasks.step(change_view(gone, nodes=step.nodes, lost=frozenset({1})))
    # Then it has failed, for good
    assert final.events == ()
    assert final.results == Results(failed={1: (137, "PodLost")})
    assert final.counters == TaskCounters(running=1, failed=1)


@pytest.mark.parametrize("pooled", [True, False])
def test_a_lost_slot_is_not_given_back(pooled: bool) -> None:
    lost = view(
        2, pods=[pod(0)], pooled=pooled, release=True, lost=frozenset({1}), doomed=frozenset({0, 1}),
        nodes=[node(0), node(1)], recorded=frozenset({"p0", "p1"}), answers={"u0": says("b-0")},
    )  # fmt: skip
    step = tasks.step(lost)
    assert (step.give, step.results) == ((), Results(failed={1: (137, "PodLost")}))


def test_a_slot_given_back_is_remembered_before_its_pod_is_deleted_whatever_the_policy_becomes() -> None:
    over = node(0, resource=RELEASING, state=SUCCEED, why=BY_RESULT, stop_since=NOW - 3)
    known = Results(ok=frozenset({0}))
    step = tasks.step(view(release=True, pooled=False, nodes=[over], results=known, answers={"u0": says()}))
    assert step.results == Results(ok=frozenset({0}), back=frozenset({0}))
    assert [p.name for p in step.delete] == ["p0"]


def test_a_pod_whose_finished_task_was_forgotten_is_given_back_when_it_has_answered() -> None:
    """Under Retain it stayed; Redis was lost; the policy became Release."""
    known = Results(ok=frozenset({0}))
    silent = tasks.step(view(release=True, results=known, answers={"u0": SILENCE}))
    assert (silent.give, silent.nodes[0].resource) == ((), COMPLETED)
    told = tasks.step(view(release=True, results=known, answers={"u0": says()}))
    later = tasks.step(view(release=True, results=known, nodes=list(told.nodes.values()), answers={"u0": says()}))
    assert (*told.give, *later.give) == ("p0",)


def test_a_pod_that_runs_another_of_our_tasks_is_not_cleared_for_a_finished_one() -> None:
    known = Results(ok=frozenset({1}))
    seen = view(2, release=True, pods=[pod(1)], results=known, answers={"u1": says("b-0")})
    step = tasks.step(seen)
    assert step.nodes[0].pod_uid == "u1"
    assert not [call for call in step.calls if call.task is None]
