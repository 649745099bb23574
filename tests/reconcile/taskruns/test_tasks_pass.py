"""The pass of the tasks' key on a simulated API server and a real Redis: running, finishing, identity."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from osb.api import names
from osb.facts.ledger import HELD, LedgerEntry
from osb.reconcile.contract import After, Done
from osb.sim import SimCluster
from osb.store.client import Store
from osb.store.forward import Forwarder
from tests.doubles.taskworld import TEMPLATE, TaskWorld

Make = Callable[..., TaskWorld]
QUICK = {"spec": {"process": {"command": ["true"]}}}


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


def test_a_second_pass_changes_nothing_and_makes_no_write(make: Make, simulated: SimCluster) -> None:
    world = make()
    world.run()
    before, log = simulated.stats(), list(world.bench.log)
    world.run()
    assert simulated.stats() == before
    assert world.bench.log == log


def test_under_retain_a_finished_task_is_left_alone_and_its_result_is_on_the_object(
    make: Make, simulated: SimCluster
) -> None:
    world = make(taskTemplate=QUICK, replicas=3)
    world.run()
    patches = simulated.stats().get("patch batchsandboxes", 0)
    outcome = world.run()
    assert isinstance(outcome, After)
    assert outcome.seconds == 30
    assert "3 succeeded" in outcome.summary
    assert world.annotation(names.TASK_RESULTS) == {"v": 1, "ok": "0-2"}
    assert world.annotation(names.ALLOC_RELEASE) is None
    assert simulated.stats().get("patch batchsandboxes", 0) == patches


def test_tasks_that_end_between_two_passes_cost_one_write_together(make: Make, simulated: SimCluster) -> None:
    world = make(replicas=3, taskTemplate={"spec": {"process": {"command": ["sleep", "2"]}}})
    world.run()
    patches = simulated.stats().get("patch batchsandboxes", 0)
    world.run()
    assert world.annotation(names.TASK_RESULTS) == {"v": 1, "ok": "0-2"}
    assert simulated.stats().get("patch batchsandboxes", 0) == patches + 1


def test_a_result_under_retain_outlives_redis_and_the_executors_memory(make: Make, store: Store) -> None:
    world = make(taskTemplate={"spec": {"process": {"command": ["false"]}}})
    world.run()
    calls = list(world.bench.log)
    # When the container restarts without a volume, and Redis is empty
    store.redis.flushall()
    world.bench.tables.clear()
    world.record(["p0"])
    world.sync()
    # Then the task is not started again
    world.run()
    assert "1 failed" in world.run().summary
    assert world.bench.log == calls
    assert world.annotation(names.TASK_RESULTS) == {"v": 1, "failed": {"0": [1, "Failed"]}}


def test_no_result_is_counted_before_it_is_on_the_object(make: Make, simulated: SimCluster) -> None:
    world = make(taskTemplate=QUICK)
    simulated.add_fault(methods=["PATCH"], path="batchsandboxes", status=403)
    world.run()
    assert "1 running, 0 succeeded" in world.run().summary
    simulated.clear_faults()
    assert "0 running, 1 succeeded" in world.run().summary


def test_under_release_the_result_is_durable_and_the_pod_goes_back_once(make: Make, simulated: SimCluster) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted="Release", replicas=2)
    for _ in range(4):
        outcome = world.run()
    assert isinstance(outcome, Done)
    assert world.annotation(names.TASK_RESULTS) == {"v": 1, "ok": "0-1"}
    assert world.annotation(names.ALLOC_RELEASE) == {"pods": ["p0", "p1"]}
    assert world.told.reasons() == ["PodReleased"]
    patches = simulated.stats().get("patch batchsandboxes", 0)
    world.run()
    assert simulated.stats().get("patch batchsandboxes", 0) == patches
    assert world.told.reasons() == ["PodReleased"]


def test_under_release_an_owned_pod_is_deleted_after_its_result_is_durable(make: Make) -> None:
    world = make(taskTemplate=QUICK, taskResourcePolicyWhenCompleted="Release", pooled=False)
    for _ in range(4):
        world.run()
    assert world.annotation(names.TASK_RESULTS) == {"v": 1, "ok": "0", "back": "0"}
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


def test_an_executor_that_refuses_the_task_is_told_in_its_own_words_once(make: Make) -> None:
    world = make()
    world.bench.before = lambda: world.bench.broken.add(world.ip(0))
    for _ in range(2):
        world.bench.broken.clear()
        world.run(turn=120)
    assert world.told.events == [("TaskRefused", "The executor in p0 does not take task 0: status=500")]


# -- pods that do not come back ------------------------------------------------------------------------------------


def test_a_lost_task_under_fail_ends_as_failed_when_its_loss_is_recorded(make: Make) -> None:
    world = make(replicas=2, lostPodPolicy="Fail")
    world.run()
    # When the pod of slot 1 is gone
    world.remove_pod(1)
    world.sync()
    assert "1 running, 0 succeeded, 0 failed, 0 unknown, 1 pending" in world.run().summary
    assert world.told.events == []
    # and its slot is given up
    record = {**world.annotation(names.ALLOC_STATUS), "failed": [1], "losses": 1}
    world.annotate(**{names.ALLOC_STATUS: orjson.dumps(record).decode()})
    world.sync()
    # Then its task has failed, and nothing says that it starts again
    assert "1 running, 0 succeeded, 1 failed" in world.run().summary
    assert world.annotation(names.TASK_RESULTS) == {"v": 1, "failed": {"1": [137, "PodLost"]}}
    assert world.told.events == []


def test_the_slot_of_a_pod_that_is_deleted_as_unclean_waits_for_another_one_and_lost_nothing(make: Make) -> None:
    world = make(lostPodPolicy="Fail")
    world.bench.at(world.ip(0)).sync([{"name": "other-0", "process": {"command": ["serve"]}}])
    before = world.annotation(names.ALLOC_STATUS)
    world.run()
    assert world.told.reasons() == ["PodNotClean"]
    assert world.annotation(names.ALLOC_STATUS) == {**before, "seq": before["seq"] + 1, "open": [0]}
    assert world.kube.all("pod", world.ns)[0] == []


@pytest.mark.parametrize("finished", [True, False])
def test_an_index_that_was_cut_and_comes_back_runs_whatever_it_did_before(make: Make, finished: bool) -> None:
    world = make(replicas=2, pooled=False, taskTemplate=QUICK if finished else TEMPLATE)
    world.run()
    # When it is cut
    world.patch({"spec": {"replicas": 1}})
    world.sync()
    for _ in range(3):
        world.run()
    assert (world.annotation(names.TASK_RESULTS) or {}).get("ok") == ("0" if finished else None)
    # and wanted again, on another pod
    world.remove_pod(1)
    world.patch({"spec": {"replicas": 2}})
    world.pod(1, ip="10.1.9.9")
    world.sync()
    world.run()
    assert [names_ for ip, names_ in world.bench.log if ip == "10.1.9.9"] == [["b-1"]]


def test_the_sandbox_is_woken_when_an_executor_gets_into_trouble_and_out_of_it(make: Make) -> None:
    world = make()
    world.run()
    world.phase("Succeed")
    world.patch({"status": {"taskRunning": 1}}, sub="status")
    world.sync()
    world.woken()
    world.bench.silent.add(world.ip(0))
    wakes = []
    for _ in range(4):
        world.run()
        wakes.append(world.woken())
    assert wakes.count(True) == 1
    world.bench.silent.clear()
    world.run(turn=60)
    assert world.woken()
