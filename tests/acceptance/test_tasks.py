"""Tasks with real executors: started where their slots are, collected, stopped, and their pods given back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from osb.api import names
from tests.doubles.cluster import Obj, Space, condition, note, record, template
from tests.doubles.controller import Controller
from tests.doubles.executors import MARK, Executors, executors

COUNTERS = ("taskRunning", "taskSucceed", "taskFailed", "taskUnknown", "taskPending")


@pytest.fixture
def runs(space: Space, tmp_path: Path) -> Iterator[Executors]:
    with executors(space, tmp_path) as one:
        yield one


def with_executor(kind: str, **marks: str) -> Obj:
    """A pod template whose pods have an executor of that kind."""
    return template(annotations={MARK: kind}, marks=marks)


def task(process: Mapping[str, Any], **more: Any) -> Obj:
    return {"spec": {"process": dict(process), **more}}


def counts(box: Obj) -> tuple[int, ...]:
    """running, succeeded, failed, unknown, pending."""
    status = box.get("status") or {}
    return tuple(status.get(name, -1) for name in COUNTERS)


def said(box: Obj, kind: str) -> str:
    """The message of a condition, "" while there is none."""
    return str((condition(box, kind) or {}).get("message", ""))


def results(box: Obj) -> str:
    """The indexes that succeeded."""
    return str((note(box, names.TASK_RESULTS) or {}).get("ok", ""))


def slots(box: Obj) -> int:
    """Pods that the sandbox shows, or that its record names."""
    return max(len(record(box)), int(box["status"]["replicas"]))


def given_back(box: Obj) -> int:
    """Pods that were asked to go back to the pool."""
    return len((note(box, names.ALLOC_RELEASE) or {}).get("pods", []))


def fake(seconds: float = 3600, code: int = 0, **env: str) -> Obj:
    """A pretended process: runs so long, then ends with that code."""
    told = {"OSB_FAKE_EXIT": str(code), "OSB_FAKE_SECONDS": str(seconds), **env}
    return {"command": ["work"], "env": [{"name": k, "value": v} for k, v in told.items()]}


def test_five_different_tasks_run_on_a_warm_pool_and_give_their_pods_back_one_by_one(
    space: Space, runs: Executors
) -> None:
    # Given a warm pool with real executors
    space.warm("warm", 5, 6, 0, 12, template=with_executor("real"))
    ends = ["true", runs.gate("first"), "exit 3", "sleep 60", runs.gate("second")]
    # When a batch of five asks, each with a task of its own
    space.box(
        "sweep", 5, taskTemplate=task(runs.shell("unpatched")), taskResourcePolicyWhenCompleted="Release",
        shardTaskPatches=[
            {"spec": {"process": runs.shell(f"sweep-{i}", then), **({"timeoutSeconds": 1} if i == 3 else {})}}
            for i, then in enumerate(ends)
        ],
    )  # fmt: skip
    # Then results come in one by one, and the pods go back with them
    space.until_box("sweep", lambda b: counts(b)[:3] == (2, 1, 2) and given_back(b) == 3)
    runs.open("first")
    space.until_box("sweep", lambda b: counts(b)[:3] == (1, 2, 2) and given_back(b) == 4)
    runs.open("second")
    done = space.until_box("sweep", lambda b: counts(b) == (0, 3, 2, 0, 0))
    back = [given_back(s.obj) for s in space.history("batchsandbox")]
    assert back == sorted(back)
    space.until_box("sweep", lambda b: b["status"]["replicas"] == 0)
    space.until_pool("warm", lambda p: p["status"]["allocated"] == 0)
    assert [runs.ran(f"sweep-{i}") for i in range(5)] == [1, 1, 1, 1, 1]
    assert runs.ran("unpatched") == 0
    results = note(space.live("batchsandbox", "sweep"), names.TASK_RESULTS)
    assert results["ok"] == "0-1,4" and results["failed"]["2"][0] == 3 and results["failed"]["3"][1] == "TaskTimeout"
    # And the sandbox goes without waiting for anything
    space.delete("batchsandbox", done["metadata"]["name"])
    space.gone("batchsandbox")


def test_a_task_starts_with_its_pods_allocation_not_at_the_next_poll(space: Space, runs: Executors) -> None:
    space.warm("warm", 3, 4, 0, 9, template=with_executor("fake"))
    space.until("executors listen", lambda: len(runs.on) >= 3)
    space.box("quick", 3, taskTemplate=task(fake()))
    running = space.until_box("quick", lambda b: counts(b)[0] == 3)
    history = space.history("batchsandbox", "quick")
    allocated = next(s.at for s in history if len(record(s.obj)) == 3)
    shown = next(s.at for s in history if counts(s.obj)[0] == 3)
    assert shown - allocated < 2.5  # the first poll is three seconds away
    assert set(running["metadata"]["finalizers"]) == {names.FINALIZER_POOL, names.FINALIZER_TASKS}


def test_under_retain_pods_stay_with_their_results_until_deletion(space: Space, runs: Executors) -> None:
    space.warm("warm", 2, 3, 0, 6, template=with_executor("real"))
    space.box("keep", 2, taskTemplate=task(runs.shell("unpatched", "true")),
              shardTaskPatches=[{"spec": {"process": runs.shell(f"keep-{i}")}} for i in range(2)])  # fmt: skip
    box = space.until_box("keep", lambda b: counts(b) == (0, 2, 0, 0, 0))
    assert names.ALLOC_RELEASE not in box["metadata"]["annotations"]
    assert len(record(box)) == 2 and box["status"]["ready"] == 2
    space.delete("batchsandbox", "keep")
    space.gone("batchsandbox")
    assert [runs.ran(f"keep-{i}") for i in range(2)] == [1, 1]


def test_tasks_of_a_sandbox_without_a_pool_free_its_pods_one_by_one(space: Space, runs: Executors) -> None:
    space.box("own", 3, pool=None, template=with_executor("real"), taskResourcePolicyWhenCompleted="Release",
              taskTemplate=task(runs.shell("own", "sleep 2")),
              shardTaskPatches=[{"spec": {"process": {"args": ["-c", "true"]}}}])  # fmt: skip
    space.until_box("own", lambda b: counts(b) == (0, 3, 0, 0, 0))
    space.gone("pod")
    assert runs.ran("own") == 2
    space.delete("batchsandbox", "own")
    space.gone("batchsandbox")


def test_a_lost_pod_gets_its_task_again_and_a_finished_one_does_not(space: Space, runs: Executors) -> None:
    # Given one finished and one running task
    space.box("own", 2, pool=None, template=with_executor("fake"), taskTemplate=task(fake(0.2)),
              shardTaskPatches=[{}, {"spec": {"process": fake()}}])  # fmt: skip
    space.until_box("own", lambda b: counts(b) == (1, 1, 0, 0, 0))
    # When both pods are lost
    for pod in space.pods_of("own"):
        space.delete("pod", pod["metadata"]["name"], grace=0)
    # Then only the running one starts again
    space.until("restart is told", lambda: space.events("own", "TaskRestarted"))
    space.until("second start", lambda: runs.starts["own-1"] == 2)
    space.until_box("own", lambda b: counts(b) == (1, 1, 0, 0, 0) and b["status"]["ready"] == 2)
    assert runs.starts["own-0"] == 1


def test_executors_that_are_silent_or_cannot_stop_a_task_hold_a_deletion_for_a_bounded_time(
    space: Space, runs: Executors
) -> None:
    # Given a silent executor, and one whose task ignores every signal, in a pool that hands pods out as they are
    space.warm("silent", 1, 1, 0, 2, template=with_executor("hang"))
    space.warm("warm", 1, 1, 0, 3, template=with_executor("fake"), recycleStrategy={"type": "Noop"})
    space.box("mute", 1, pool="silent", taskTemplate=task(fake()))
    space.box("stubborn", 1, taskTemplate=task(fake(OSB_FAKE_STUBBORN="forever")))
    (pod,) = record(space.until_box("stubborn", lambda b: counts(b)[0] == 1))
    # When both are deleted
    space.delete("batchsandbox", "stubborn")
    space.until_box("mute", lambda b: counts(b)[3] == 1)
    space.delete("batchsandbox", "mute")
    # Then the first is gone after the eight seconds for a silent one, not the 13 of the stop timeout
    space.gone("batchsandbox", "mute", seconds=12)
    # and the other's pod is deleted after that
    space.gone("pod", pod)
    space.gone("batchsandbox")
    assert space.events("stubborn", "TaskStopTimeout")


def test_a_pod_with_a_strangers_task_is_replaced_and_never_written_to(space: Space, runs: Executors) -> None:
    first: list[str] = []

    def kind(pod: Obj) -> str:
        first.append(pod["metadata"]["uid"])
        return "foreign" if pod["metadata"]["uid"] == first[0] else "fake"

    runs.kind_of = kind
    space.warm("warm", 1, 1, 0, 4)
    space.box("clean", 1, taskTemplate=task(fake(0.1)))
    space.until_box("clean", lambda b: counts(b) == (0, 1, 0, 0, 0))
    assert space.events("clean", "PodNotClean")
    assert not space.events("clean", "PodLost")
    assert not [line for _, line in runs.requests if line.startswith("POST")]


def test_an_invalid_task_is_told_and_blocks_neither_the_others_nor_deletion(space: Space, runs: Executors) -> None:
    space.warm("warm", 2, 2, 0, 4, template=with_executor("fake"))
    space.box("odd", 2, taskTemplate=task(fake(0.1)), shardTaskPatches=[{"spec": {"process": None}}])
    space.until_box("odd", lambda b: counts(b) == (0, 1, 0, 0, 1))
    assert space.until("it is told", lambda: space.events("odd", "InvalidTaskTemplate"))
    space.delete("batchsandbox", "odd")
    space.gone("batchsandbox")


def test_losing_redis_neither_repeats_finished_tasks_nor_forgets_running_ones(
    space: Space, runs: Executors, controller: Controller
) -> None:
    space.warm("warm", 4, 4, 0, 8, template=with_executor("fake"))
    space.box("kept", 2, taskTemplate=task(fake(0.1)), taskResourcePolicyWhenCompleted="Release",
              shardTaskPatches=[{}, {"spec": {"process": fake(12)}}])  # fmt: skip
    space.until_box("kept", lambda b: counts(b) == (1, 1, 0, 0, 0) and b["status"]["replicas"] == 1)
    controller.redis.flushall()
    done = space.until_box("kept", lambda b: counts(b) == (0, 2, 0, 0, 0), seconds=60)
    assert dict(runs.starts) == {"kept-0": 1, "kept-1": 1}
    assert condition(done, "Quarantined") is None


@pytest.mark.parametrize("pool", ["warm", None], ids=["pooled", "own"])
def test_a_lost_task_under_fail_is_final_and_the_sandbox_says_what_became_of_each(
    space: Space, runs: Executors, pool: str | None
) -> None:
    # Given two tasks in a sandbox whose lost pods are not replaced
    source = {} if pool else {"template": with_executor("real")}
    if pool:
        space.warm("warm", 2, 2, 0, 4, template=with_executor("real"))
    space.box("lf", 2, pool=pool, lostPodPolicy="Fail", taskResourcePolicyWhenCompleted="Release",
              taskTemplate=task(runs.shell("lf", runs.gate("end"))), **source)  # fmt: skip
    box = space.until_box("lf", lambda b: counts(b)[0] == 2)
    name = record(box)[1] if pool else "lf-1"
    # When one pod is lost
    space.delete("pod", name, grace=0)
    # Then its task has failed, and the other one goes on
    space.until_box("lf", lambda b: counts(b) == (1, 0, 1, 0, 0))
    runs.open("end")
    space.until_box("lf", lambda b: counts(b) == (0, 1, 1, 0, 0))
    done = space.until_box("lf", lambda b: "1 of 2 slots given back, 1 lost" in said(b, "Ready"))
    assert done["status"]["phase"] == "Succeed" and condition(done, "PodFailed") is None
    assert "failed: task 1 (PodLost" in said(done, "Ready")
    assert f"slot 1 (pod {name}" in said(done, "PodLost")
    assert not space.events("lf", "TaskRestarted")
    assert runs.ran("lf") == 2


def test_a_result_under_retain_outlives_redis_and_the_data_of_its_executor(
    space: Space, runs: Executors, controller: Controller
) -> None:
    space.warm("warm", 1, 1, 0, 2, template=with_executor("fake"))
    space.box("once", 1, taskTemplate=task(fake(0.1, 7)))
    box = space.until_box("once", lambda b: counts(b) == (0, 0, 1, 0, 0))
    assert note(box, names.TASK_RESULTS) == {"v": 1, "failed": {"0": [7, "Failed"]}}
    assert "failed: task 0 (exit code 7, Failed)" in said(box, "Ready")
    # When the executor's container starts again without its data, and Redis is empty
    runs.forget(record(box)[0])
    controller.redis.flushall()
    # Then it is asked again, and the task is not started again
    asked = runs.polls
    space.until("the executor is asked again", lambda: runs.polls > asked, seconds=60)
    space.patch("batchsandbox", "once", {"spec": {"expireTime": "2099-01-01T00:00:00Z"}})
    space.until_box("once", lambda b: b["status"]["observedGeneration"] == b["metadata"]["generation"])
    assert counts(space.live("batchsandbox", "once")) == (0, 0, 1, 0, 0)
    assert dict(runs.starts) == {"once-0": 1}


@pytest.mark.parametrize("policy", ["Retain", "Release"])
@pytest.mark.parametrize("pool", ["warm", None], ids=["pooled", "own"])
def test_an_index_that_was_cut_runs_its_task_when_it_comes_back(
    space: Space, runs: Executors, pool: str | None, policy: str
) -> None:
    source = {} if pool else {"template": with_executor("fake")}
    if pool:
        space.warm("warm", 2, 3, 0, 6, template=with_executor("fake"))
    space.box("two", 2, pool=pool, taskTemplate=task(fake(0.1)), taskResourcePolicyWhenCompleted=policy, **source)
    space.until_box("two", lambda b: counts(b) == (0, 2, 0, 0, 0) and (policy == "Retain" or not b["status"]["ready"]))
    for times in (2, 3):
        space.patch("batchsandbox", "two", {"spec": {"replicas": 1}})
        space.until_box("two", lambda b: counts(b) == (0, 1, 0, 0, 0) and results(b) == "0" and slots(b) <= 1)
        space.patch("batchsandbox", "two", {"spec": {"replicas": 2}})
        space.until_box("two", lambda b: counts(b) == (0, 2, 0, 0, 0))
        assert runs.starts["two-0"] == 1 and runs.starts["two-1"] == times


@pytest.mark.parametrize("length", [251, 252, 253])
def test_the_longest_names_run_their_tasks_and_go(space: Space, runs: Executors, length: int) -> None:
    names_ = ["a" * length, "b" * length, "c" * length]
    space.warm("warm", 2, 2, 0, 4, template=with_executor("real"))
    space.box(names_[0], 2, taskTemplate=task(runs.shell("pooled")))
    space.box(names_[1], 11, pool=None, template=with_executor("fake"), taskTemplate=task(fake(0.1)))
    space.box(names_[2], 1, pool=None, template=template())
    space.until_box(names_[0], lambda b: counts(b) == (0, 2, 0, 0, 0))
    space.until_box(names_[1], lambda b: counts(b) == (0, 11, 0, 0, 0))
    space.served(names_[2])
    assert runs.ran("pooled") == 2
    for name in names_:
        space.delete("batchsandbox", name)
    space.gone("batchsandbox")


def test_a_slot_given_back_stays_given_back_when_the_policy_is_edited(space: Space, runs: Executors) -> None:
    space.box("own", 2, pool=None, template=with_executor("fake"), taskResourcePolicyWhenCompleted="Release",
              taskTemplate=task(fake(0.1)), shardTaskPatches=[{}, {"spec": {"process": fake()}}])  # fmt: skip
    space.until_box("own", lambda b: counts(b) == (1, 1, 0, 0, 0) and b["status"]["replicas"] == 1)
    made = [s.obj["metadata"]["uid"] for s in space.history("pod")]
    for policy in ("Retain", "Sometimes"):
        space.patch("batchsandbox", "own", {"spec": {"taskResourcePolicyWhenCompleted": policy}})
        seen = space.live("batchsandbox", "own")["metadata"]["generation"]
        box = space.until_box("own", lambda b, seen=seen: b["status"]["observedGeneration"] >= seen)  # type: ignore[misc]
        assert counts(box) == (1, 1, 0, 0, 0) and box["status"]["replicas"] == 1
    assert condition(box, "SpecInvalid") is not None
    assert {s.obj["metadata"]["uid"] for s in space.history("pod")} == set(made)


def test_an_executor_that_is_no_help_is_named_as_long_as_that_lasts(space: Space, runs: Executors) -> None:
    space.warm("warm", 1, 1, 0, 2, template=with_executor("garbage"))
    space.box("lame", 1, taskTemplate=task(fake()))
    box = space.until_box("lame", lambda b: counts(b)[3] == 1 and "trouble" in said(b, "Ready"))
    assert "task 0 has trouble with its executor: GET /getTasks" in said(box, "Ready")
