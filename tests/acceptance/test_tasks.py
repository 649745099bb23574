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
