"""One whole pass of a sandbox: what it makes, what it believes, and what it does when the server says no."""

from __future__ import annotations

from datetime import timedelta

import pytest

from osb.api import names, times
from osb.api.key import TASKS, Key
from osb.errors import Conflict, Refused
from osb.reconcile.contract import After, Retry
from osb.sim import SimCluster
from tests.doubles.passworld import Passes


def test_a_pod_that_vanished_before_anyone_saw_it_is_made_again_at_once(passes: Passes) -> None:
    passes.own()
    passes.box_pass()
    passes.delete("pod", "b-0", grace=0)
    passes.box_pass()
    assert passes.there("pod", "b-0")


def test_many_pods_are_made_in_several_passes_with_the_status_in_between(passes: Passes) -> None:
    passes.own(replicas=230)
    for made in (100, 200, 230):
        outcome = passes.box_pass()
        assert len(passes.kube.all("pod", passes.ns)[0]) == made
        assert (getattr(outcome, "seconds", 99) <= 0.1) == (made < 230)
    assert passes.get("batchsandbox", "b")["status"]["replicas"] >= 200


@pytest.mark.parametrize("name", ["wärm", "Warm", "a/b"])
def test_a_pool_ref_that_no_pool_can_have_is_told_and_leaves_nothing_in_the_queue(passes: Passes, name: str) -> None:
    passes.box("b", poolRef=name)
    passes.sync()
    passes.box_pass()
    told = passes.condition("batchsandbox", "b", names.SPEC_INVALID)
    assert told is not None and told["reason"] == "InvalidPoolRef"
    assert passes.store.queue.listing("pool", "dirty") == []


def test_a_pooled_sandbox_that_wants_nothing_is_done_at_once(passes: Passes) -> None:
    passes.warm(count=1)
    passes.box("b", replicas=0)
    passes.sync()
    passes.box_pass()
    assert passes.get("batchsandbox", "b")["status"]["phase"] == names.SUCCEED


def test_a_create_whose_answer_was_lost_is_recognised_as_its_own(passes: Passes, simulated: SimCluster) -> None:
    passes.own()
    simulated.add_fault(path=f"/namespaces/{passes.ns}/pods", methods=["POST"], count=1, drop=True)
    assert isinstance(passes.box_pass(), Retry)
    uid = passes.get("pod", "b-0")["metadata"]["uid"]
    passes.store.redis.flushall()  # not even the mirror knows of it
    passes.run("batchsandbox", "b")
    passes.box_pass()
    assert passes.get("pod", "b-0")["metadata"]["uid"] == uid
    assert "no pod" not in str(passes.get("batchsandbox", "b")["status"])


def test_created_pods_are_told_by_name(passes: Passes) -> None:
    passes.own("b", replicas=3)
    passes.own("one")
    passes.box_pass()
    passes.box_pass("one")
    told = [text for reason, text in passes.told.events if reason == names.EVENT_SUCCESSFUL_CREATE]
    assert told == ["succeed to create 3 pods: [b-0 b-1 b-2]", "succeed to create pod one-0"]


def test_a_name_taken_by_a_stranger_is_shown_and_tried_again_slowly(passes: Passes) -> None:
    stranger = passes.stranger("b-0")
    passes.own()
    outcome = passes.box_pass(turn=2)
    assert isinstance(outcome, After)
    assert 5 <= outcome.seconds <= 30
    progressing = passes.condition("batchsandbox", "b", names.PROGRESSING)
    assert progressing is not None
    assert progressing["reason"] == names.REASON_CREATE_FAILING
    assert "b-0" in progressing["message"]
    assert passes.get("pod", "b-0")["metadata"]["uid"] == stranger["metadata"]["uid"]
    version = passes.get("batchsandbox", "b")["metadata"]["resourceVersion"]
    passes.box_pass()
    assert passes.get("batchsandbox", "b")["metadata"]["resourceVersion"] == version
    assert passes.told.reasons().count(names.EVENT_FAILED_CREATE) == 1
    passes.delete("pod", "b-0", grace=0)
    passes.box_pass()
    progressing = passes.condition("batchsandbox", "b", names.PROGRESSING)
    assert progressing is not None
    assert progressing["reason"] == names.REASON_CREATING


def test_one_refused_pod_does_not_keep_the_others_from_being_made(passes: Passes, simulated: SimCluster) -> None:
    passes.own(replicas=4)
    path = f"/namespaces/{passes.ns}/pods"
    simulated.add_fault(path=path, methods=["POST"], count=1, status=403, reason="Forbidden", message="exceeded quota")
    passes.box_pass(turn=2)
    assert len(passes.pods()) == 3
    assert "exceeded quota" in str(passes.condition("batchsandbox", "b", names.PROGRESSING))
    passes.box_pass()
    assert len(passes.pods()) == 4


def test_a_status_computed_from_an_old_sandbox_overwrites_nothing(passes: Passes) -> None:
    passes.own()

    def meanwhile(step: str) -> None:
        if step == "status":
            version = passes.get("batchsandbox", "b")["metadata"]["resourceVersion"]
            old = passes.get("batchsandbox", "b").get("status") or {}
            counters = dict.fromkeys(("replicas", "allocated", "ready", "taskRunning", "taskSucceed", "taskFailed",
                                      "taskUnknown", "taskPending"), 0)  # fmt: skip
            status = {**counters, **old, "phase": names.PAUSED}
            passes.patch(
                "batchsandbox", "b", {"metadata": {"resourceVersion": version}, "status": status}, sub="status"
            )

    passes.sync()
    with pytest.raises(Conflict):
        passes.run("batchsandbox", "b", step=meanwhile, turn=2)
    assert passes.get("batchsandbox", "b")["status"]["phase"] == names.PAUSED


def test_a_renewal_that_the_controller_has_not_seen_wins_over_the_expiry(passes: Passes) -> None:
    passes.own(expireTime=times.format(passes.world.now() + timedelta(seconds=1)))

    def meanwhile(step: str) -> None:
        if step == "expire":
            later = times.format(passes.world.now() + timedelta(hours=1))
            passes.patch("batchsandbox", "b", {"spec": {"expireTime": later}})

    passes.sync()
    with pytest.raises(Conflict):
        passes.run("batchsandbox", "b", step=meanwhile, turn=5)
    passes.box_pass()
    assert passes.there("batchsandbox", "b")
    assert not passes.get("batchsandbox", "b")["metadata"].get("deletionTimestamp")


def test_a_failed_status_write_is_an_error_of_the_pass(passes: Passes, simulated: SimCluster) -> None:
    passes.own()
    path = f"/namespaces/{passes.ns}/batchsandboxes/b/status"
    simulated.add_fault(path=path, methods=["PATCH"], count=1, status=403, reason="Forbidden")
    with pytest.raises(Refused):
        passes.box_pass(turn=2)
    passes.box_pass()
    assert passes.get("batchsandbox", "b")["status"]["phase"] == names.PENDING


def test_a_pod_that_the_pool_gave_to_another_sandbox_is_not_counted(passes: Passes) -> None:
    [pod] = passes.warm()
    passes.box("owner")
    passes.pool_pass()
    uid = passes.get("pod", pod)["metadata"]["uid"]
    passes.box("thief")
    pool_uid = passes.get("pool", "warm")["metadata"]["uid"]
    record = {"pods": [pod], "poolRef": "warm", "poolUID": pool_uid, "uids": [uid[:8]], "seq": 1}
    passes.annotate("batchsandbox", "thief", alloc_status=record)
    passes.box_pass("thief", turn=2)
    thief = passes.get("batchsandbox", "thief")
    assert thief["status"]["replicas"] == 0
    assert passes.note(names.ENDPOINTS, "thief") == [""]
    assert passes.condition("batchsandbox", "thief", names.QUARANTINED) is not None
    passes.box_pass("owner")
    assert passes.get("batchsandbox", "owner")["status"]["ready"] == 1


def test_a_strangers_pod_under_a_recorded_name_is_not_counted(passes: Passes) -> None:
    [pod] = passes.warm()
    passes.box()
    passes.pool_pass()
    passes.delete("pod", pod, grace=0)
    passes.stranger(pod)
    passes.box_pass()
    status = passes.get("batchsandbox", "b")["status"]
    assert (status["replicas"], status["ready"]) == (0, 0)
    assert passes.note(names.ENDPOINTS) == [""]


def test_a_lost_pool_pod_is_replaced_in_its_own_slot(passes: Passes) -> None:
    passes.warm(count=2)
    passes.box(replicas=2)
    passes.pool_pass(times=2)
    first, second = passes.record()
    passes.ready()
    passes.pool_pass()
    passes.delete("pod", first, grace=0)
    passes.pool_pass(times=3)
    now = passes.record()
    assert now[1] == second
    assert now[0] not in (first, second)
    passes.box_pass()
    assert passes.get("batchsandbox", "b")["status"]["ready"] == 2


def test_a_sandbox_of_a_missing_pool_says_so_until_the_pool_appears(passes: Passes) -> None:
    passes.box()
    passes.box_pass(turn=2)
    progressing = passes.condition("batchsandbox", "b", names.PROGRESSING)
    assert progressing is not None
    assert names.WAIT_POOL_NOT_FOUND in progressing["message"]
    assert names.WAIT_POOL_NOT_FOUND in passes.told.reasons()
    passes.warm()
    passes.pool_pass()
    assert passes.condition("batchsandbox", "b", names.PROGRESSING) is None
    assert len(passes.record()) == 1


def test_a_cut_slot_whose_result_is_still_there_wakes_the_tasks_for_it(passes: Passes) -> None:
    task = {"spec": {"process": {"command": ["true"]}}}
    passes.own(taskTemplate=task)
    passes.box_pass()
    passes.box_pass()
    tasks = Key(TASKS, passes.ns, "b")

    def woken() -> bool:
        """Since the last look."""
        asked = passes.store.queue.begin(tasks, "look").state == "run"
        passes.store.queue.end(tasks, "look", "done", progress=True)
        return asked

    woken()
    for known, wakes in (('{"v":1,"ok":"0"}', False), ('{"v":1,"ok":"0-1"}', True)):
        body = {"metadata": {"annotations": {names.TASK_RESULTS: known}}}
        passes.kube.patch("batchsandbox", passes.ns, "b", body)
        passes.sync()
        woken()
        passes.box_pass(deep=False)
        assert woken() is wakes
