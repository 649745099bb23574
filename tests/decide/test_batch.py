"""One pass over a sandbox: what is done, in which order, and when to look again."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest

from osb.api import batchsandbox, claims, names, record, times
from osb.decide import batch
from osb.decide.plan import (
    AssignPool,
    CreateObject,
    CreatePod,
    DeleteBox,
    DeletePod,
    EmitEvent,
    PatchObject,
    PublishEndpoints,
    Wake,
)
from osb.decide.route import route
from osb.facts.boxview import TaskSummary, Waiting
from osb.facts.index import entry
from tests.doubles.boxes import NOW, after, at, box, condition, of, pod, starting, status, told, view

TASKS = {"spec": {"process": {"command": ["true"]}}}


def reasons_of(plan: Any) -> list[str]:
    return [action.reason for action in of(plan, EmitEvent)]


def words(plan: Any, kind: str) -> str:
    return next(str(c["message"]) for c in plan.status["conditions"] if c["type"] == kind)


def created(plan: Any) -> list[str]:
    return [action.name for action in of(plan, CreatePod)]


def deleted(plan: Any) -> list[str]:
    return [action.name for action in of(plan, DeletePod)]


# -- pods ----------------------------------------------------------------------------------------------------


def test_missing_slots_are_created_in_order() -> None:
    plan = batch.plan(view(box(replicas=3), pod("box-1")))
    assert created(plan) == ["box-0", "box-2"]


def test_many_missing_pods_are_made_by_the_hundred_and_told_in_one_line() -> None:
    plan = batch.plan(view(box(replicas=1500), pod("box-0"), pod("box-2")))
    assert created(plan) == ["box-1", *[f"box-{i}" for i in range(3, 102)]]
    assert plan.again is not None and plan.again <= 0.1
    assert plan.status is not None and plan.status["ready"] == 2
    assert plan.reasons == ("slots 1, 3-1499 have no pod; the first 100 are made now",)
    last = batch.plan(view(box(replicas=100)))
    assert len(created(last)) == 100 and last.again is None


def test_many_bad_patches_are_one_condition_and_a_few_events() -> None:
    plan = batch.plan(view(box(replicas=300, shardPatches=[{"spec": 5}] * 300)))
    assert not created(plan)
    assert words(plan, "SpecInvalid").startswith("slots 0-299 get no pod: ")
    assert reasons_of(plan).count("InvalidShardPatch") == 5


def test_scale_down_deletes_the_highest_slot_first() -> None:
    plan = batch.plan(view(box(replicas=1), *[pod(f"box-{i}") for i in range(4)]))
    assert deleted(plan) == ["box-3", "box-2", "box-1"]
    assert [action.uid for action in of(plan, DeletePod)] == ["uid-box-3", "uid-box-2", "uid-box-1"]


def test_scale_down_waits_for_a_task_that_still_runs() -> None:
    pods = [pod(f"box-{i}") for i in range(3)]
    plan = batch.plan(view(box(replicas=1), *pods, tasks=TaskSummary(busy=frozenset({1}))))
    assert deleted(plan) == ["box-2"]


def test_a_slot_given_up_and_cut_is_a_new_one_when_it_comes_back() -> None:
    given_up = {"pods": [], "failed": [1], "losses": 1, "seq": 1}
    cut = batch.plan(view(box(replicas=1, lostPodPolicy="Fail", record=given_up), pod()))
    (patch,) = of(cut, PatchObject)
    left = record.parse(patch.patch["metadata"]["annotations"][names.ALLOC_STATUS])
    assert left is not None and (left.failed, left.losses, left.seq) == ((), 1, 2)
    waits = view(box(replicas=1, lostPodPolicy="Fail", record=given_up), pod(), tasks=TaskSummary(busy=frozenset({1})))
    assert not of(batch.plan(waits), PatchObject)
    back = batch.plan(view(box(replicas=2, lostPodPolicy="Fail", record=given_up | {"failed": []}), pod()))
    assert created(back) == ["box-1"]


def test_the_label_tells_the_slot_before_the_name_does() -> None:
    plan = batch.plan(view(box(replicas=2), pod("box-0", index_label="1")))
    assert created(plan) == ["box-0"]


@pytest.mark.parametrize(
    "stranger",
    [
        pod("box-foreign"),
        pod("box-0", owner_uid="other"),
        pod("box-x1", index_label="one"),
    ],
    ids=["no number", "not controlled by it", "unreadable label"],
)
def test_a_pod_without_a_readable_slot_blocks_nothing_and_counts_nowhere(stranger: Any) -> None:
    plan = batch.plan(view(box(replicas=2), stranger, pod("box-1")))
    assert created(plan) == ["box-0"]
    assert deleted(plan) == []
    assert plan.status is not None
    assert plan.status["replicas"] == 1


def test_of_two_pods_of_a_slot_the_older_stays() -> None:
    younger = pod("copy-7", index_label="0", created=times.to_ms(at(-5)))
    plan = batch.plan(view(box(), pod("box-0"), younger))
    assert deleted(plan) == ["copy-7"]


def test_a_pod_that_ended_is_replaced_after_a_pause_that_grows_with_each_loss() -> None:
    ended = pod(phase="Failed", ready=False, last_transition=times.to_ms(at(-6)))
    first = batch.plan(view(box(), ended))
    assert deleted(first) == ["box-0"]
    often = box(record={"pods": [], "losses": 3})
    waits = batch.plan(view(often, ended))
    assert deleted(waits) == []
    assert waits.again == pytest.approx(34)
    assert deleted(batch.plan(view(often, ended, now=at(35)))) == ["box-0"]


def test_a_pod_that_lived_long_is_replaced_at_once() -> None:
    ended = pod(phase="Succeeded", ready=False, created=times.to_ms(at(-700)), last_transition=times.to_ms(NOW))
    assert deleted(batch.plan(view(box(record={"pods": [], "losses": 9}), ended))) == ["box-0"]


def test_a_terminating_pod_is_waited_for() -> None:
    plan = batch.plan(view(box(), pod(deleting=times.to_ms(at(30)))))
    assert (created(plan), deleted(plan)) == ([], [])


def test_the_loss_of_a_delivered_pod_is_recorded_told_and_its_slot_refilled() -> None:
    spec = box(replicas=2, endpoints=["10.0.0.9", "10.0.0.8"])
    plan = batch.plan(view(spec, pod("box-0")))
    patch = of(plan, PatchObject)[0]
    kept = record.parse(patch.patch["metadata"]["annotations"][names.ALLOC_STATUS])
    assert kept is not None
    assert (kept.losses, kept.failed, kept.open, kept.pods) == (1, (), (), ())
    assert patch.version == "41"
    assert created(plan) == ["box-1"]
    assert "PodLost" in reasons_of(plan)
    assert words(plan, "PodLost").startswith("1 lost so far; slot 1 (pod box-1 was deleted)")
    assert of(plan, PublishEndpoints)[0].addresses == ("10.0.0.9",)


def test_under_fail_a_delivered_slot_stays_empty_after_its_loss() -> None:
    spec = box(replicas=2, lostPodPolicy="Fail", endpoints=["10.0.0.9", "10.0.0.8"])
    plan = batch.plan(view(spec, pod("box-0")))
    kept = record.parse(of(plan, PatchObject)[0].patch["metadata"]["annotations"][names.ALLOC_STATUS])
    assert kept is not None
    assert kept.failed == (1,)
    assert created(plan) == []
    later = box(
        replicas=2, lostPodPolicy="Fail", endpoints=["10.0.0.9"], record={"pods": [], "failed": [1], "losses": 1}
    )
    assert created(batch.plan(view(later, pod("box-0")))) == []


def test_under_fail_an_undelivered_slot_is_still_filled() -> None:
    ended = starting(phase="Failed", last_transition=times.to_ms(at(-60)))
    plan = batch.plan(view(box(lostPodPolicy="Fail"), ended))
    kept = record.parse(of(plan, PatchObject)[0].patch["metadata"]["annotations"][names.ALLOC_STATUS])
    assert kept is not None
    assert kept.failed == ()
    assert deleted(plan) == ["box-0"]


def test_a_completed_slot_given_back_is_not_created_again() -> None:
    spec = box(
        replicas=2, taskTemplate=TASKS, taskResourcePolicyWhenCompleted="Release", finalizers=(names.FINALIZER_TASKS,)
    )
    plan = batch.plan(view(spec, pod("box-1"), tasks=TaskSummary(done=frozenset({0}))))
    assert created(plan) == []


def test_a_bad_patch_stops_its_own_slot_only_and_is_shown_without_a_hot_loop() -> None:
    spec = box(replicas=3, shardPatches=[{}, {"spec": {"containers": [{"image": "x"}]}}], generation=3)
    plan = batch.plan(view(spec))
    assert created(plan) == ["box-0", "box-2"]
    assert plan.status is not None
    assert told(plan.status["conditions"])["SpecInvalid"] == "InvalidShardPatch"
    assert reasons_of(plan).count("InvalidShardPatch") == 1
    again = batch.plan(view(after(spec, plan.status), pod("box-0"), pod("box-2")))
    assert reasons_of(again) == []
    assert again.again is None


def test_pool_mode_creates_no_pods() -> None:
    plan = batch.plan(view(box(poolRef="warm", template={"spec": {"containers": []}})))
    assert created(plan) == []


def test_a_removed_template_keeps_the_pods_and_creates_none() -> None:
    plan = batch.plan(view(box(template=..., replicas=2), pod("box-0")))
    assert (created(plan), deleted(plan)) == ([], [])


def test_an_owner_of_the_sandbox_changes_nothing_for_its_pods() -> None:
    body = of(batch.plan(view(box())), CreatePod)[0].body
    assert [o["kind"] for o in body["metadata"]["ownerReferences"]] == ["BatchSandbox"]


# -- specs that cannot be served -----------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [{}, {"poolRef": "warm"}, {"poolRef": "*"}])
def test_replicas_beyond_all_bounds_are_refused_and_cost_nothing(spec: dict[str, Any]) -> None:
    body = {"metadata": {"namespace": "ns", "name": "box", "uid": "u", "generation": 1},
            "spec": {"template": {"spec": {}}, "replicas": 2_000_000_000, **spec}}  # fmt: skip
    tracemalloc.start()
    began = time.process_time()
    plan = batch.plan(view(batchsandbox.parse(body)))
    entry("batchsandbox", body)
    route("batchsandbox", None, body)
    took, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took < 0.2 and peak < 3_000_000
    assert not created(plan) and not of(plan, AssignPool)
    assert plan.status is not None and plan.status["phase"] == names.FAILED
    assert told(plan.status["conditions"])["SpecInvalid"] == "TooManyReplicas"
    assert "2000000000 is more than the 1500" in words(plan, "SpecInvalid")


def test_a_pool_with_a_long_name_serves_fewer_replicas_at_once() -> None:
    long = "p" * 57
    spec = box(replicas=1000, poolRef=long)
    assert spec.barred == "TooManyReplicas" and f"of pool {long}" in str(spec.problems[0])
    assert box(replicas=700, poolRef=long).barred == ""
    raw = {"metadata": {"namespace": "ns", "name": "box"}, "spec": {"replicas": 1000, "poolRef": long}}
    assert "batchsandbox/ns/box" in [add.key.text for add in route("batchsandbox", None, raw)]


def test_a_bad_patch_and_a_bad_task_are_told_together() -> None:
    plan = batch.plan(view(box(shardPatches=[{"spec": 5}], taskTemplate={"spec": {"process": {"command": []}}})))
    assert "spec.taskTemplate.spec.process.command" in words(plan, "SpecInvalid")
    assert "spec.shardPatches[0]" in words(plan, "SpecInvalid")


def test_replicas_raised_beyond_all_bounds_leave_what_is_there() -> None:
    pods = [pod("box-0"), pod("box-1", phase="Failed", ready=False), pod("box-1700")]
    plan = batch.plan(view(box(replicas=2_000_000), *pods))
    assert not created(plan) and not deleted(plan)
    assert plan.status is not None and plan.status["phase"] == names.SUCCEED


def test_a_larger_record_of_another_controller_keeps_its_pods_when_the_number_is_refused() -> None:
    spec = box(replicas=1600, poolRef="warm", record={"pods": [f"p{n}" for n in range(1600)]})
    assert spec.barred == "TooManyReplicas"
    assert claims.surplus(spec) == claims.wants(spec) == ()


@pytest.mark.parametrize("name", ["wärm", "Warm", "a/b"])
def test_a_pool_ref_that_no_pool_can_have_is_an_invalid_spec(name: str) -> None:
    plan = batch.plan(view(box(poolRef=name)))
    assert plan.status is not None and plan.status["phase"] == names.FAILED
    text = words(plan, "SpecInvalid")
    assert text.startswith("spec.poolRef") and repr(name) in text and "name an existing pool" in text


# -- expiry --------------------------------------------------------------------------------------------------


def test_times_are_told_as_the_api_server_writes_them() -> None:
    plan = batch.plan(view(box(expireTime=times.format(at(-1)))))
    assert of(plan, DeleteBox)[0].why == "expireTime 2026-05-04T11:59:59Z has passed"
    doubtful = batch.plan(view(box(expireTime=times.format(at(-1000)), age=-900)))
    assert any("the clock says 2026-05-04T12:00:00Z" in reason for reason in doubtful.reasons)


def test_an_expired_sandbox_is_deleted_and_nothing_else_is_done() -> None:
    plan = batch.plan(view(box(expireTime=times.format(at(-1)), taskTemplate=TASKS)))
    assert [type(action) for action in plan.actions] == [DeleteBox, EmitEvent]
    assert (of(plan, DeleteBox)[0].uid, of(plan, DeleteBox)[0].version) == (box().uid, "41")
    assert reasons_of(plan) == ["Expired"]
    assert plan.status is None


@pytest.mark.parametrize("phase", ["Paused", "Pausing", "Resuming", "Failed", "Succeed", ""])
def test_expiry_applies_in_every_phase(phase: str) -> None:
    spec = box(expireTime=times.format(at(0)), pause=True, status=status(phase))
    assert of(batch.plan(view(spec)), DeleteBox)


def test_every_pass_looks_again_in_time_for_the_expiry() -> None:
    spec = box(expireTime=times.format(at(5)), pause=True, status=status("Pausing", condition("Progressing")))
    assert batch.plan(view(spec, pod())).again == pytest.approx(1)
    quiet = box(expireTime=times.format(at(5)), status=status("Succeed"))
    assert batch.plan(view(quiet, pod())).again == pytest.approx(5)


# -- deletion ------------------------------------------------------------------------------------------------


def test_nothing_is_created_for_a_terminating_sandbox() -> None:
    spec = box(replicas=3, deleting=True, taskTemplate=TASKS, finalizers=(names.FINALIZER_TASKS,))
    plan = batch.plan(view(spec, pod("box-0"), tasks=TaskSummary()))
    assert (created(plan), of(plan, CreateObject)) == ([], [])
    assert [w.kind for w in of(plan, Wake)] == ["tasks"]


@pytest.mark.parametrize("pause", [True, False, None])
@pytest.mark.parametrize("phase", ["Succeed", "Paused", "Pausing", "Failed"])
def test_a_terminating_sandbox_never_starts_a_pause_or_a_resume(pause: bool | None, phase: str) -> None:
    spec = box(deleting=True, pause=pause, generation=9, status=status(phase), finalizers=(names.FINALIZER_TASKS,))
    plan = batch.plan(view(spec, pod()))
    assert plan.status is None
    assert of(plan, CreateObject) == []


def finalizers_after(plan: Any) -> list[str]:
    return list(of(plan, PatchObject)[0].patch["metadata"]["finalizers"])


def test_the_finalizer_goes_by_its_presence_when_the_template_is_gone() -> None:
    spec = box(deleting=True, finalizers=("other/one", names.FINALIZER_TASKS, "other/two"))
    plan = batch.plan(view(spec, pod(phase="Failed", ready=False)))
    assert finalizers_after(plan) == ["other/one", "other/two"]
    assert of(plan, PatchObject)[0].version == "41"
    # While a pod lives the tasks' pass stops what it reports, and removes the finalizer itself
    assert [w.kind for w in of(batch.plan(view(spec, pod())), Wake)] == ["tasks"]


def test_a_paused_sandbox_has_no_tasks_to_wait_for() -> None:
    spec = box(deleting=True, taskTemplate=TASKS, status=status("Paused"), finalizers=(names.FINALIZER_TASKS,))
    assert finalizers_after(batch.plan(view(spec))) == []


def test_errors_of_the_spec_do_not_block_deletion() -> None:
    spec = box(
        deleting=True,
        taskTemplate=TASKS,
        shardTaskPatches=[{"spec": {"process": {"args": [1]}}}, 7],
        annotations={names.ALLOC_STATUS: "{garbage"},
        finalizers=(names.FINALIZER_TASKS,),
    )
    assert finalizers_after(batch.plan(view(spec, pod("box-foreign")))) == []


def test_a_terminating_sandbox_without_our_finalizer_needs_nothing() -> None:
    plan = batch.plan(view(box(deleting=True), pod()))
    assert (plan.actions, plan.status, plan.again) == ((), None, None)


def test_the_task_finalizer_is_added_with_the_version_and_keeps_the_others() -> None:
    plan = batch.plan(view(box(taskTemplate=TASKS, finalizers=("other/one",)), pod()))
    patch = of(plan, PatchObject)[0]
    assert patch.patch["metadata"]["finalizers"] == ["other/one", names.FINALIZER_TASKS]
    assert patch.version == "41"


# -- pool choice, waiting, order of writes -------------------------------------------------------------------


def test_any_pool_is_chosen_before_anything_else() -> None:
    plan = batch.plan(view(box(poolRef="*", annotations={names.ASSIGN_PROFILE: "gpu"})))
    assert of(plan, AssignPool) == [AssignPool("gpu")]
    assert created(plan) == []


def test_a_choice_that_found_no_pool_is_told_and_not_announced_again() -> None:
    nothing = Waiting(code=names.WAIT_NO_POOL_FITS, detail="pool a: it is on hold", missing=1)
    plan = batch.plan(view(box(poolRef="*"), waiting=nothing))
    assert of(plan, AssignPool) == []
    assert plan.reasons == ("poolRef is *: no pool fits: pool a: it is on hold",)


def test_a_brand_new_sandbox_shows_nothing_for_a_second_and_then_says_that_it_waits() -> None:
    new = batch.plan(view(box(poolRef="warm", age=0), now=at(0.4)))
    assert new.status is None
    assert new.again == pytest.approx(0.6)
    waiting = Waiting(code=names.WAIT_POOL_NOT_FOUND, detail="no pool warm")
    old = batch.plan(view(box(poolRef="warm", age=2), waiting=waiting))
    assert old.status is not None
    assert old.status["phase"] == "Pending"
    assert told(old.status["conditions"]) == {"Progressing": "WaitingForPool"}
    assert "PoolNotFound" in reasons_of(old)


def test_a_phase_is_written_before_an_address_that_is_not_ready() -> None:
    addressed = starting(ip="10.0.0.9")
    first = batch.plan(view(box(), addressed))
    assert of(first, PublishEndpoints)[0].after_status
    ready = batch.plan(view(box(), pod()))
    assert not of(ready, PublishEndpoints)[0].after_status
    with_phase = batch.plan(view(box(status=status("Pending")), addressed))
    assert not of(with_phase, PublishEndpoints)[0].after_status


def test_a_pass_looks_again_when_a_grace_or_a_waiting_limit_ends() -> None:
    pulling = starting(waiting=(("main", "ErrImagePull"),), scheduled=times.to_ms(at(-12)))
    assert batch.plan(view(box(status=status("Pending")), pulling)).again == pytest.approx(18)
    limited = box(
        poolRef="warm", allocationTimeoutSeconds=60, status=status("Pending", condition("Progressing", since=-45))
    )
    assert batch.plan(view(limited)).again == pytest.approx(15)


# -- events --------------------------------------------------------------------------------------------------


def test_a_failure_is_told_once() -> None:
    broken = starting(waiting=(("main", "CrashLoopBackOff"),))
    spec = box(status=status("Pending"))
    plan = batch.plan(view(spec, broken))
    assert reasons_of(plan) == ["PodFailed"]
    assert plan.status is not None
    assert reasons_of(batch.plan(view(after(spec, plan.status), broken))) == []


def test_patches_without_effect_are_told_once_per_generation() -> None:
    extra = box(shardPatches=[{}, {}, {}], generation=3, status=status("Pending"))
    plan = batch.plan(view(extra, starting()))
    assert reasons_of(plan) == ["ShardPatchesIgnored"]
    assert plan.status is not None
    assert reasons_of(batch.plan(view(after(extra, plan.status), starting()))) == []
    pooled = box(poolRef="warm", shardPatches=[{}], generation=3, status=status("Pending"))
    assert reasons_of(batch.plan(view(pooled))) == ["ShardPatchesIgnored"]


def test_an_invalid_spec_is_told_once() -> None:
    spec = box(template=..., status=status("Pending"))
    plan = batch.plan(view(spec))
    assert reasons_of(plan) == ["SpecInvalid"]
    assert plan.again is None
    assert plan.status is not None
    assert reasons_of(batch.plan(view(after(spec, plan.status)))) == []
