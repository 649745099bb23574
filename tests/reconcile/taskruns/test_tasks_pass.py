"""The pass of the tasks' key on a simulated API server and a real Redis: running, finishing, identity."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from osb.api import names
from osb.facts.ledger import HELD, LedgerEntry
from osb.reconcile.contract import After, Done
from osb.sim import SimCluster
from osb.store.client import Store
from osb.store.forward import Forwarder
from tests.doubles.taskworld import TaskWorld

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


def test_under_retain_a_finished_task_is_left_alone_and_nothing_is_written(make: Make) -> None:
    world = make(taskTemplate=QUICK)
    world.run()
    outcome = world.run()
    assert isinstance(outcome, After)
    assert outcome.seconds == 30
    assert "1 succeeded" in outcome.summary
    assert world.annotation(names.TASK_RESULTS) is None
    assert world.annotation(names.ALLOC_RELEASE) is None


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


def test_an_executor_that_refuses_the_task_is_told_in_its_own_words_once(make: Make) -> None:
    world = make()
    world.bench.before = lambda: world.bench.broken.add(world.ip(0))
    for _ in range(2):
        world.bench.broken.clear()
        world.run(turn=120)
    assert world.told.events == [("TaskRefused", "The executor in p0 does not take task 0: status=500")]
