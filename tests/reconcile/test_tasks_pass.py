"""The pass of the tasks' key on a simulated API server and a real Redis."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from osb.api import names
from osb.api.crds import crds
from osb.apply.tasks import ExecutorClient
from osb.config import Settings
from osb.decide.tasknode import RELEASED
from osb.facts.ledger import HELD, LedgerEntry
from osb.kube.client import Kube
from osb.kube.client import connect as connect_kube
from osb.reconcile.contract import After, Done
from osb.sim import SimCluster
from osb.store.client import Store
from osb.store.client import connect as connect_store
from osb.store.forward import Forwarder
from tests.doubles.taskworld import TaskWorld

Make = Callable[..., TaskWorld]
QUICK = {"spec": {"process": {"command": ["true"]}}}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimCluster]:
    with SimCluster.start(tmp_path_factory.mktemp("sim"), kubelet=False) as running:
        yield running


@pytest.fixture(scope="module")
def kube(cluster: SimCluster) -> Iterator[Kube]:
    client = connect_kube(Settings(kubeconfig=str(cluster.kubeconfig)))
    for crd in crds():
        client.create("crd", None, crd)
    yield client
    client.close()


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    connected = connect_store(redis_url)
    yield connected
    connected.close()


@pytest.fixture
def make(store: Store, kube: Kube, cluster: SimCluster) -> Iterator[Make]:
    made: list[TaskWorld] = []

    def world(**changes: Any) -> TaskWorld:
        made.append(TaskWorld(store, kube, **changes))
        return made[-1]

    yield world
    cluster.clear_faults()
    for one in made:
        one.close()


# -- running and finishing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "owned"])
def test_tasks_are_started_on_their_slots_and_counted(make: Make, pooled: bool) -> None:
    world = make(replicas=2, pooled=pooled)
    world.woken()
    assert not world.woken()
    outcome = world.run()
    assert isinstance(outcome, After)
    assert outcome.seconds == 3
    assert outcome.summary == "2 running, 0 succeeded, 0 failed, 0 unknown, 0 pending; 2 call(s)"
    assert [world.bench.runs(world.ip(slot)) for slot in (0, 1)] == [["b-0"], ["b-1"]]
    assert world.woken()


def test_a_second_pass_changes_nothing_and_makes_no_write(make: Make, cluster: SimCluster) -> None:
    world = make()
    world.run()
    before, log = cluster.stats(), list(world.bench.log)
    world.run()
    assert cluster.stats() == before
    assert world.bench.log == log


def test_under_retain_a_finished_task_is_left_alone_and_nothing_is_written(make: Make) -> None:
    world = make(taskTemplate=QUICK)
    world.run()
    outcome = world.run()
    assert isinstance(outcome, After)
    assert outcome.seconds == 30
    assert "1 succeeded" in outcome.summary
    assert world.annotation(names.TASK_RESULTS) is None
    assert world.annotation(names.ALLOC_RELEASE) is None


def test_under_release_the_result_is_durable_and_the_pod_goes_back_once(make: Make, cluster: SimCluster) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted="Release", replicas=2)
    for _ in range(4):
        outcome = world.run()
    assert isinstance(outcome, Done)
    assert world.annotation(names.TASK_RESULTS) == {"v": 1, "ok": "0-1"}
    assert world.annotation(names.ALLOC_RELEASE) == {"pods": ["p0", "p1"]}
    assert world.told.reasons() == ["PodReleased"]
    patches = cluster.stats().get("patch batchsandboxes", 0)
    world.run()
    assert cluster.stats().get("patch batchsandboxes", 0) == patches
    assert world.told.reasons() == ["PodReleased"]


def test_under_release_an_owned_pod_is_deleted_after_its_result_is_durable(make: Make) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted="Release", pooled=False)
    for _ in range(4):
        world.run()
    assert world.annotation(names.TASK_RESULTS) == {"v": 1, "ok": "0"}
    assert world.annotation(names.ALLOC_RELEASE) is None
    assert world.kube.all("pod", world.ns)[0] == []


def test_after_a_flush_of_redis_finished_and_released_tasks_do_not_run_again(make: Make, store: Store) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted="Release")
    for _ in range(4):
        world.run()
    calls = list(world.bench.log)
    store.redis.flushall()
    world.record(["p0"])
    world.sync()
    world.run()
    world.run()
    assert world.bench.log == calls
    assert "1 succeeded" in world.run().summary


def test_a_released_pod_that_serves_another_sandbox_is_never_touched(make: Make) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted="Release")
    for _ in range(4):
        world.run()
    calls, asked = list(world.bench.log), list(world.bench.asked)
    world.bench.at(world.ip(0)).sync([{"name": "other-0", "process": {"command": ["serve"]}}])
    for _ in range(3):
        world.run()
    assert (world.bench.log, world.bench.asked) == (calls, asked)
    assert world.bench.runs(world.ip(0)) == ["other-0"]


def test_after_a_flush_of_redis_a_running_task_is_found_again(make: Make, store: Store) -> None:
    world = make(replicas=2)
    world.run()
    calls = list(world.bench.log)
    store.redis.flushall()
    world.record(["p0", "p1"])
    world.sync()
    assert "2 running" in world.run().summary
    assert [names_ for _, names_ in world.bench.log[len(calls) :]] in ([], [["b-0"], ["b-1"]])
    assert all(world.bench.at(world.ip(s)).listed()[0]["processStatus"].get("running") for s in (0, 1))


# -- identity --------------------------------------------------------------------------------------------------


def test_a_pod_that_was_replaced_between_decision_and_call_is_not_called(make: Make) -> None:
    world = make(pooled=False)

    def replace() -> None:
        world.remove_pod(0)
        world.pod(0)
        world.sync()

    world.bench.before = replace
    world.run()
    assert world.bench.log == []
    assert "another one" in world.bench.refused[0]


def test_a_stop_is_checked_live_even_if_the_mirror_is_behind(make: Make) -> None:
    """The pod's address may belong to somebody else's pod by now."""
    world = make()
    world.run()
    world.delete()
    world.remove_pod(0)
    calls = list(world.bench.log)
    world.run()
    assert world.bench.log == calls
    assert "gone" in world.bench.refused[0]


def test_a_forged_record_does_not_reach_another_sandboxes_pod(make: Make) -> None:
    world = make()
    pod = world.kube.get("pod", world.ns, "p0")["metadata"]["uid"]
    world.ledger({"p0": LedgerEntry(state=HELD, pod_uid=pod, box_uid="victim", box="victim", slot=0)})
    world.bench.at(world.ip(0)).sync([{"name": "victim-0", "process": {"command": ["serve"]}}])
    world.run()
    world.delete()
    world.run()
    assert world.bench.log == []
    assert world.bench.asked == []


def test_while_the_ledger_is_rebuilt_pods_are_looked_at_and_not_written_to(make: Make) -> None:
    world = make()
    world.rebuild()
    world.run()
    assert world.bench.log == []


def test_a_pool_pod_with_a_foreign_task_is_deleted_for_a_clean_one(make: Make) -> None:
    world = make()
    world.bench.at(world.ip(0)).sync([{"name": "other-0", "process": {"command": ["serve"]}}])
    world.run()
    assert world.bench.log == []
    assert world.told.reasons() == ["PodNotClean"]
    assert world.kube.all("pod", world.ns)[0] == []


def test_an_executor_that_is_down_is_no_error_of_the_pass_and_is_told(make: Make) -> None:
    world = make()
    world.run()
    world.bench.silent.add(world.ip(0))
    for _ in range(4):
        outcome = world.run()
        assert isinstance(outcome, After)
        assert outcome.seconds == 3
    assert "1 running" in outcome.summary
    assert world.told.reasons() == ["TaskExecutorUnreachable"]


def test_an_executor_that_never_came_up_leaves_its_task_unknown(make: Make) -> None:
    world = make()
    world.bench.silent.add(world.ip(0))
    for _ in range(4):
        outcome = world.run(turn=31)
    assert "1 unknown" in outcome.summary
    world.bench.silent.clear()
    assert "1 running" in world.run(turn=31).summary


# -- lost pods --------------------------------------------------------------------------------------------------


def test_a_lost_pods_task_starts_again_on_its_replacement(make: Make) -> None:
    world = make(pooled=False)
    world.run()
    world.remove_pod(0)
    world.sync()
    world.run()
    world.pod(0, ip="10.1.9.9")
    world.sync()
    world.run()
    assert world.bench.runs("10.1.9.9") == ["b-0"]
    assert world.told.reasons() == ["TaskRestarted"]


def test_a_pod_that_the_mirror_has_not_seen_is_found_live(make: Make) -> None:
    world = make()
    world.run()
    forward = Forwarder(world.store)
    ghost = world.kube.get("pod", world.ns, "p0")
    forward.delete("poolpod", ghost)
    world.run()
    assert world.nodes()[0].bound
    assert "1 running" in world.run().summary


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


def test_a_release_that_cannot_be_written_is_told_and_tried_again(make: Make, cluster: SimCluster) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted="Release")
    world.run()
    world.run()
    cluster.add_fault(methods=["PATCH"], path="batchsandboxes", status=403)
    outcome = world.run()
    assert isinstance(outcome, After)
    assert world.told.reasons() == ["FailedRelease"]
    cluster.clear_faults()
    world.run()
    assert world.annotation(names.ALLOC_RELEASE) == {"pods": ["p0"]}


def test_results_that_cannot_be_written_keep_the_executor_uncleared(make: Make, cluster: SimCluster) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted="Release")
    world.run()
    cluster.add_fault(methods=["PATCH"], path="batchsandboxes", status=403)
    world.run()
    assert world.bench.runs(world.ip(0)) == ["b-0"]
    cluster.clear_faults()
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
