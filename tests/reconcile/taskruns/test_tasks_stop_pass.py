"""The pass of the tasks' key: deletion, pause, refused writes, kills at each step, real executors."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from osb.api import names
from osb.apply.tasks import ExecutorClient
from osb.decide.tasknode import RELEASED
from osb.reconcile.contract import After, Done
from osb.sim import SimCluster
from osb.store.client import Store
from tests.doubles.taskworld import TaskWorld

Make = Callable[..., TaskWorld]
QUICK = {"spec": {"process": {"command": ["true"]}}}


# -- deletion ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "owned"])
def test_deletion_stops_tasks_gives_pods_back_and_removes_only_our_finalizer(make: Make, pooled: bool) -> None:
    world = make(replicas=2, pooled=pooled)
    world.run()
    world.delete()
    world.run(turn=1)
    outcome = world.run(turn=1)
    assert isinstance(outcome, Done)
    assert world.finalizers() == ["other/keep"]
    assert [world.bench.runs(world.ip(slot)) for slot in (0, 1)] == [[], []]
    if pooled:
        assert world.annotation(names.ALLOC_RELEASE) == {"pods": ["p0", "p1"]}
    else:
        assert world.annotation(names.ALLOC_RELEASE) is None
    assert world.nodes() == {}


def ends_within(world: TaskWorld, seconds: float) -> float:
    """Seconds from the deletion until the finalizer is gone, passes timed as their outcomes ask."""
    took = 0.0
    wait = 0.0
    while names.FINALIZER_TASKS in world.finalizers():
        assert took <= seconds, "not in time"
        outcome = world.run(turn=wait)
        world.sync()
        wait = outcome.seconds if isinstance(outcome, After) else 1.0
        took += wait
    return took


@pytest.mark.parametrize(
    ("trouble", "seconds"),
    [
        ("gone", 3),
        ("never started", 1),
        ("no memory", 3),
        ("silent", 10),
        ("errors", 65),
        ("stubborn", 65),
        ("terminal", 3),
    ],
)
@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "owned"])
def test_deletion_ends_whatever_the_executor_does(
    make: Make, store: Store, trouble: str, seconds: float, pooled: bool
) -> None:
    env = [{"name": "OSB_FAKE_STUBBORN", "value": "forever"}] if trouble == "stubborn" else []
    world = make(pooled=pooled, taskTemplate={"spec": {"process": {"command": ["serve"], "env": env}}})
    ip = world.ip(0)
    if trouble != "never started":
        world.run()
    world.delete()
    match trouble:
        case "gone":
            world.remove_pod(0)
        case "no memory":
            store.tasks.drop(world.box["metadata"]["uid"])
        case "silent":
            world.bench.silent.add(ip)
        case "errors":
            world.bench.broken.add(ip)
        case "terminal":
            world.kube.patch("pod", world.ns, world.name(0), {"status": {"phase": "Failed"}}, sub="status")
    world.sync()
    assert ends_within(world, seconds) <= seconds
    forced = {"silent", "errors", "stubborn"}
    if pooled and trouble in forced:
        assert world.annotation(names.ALLOC_RELEASE) == {"pods": ["p0"], "force": ["p0"]}
    if not pooled and trouble in forced:
        assert world.kube.all("pod", world.ns)[0] == []
    assert ("TaskStopTimeout" in world.told.reasons()) == (trouble in forced)


@pytest.mark.parametrize(
    "spec",
    [
        {"shardTaskPatches": [{"spec": {"process": None}}]},
        {"shardTaskPatches": [{"spec": {"process": {"env": [{"value": "x"}]}}}]},
        {"taskTemplate": {}},
    ],
    ids=str,
)
def test_an_invalid_spec_never_blocks_deletion(make: Make, spec: dict[str, Any]) -> None:
    world = make(**spec)
    world.run()
    assert world.bench.log == []
    world.delete()
    assert ends_within(world, 3) <= 3


def test_a_template_that_was_removed_does_not_leave_the_finalizer_behind(make: Make) -> None:
    world = make()
    world.run()
    world.patch({"spec": {"taskTemplate": None}})
    world.delete()
    assert ends_within(world, 5) <= 5
    assert world.bench.runs(world.ip(0)) == []


def test_deletion_of_a_paused_sandbox_needs_no_executor(make: Make) -> None:
    world = make()
    world.run()
    world.remove_pod(0)
    world.phase("Paused")
    world.delete()
    assert ends_within(world, 1) <= 1


def test_a_sandbox_that_vanishes_meanwhile_is_no_error(make: Make) -> None:
    world = make()
    world.run()
    world.delete()
    world.run(turn=1)
    world.patch({"metadata": {"finalizers": None, "resourceVersion": world.live()["metadata"]["resourceVersion"]}})  # type: ignore[index]
    assert world.live() is None
    assert isinstance(world.run(turn=1), Done)


# -- pause ------------------------------------------------------------------------------------------------------


def test_a_pause_stops_the_task_and_resume_runs_only_what_had_not_finished(make: Make) -> None:
    world = make(replicas=2, pooled=False, shardTaskPatches=[QUICK])
    world.run()
    world.run()
    world.phase("Pausing")
    world.run(turn=1)
    world.run(turn=1)
    assert {node.resource for node in world.nodes().values()} == {RELEASED}
    assert world.annotation(names.TASK_RESULTS) == {"v": 1, "ok": "0"}
    world.phase("Paused")
    assert isinstance(world.run(), Done)
    assert world.nodes() == {}
    for slot in (0, 1):
        world.remove_pod(slot)
        world.pod(slot, ip=f"10.1.7.{slot + 1}")
    calls = len(world.bench.log)
    world.phase("Resuming")
    world.run()
    assert world.bench.log[calls:] == [("10.1.7.2", ["b-1"])]


def test_a_failed_pause_starts_tasks_again_and_gives_no_pod_back(make: Make) -> None:
    world = make(taskResourcePolicyWhenCompleted="Release")
    world.run()
    world.phase("Pausing")
    world.run(turn=1)
    world.run(turn=1)
    world.phase("Succeed")
    world.run()
    assert world.bench.runs(world.ip(0)) == ["b-0"]
    assert world.annotation(names.ALLOC_RELEASE) is None


def test_without_memory_nothing_is_started_while_pausing(make: Make, store: Store) -> None:
    world = make()
    world.phase("Pausing")
    world.run()
    assert all(started == [] for _, started in world.bench.log)


# -- the API server ------------------------------------------------------------------------------------------------


def test_the_release_list_keeps_what_others_wrote_meanwhile(make: Make) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted="Release", replicas=2)
    world.run()
    world.run()
    world.annotate(**{names.ALLOC_RELEASE: '{"pods":["p1"]}', "user": "note"})
    world.run()
    world.run()
    assert world.annotation(names.ALLOC_RELEASE) == {"pods": ["p0", "p1"]}
    live = world.live()
    assert live is not None
    assert live["metadata"]["annotations"]["user"] == "note"


def test_a_pod_that_left_the_record_meanwhile_is_not_brought_back(make: Make) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted="Release")
    world.run()
    world.run()
    world.annotate(**{names.ALLOC_STATUS: '{"pods":["p9"],"poolRef":"warm"}'})
    world.run()
    assert world.annotation(names.ALLOC_RELEASE) is None


def test_a_release_that_cannot_be_written_is_told_and_tried_again(make: Make, simulated: SimCluster) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted="Release")
    world.run()
    world.run()
    simulated.add_fault(methods=["PATCH"], path="batchsandboxes", status=403)
    outcome = world.run()
    assert isinstance(outcome, After)
    assert world.told.reasons() == ["FailedRelease"]
    simulated.clear_faults()
    world.run()
    assert world.annotation(names.ALLOC_RELEASE) == {"pods": ["p0"]}


def test_results_that_cannot_be_written_keep_the_executor_uncleared(make: Make, simulated: SimCluster) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted="Release")
    simulated.add_fault(methods=["PATCH"], path="batchsandboxes", status=403)
    world.run()
    world.run()
    assert world.bench.runs(world.ip(0)) == ["b-0"]
    simulated.clear_faults()
    world.run()
    assert world.annotation(names.TASK_RESULTS) == {"v": 1, "ok": "0"}


# -- stopped between any two steps ------------------------------------------------------------------------------------


class Killed(Exception):
    pass


@pytest.mark.parametrize("policy", ["Retain", "Release"])
@pytest.mark.parametrize("at", range(12))
def test_a_pass_killed_at_any_step_is_made_good_by_the_next_ones(make: Make, policy: str, at: int) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted=policy, replicas=2)
    left = [at]

    def step(name: str) -> None:
        left[0] -= 1
        if left[0] == -1:
            raise Killed(name)

    started: set[str] = set()
    for _ in range(7):
        try:
            world.run(step=step)
        except Killed:
            world.sync()
        started |= {names_[0] for _, names_ in world.bench.log if names_}
    assert started == {"b-0", "b-1"}
    assert sum("b-0" in names_ for _, names_ in world.bench.log) <= 2
    if policy == "Release":
        assert world.annotation(names.TASK_RESULTS) == {"v": 1, "ok": "0-1"}
        assert world.annotation(names.ALLOC_RELEASE) == {"pods": ["p0", "p1"]}
    world.delete()
    for _ in range(5):
        try:
            world.run(turn=1, step=step)
        except Killed:
            world.sync()
    assert names.FINALIZER_TASKS not in world.finalizers()
    assert [world.bench.runs(world.ip(slot)) for slot in (0, 1)] == [[], []]


# -- real executors ---------------------------------------------------------------------------------------------------


def test_twenty_tasks_run_on_real_executors_and_stop(make: Make, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "osb.executor", "--addresses", "127.18.0.1-127.18.0.20"]
    command += ["--data-dir", str(tmp_path), "--stop-grace", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    client = ExecutorClient()
    try:
        assert process.stdout is not None
        assert "20 address" in process.stdout.readline()
        world = make(replicas=20, net="127.18", taskTemplate={"spec": {"process": {"command": ["sleep", "60"]}}})
        world.executors = client
        assert "20 running" in world.run().summary
        assert len(list(tmp_path.glob("*/b-*/pid"))) == 20
        world.delete()
        assert ends_within(world, 20) <= 20
        assert list(tmp_path.glob("*/b-*")) == []
    finally:
        client.close()
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()
