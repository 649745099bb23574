"""Pausing and resuming a sandbox from beginning to end, interrupted at every write, and everything that goes wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from osb.api import names, record, times
from osb.decide import batch
from osb.decide.moves import merge_diff
from osb.decide.pausing import snapshot_name
from osb.decide.plan import CreateObject
from osb.decide.resuming import image_reference
from osb.facts.boxview import SnapshotFact, TaskSummary
from tests.doubles.boxes import condition, of, pod, snapshot
from tests.doubles.boxworld import World, merge, pause, pooled, running


def annotations(world: World) -> dict[str, str]:
    return dict(world.box["metadata"].get("annotations") or {})


def generation(world: World) -> int:
    return int(world.box["metadata"]["generation"])


# -- pause -----------------------------------------------------------------------------------------------------------


def test_a_pause_saves_the_pod_then_removes_it_and_only_then_is_paused() -> None:
    world = running()
    world.edit(pause=True)
    world.run()
    assert (world.phase, world.reason("Progressing")) == ("Pausing", "PauseInProgress")
    assert world.status["pauseObservedGeneration"] == generation(world)
    assert annotations(world)[names.ENDPOINTS] == "[]"
    world.run()
    assert world.snapshot is not None
    world.saved()
    world.run()
    assert world.phase == "Pausing", "the pod is only terminating"
    assert world.pods["box-0"].deleting
    world.gone()
    world.run()
    assert (world.phase, world.reason("Paused")) == ("Paused", "Paused")
    assert [world.status[n] for n in ("replicas", "allocated", "ready")] == [0, 0, 0]
    assert world.box["spec"]["replicas"] == 1
    assert world.box["spec"]["pause"] is True
    assert world.events[-2:] == ["Pausing", "Paused"]


@pytest.mark.parametrize("writes", range(9))
def test_a_pause_and_a_resume_survive_a_crash_after_any_write(writes: int) -> None:
    for make in (running, pooled):
        for stage in range(8):
            world = make()
            world.edit(pause=True)
            for number in range(8):
                world.cut = writes if number == stage else None
                world.run()
                if world.snapshot is not None and world.snapshot.phase == "Pending":
                    world.saved(source_template={"spec": {"containers": [{"name": "main", "image": "img:1"}]}})
                world.pool_pass()
                world.gone()
            world.cut = None
            world.run(3)
            assert world.phase == "Paused", f"{make.__name__} stage {stage}"
            world.edit(pause=False)
            for number in range(6):
                world.cut = writes if number == stage else None
                world.run()
            world.cut = None
            world.run(2)
            assert list(world.pods) == ["box-0"]
            world.pods["box-0"] = pod("box-0", uid="new", main_image=world.pods["box-0"].main_image)
            world.run(3)
            world.gone()
            assert (world.phase, world.snapshot) == ("Succeed", None), f"{make.__name__} stage {stage}"


def test_a_pod_on_a_silent_node_is_forced_away_after_its_grace() -> None:
    world = running()
    world.edit(pause=True)
    world.run(2)
    world.saved()
    world.run(2)
    assert world.phase == "Pausing"
    world.wait(35)
    world.run()
    assert world.pods == {}
    world.run()
    assert world.phase == "Paused"


def test_a_pod_that_shows_up_late_is_removed_from_a_paused_sandbox() -> None:
    world = pause(running())
    world.ready("box-0")
    world.run()
    assert world.pods["box-0"].deleting
    assert world.phase == "Paused"


def test_only_pods_that_the_sandbox_controls_are_removed() -> None:
    world = running()
    world.pods["other"] = pod("other", owner_uid="somebody")
    world.edit(pause=True)
    world.run(2)
    world.saved()
    world.run()
    assert not world.pods["other"].deleting


def test_the_acknowledged_generation_is_the_decided_one_and_a_later_intent_survives() -> None:
    world = running()
    world.edit(pause=True)
    world.run()
    decided = world.status["pauseObservedGeneration"]
    world.edit(pause=False)
    world.run()
    world.saved()
    world.run()
    assert world.status["pauseObservedGeneration"] == decided
    world.gone()
    world.run()
    assert world.phase == "Paused"
    assert world.status["pauseObservedGeneration"] == decided
    world.run()
    assert world.phase == "Resuming"


@pytest.mark.parametrize("phase", ["Paused", "Succeed"])
def test_renewing_the_expiry_never_pauses_or_resumes(phase: str) -> None:
    world = pause(running())
    if phase == "Succeed":
        world.edit(pause=False)
        world.run(4)
        world.ready()
        world.run(2)
        world.gone()
    assert world.phase == phase
    before = (dict(world.pods), world.snapshot)
    for hours in (1, 2, 3):
        world.edit(expireTime=times.format(world.now.replace(hour=12 + hours, minute=59)))
        world.run()
        assert world.phase == phase
        assert world.status["pauseObservedGeneration"] == generation(world)
    assert (dict(world.pods), world.snapshot) == before


def test_a_resume_that_just_succeeded_is_not_followed_by_another_one() -> None:
    world = pause(running())
    world.edit(pause=False)
    world.run(3)
    world.ready(main_image=world.bodies["box-0"]["spec"]["containers"][0]["image"])
    phases = []
    for _ in range(4):
        world.run()
        phases.append(world.phase)
    assert phases == ["Succeed"] * 4
    assert world.status["pauseObservedGeneration"] == generation(world)
    assert world.events.count("Resuming") == 1


def test_an_explicit_false_at_creation_is_a_plain_start() -> None:
    world = running(pause=False)
    assert world.phase == "Succeed"
    assert "Resuming" not in world.events


def test_true_at_creation_starts_the_pod_first_and_pauses_when_it_runs() -> None:
    world = World(replicas=1, pause=True, template={"spec": {"containers": [{"name": "main", "image": "i"}]}})
    world.run()
    assert list(world.pods) == ["box-0"]
    assert world.status["pauseObservedGeneration"] == 0
    assert world.phase == "Pending"
    world.wait(400)
    world.run()
    assert world.reason("PauseFailed") == "WaitingForPod"
    world.ready()
    world.run()
    assert world.phase == "Pausing"


def test_more_than_one_replica_is_refused_with_the_phase_unchanged() -> None:
    world = World(replicas=2, template={"spec": {"containers": [{"name": "main", "image": "i"}]}})
    world.run()
    world.edit(pause=True)
    world.run()
    assert world.phase == "Pending"
    assert world.reason("PauseFailed") == "UnsupportedReplicas"
    assert world.status["pauseObservedGeneration"] == generation(world)
    message = next(c["message"] for c in world.status["conditions"] if c["type"] == "PauseFailed")
    assert message == "pause/resume currently supports only BatchSandbox spec.replicas=1; got spec.replicas=2"
    assert world.snapshot is None


def test_a_failed_snapshot_lets_the_sandbox_run_on_and_can_be_retried() -> None:
    world = running()
    world.edit(pause=True)
    world.run(2)
    world.saved(phase=names.FAILED, message="registry says no")
    world.run()
    assert (world.phase, world.reason("PauseFailed")) == ("Succeed", "SnapshotFailed")
    world.run(3)
    assert world.phase == "Succeed", "the same generation is not tried again"
    # The server's retry: null, then true, of which only the second may be seen
    world.edit(pause=None)
    world.edit(pause=True)
    world.run()
    world.gone()
    world.run(2)
    assert world.phase == "Pausing"
    assert world.reason("PauseFailed") == ""


def test_a_pod_that_vanishes_while_pausing_is_a_loss_that_the_sandbox_recovers_from() -> None:
    world = running()
    world.edit(pause=True)
    world.run(2)
    world.pods.clear()
    world.saved(phase=names.FAILED, message="source pod not found")
    world.run()
    assert (world.phase, world.reason("PauseFailed")) == ("Failed", "PodNotFound")
    text = next(c["message"] for c in world.status["conditions"] if c["type"] == "PauseFailed")
    assert "content is lost" in text
    world.run()
    world.ready()
    world.run()
    assert (world.phase, world.reason("PauseFailed")) == ("Succeed", "PodNotFound")


def test_a_pause_that_does_not_end_gives_up_and_removes_its_snapshot() -> None:
    world = running()
    world.edit(pause=True)
    world.run(2)
    world.wait(13 * 60)
    world.run()
    assert (world.phase, world.reason("PauseFailed")) == ("Succeed", "PauseTimeout")
    assert world.snapshot is not None
    assert world.snapshot.deleting, "its clean-up unfreezes the containers"


def test_the_time_of_a_pause_counts_from_its_own_beginning() -> None:
    world = World(replicas=1, pause=True, template={"spec": {"containers": [{"name": "main", "image": "i"}]}})
    world.run()
    world.wait(3600)
    world.ready(ready=False)
    world.run(2)
    assert world.phase == "Pausing"


def test_the_newest_intent_queued_during_a_failing_pause_is_not_swallowed() -> None:
    world = running()
    world.edit(pause=True)
    world.run(2)
    world.edit(pause=False)
    world.saved(phase=names.FAILED)
    world.run()
    assert world.status["pauseObservedGeneration"] < generation(world)
    world.run()
    assert world.phase == "Succeed"
    assert world.status["pauseObservedGeneration"] == generation(world)


def test_tasks_are_stopped_before_the_snapshot_but_not_for_ever() -> None:
    world = running(taskTemplate={"spec": {"process": {"command": ["x"]}}})
    world.edit(pause=True)
    world.run(3)
    assert world.snapshot is None
    world.wait(60)
    world.run()
    assert world.snapshot is not None
    assert "TaskStopTimeout" in world.events


def test_stopped_tasks_let_the_snapshot_be_made_at_once() -> None:
    world = running(taskTemplate={"spec": {"process": {"command": ["x"]}}})
    world.edit(pause=True)
    world.run()
    plan = batch.plan(replace(world.view(), tasks=TaskSummary(stopped=True)))
    made = of(plan, CreateObject)[0]
    assert (made.kind, made.name) == ("snapshot", "box-pause")
    assert made.body["spec"] == {"sandboxName": "box"}
    assert made.body["metadata"]["ownerReferences"][0]["controller"] is True


def test_a_snapshot_of_somebody_else_is_neither_used_nor_deleted() -> None:
    world = running()
    world.edit(pause=True)
    world.snapshot = replace(_foreign(), deleting=False)
    world.run()
    assert (world.phase, world.reason("PauseFailed")) == ("Succeed", "SnapshotNameConflict")
    assert world.snapshot is not None
    assert not world.snapshot.deleting


def test_a_terminating_snapshot_of_an_earlier_sandbox_is_waited_for() -> None:
    world = running()
    world.edit(pause=True)
    world.snapshot = replace(_foreign(), deleting=True)
    world.run()
    assert (world.phase, world.reason("PauseFailed")) == ("Succeed", "")
    world.gone()
    world.run()
    assert world.phase == "Pausing"


def _foreign() -> SnapshotFact:
    return snapshot(owner_uid="somebody", uid="foreign")


def test_names_of_snapshots_stay_within_the_limit() -> None:
    assert snapshot_name("a") == "a-pause"
    assert len(snapshot_name("a" * 253)) == 253
    assert snapshot_name("a" * 253).endswith("-pause")


# -- pooled pause ----------------------------------------------------------------------------------------------------

SOLID = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": "img:1"}]}}


def test_a_pooled_pause_gives_the_pod_back_before_it_is_paused() -> None:
    world = pooled()
    world.edit(pause=True)
    world.run(2)
    world.saved(source_template=SOLID)
    world.run()
    # The first phase is one patch: template, no pool, record and forced release, finalizer kept
    assert world.box["spec"]["poolRef"] == ""
    assert world.box["spec"]["template"] == SOLID
    held = record.parse(annotations(world)[names.ALLOC_STATUS])
    assert held is not None
    assert (held.detaching, held.pool_ref, held.pool_uid, held.pods) == (True, "warm", "pool-uid", ("warm-1",))
    assert annotations(world)[names.ALLOC_RELEASE] == '{"pods":["warm-1"],"force":["warm-1"]}'
    assert world.box["metadata"]["finalizers"] == [names.FINALIZER_POOL]
    world.run(3)
    assert world.phase == "Pausing", "the pool has not taken its pod back"
    world.pool_pass()
    world.run()
    assert world.phase == "Paused"
    kept = annotations(world)
    assert not {names.ALLOC_STATUS, names.ALLOC_RELEASE, names.ALLOC_RELEASED} & set(kept)
    assert world.box["metadata"]["finalizers"] == []


def test_a_detach_from_a_pool_that_is_gone_is_finished_by_the_sandbox_itself() -> None:
    world = pooled()
    world.edit(pause=True)
    world.run(2)
    world.saved(source_template=SOLID)
    world.run()
    world.pool_deleted = True
    world.run(2)
    assert world.phase == "Paused"
    assert names.ALLOC_STATUS not in annotations(world)


def test_a_pod_deleted_after_its_snapshot_does_not_stop_the_pause() -> None:
    world = pooled()
    world.edit(pause=True)
    world.run(2)
    world.saved(source_template=SOLID)
    world.pool_pods.clear()
    world.run()
    world.pool_pass()
    world.run()
    assert world.phase == "Paused"


def test_a_failed_pooled_pause_keeps_the_pod() -> None:
    world = pooled()
    world.edit(pause=True)
    world.run(2)
    world.saved(phase=names.FAILED, message="no")
    world.run()
    assert world.phase == "Succeed"
    assert names.ALLOC_RELEASE not in annotations(world)


def test_a_template_that_was_only_a_hint_is_replaced_and_not_merged() -> None:
    hint = {"metadata": {"labels": {"gpu": "a"}}, "spec": {"nodeSelector": {"gpu": "a"}, "containers": []}}
    world = pooled(template=hint)
    world.edit(pause=True)
    world.run(2)
    world.saved(source_template=SOLID)
    world.run()
    assert world.box["spec"]["template"] == SOLID


# -- resume ----------------------------------------------------------------------------------------------------------


def resumed(world: World) -> World:
    world.edit(pause=False)
    world.run(3)
    return world


def test_a_resume_starts_a_pod_from_the_saved_images_by_digest() -> None:
    world = resumed(pause(running()))
    image = world.bodies["box-0"]["spec"]["containers"][0]["image"]
    assert image.startswith("reg.example/ns/box/main@sha256:")
    assert world.box["spec"]["template"]["spec"]["containers"][0]["image"] == image
    assert world.phase == "Resuming"
    memory = orjson.loads(annotations(world)[names.RESUMED_FROM])
    assert (memory["images"], memory["cycles"]) == ({"main": image}, 1)
    world.ready(main_image=image)
    world.run()
    assert (world.phase, world.reason("Ready")) == ("Succeed", "PodsReady")
    world.run()
    assert world.snapshot is not None
    assert world.snapshot.deleting


def test_images_of_the_snapshot_win_over_shard_patches() -> None:
    patch = {"spec": {"containers": [{"name": "main", "image": "original"}]}}
    world = resumed(pause(running(shardPatches=[patch])))
    assert world.bodies["box-0"]["spec"]["containers"][0]["image"].startswith("reg.example/")


def test_the_pull_secret_is_added_once() -> None:
    world = pause(running())
    world.options = replace(world.options, resume_pull_secret="pull")
    world = resumed(world)
    assert world.bodies["box-0"]["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    world.ready(main_image=world.bodies["box-0"]["spec"]["containers"][0]["image"])
    world.run(2)
    world.gone()
    again = resumed(pause(world))
    assert again.box["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "pull"}]


def test_a_missing_pull_secret_is_told() -> None:
    world = pause(running())
    world.options = replace(world.options, resume_pull_secret="pull")
    world.edit(pause=False)
    world.run()
    plan = batch.plan(replace(world.view(), pull_secret_missing=True))
    assert "ResumePullSecretMissing" in [getattr(a, "reason", "") for a in plan.actions]


def test_containers_without_a_saved_image_are_told() -> None:
    two = {"spec": {"containers": [{"name": "main", "image": "a"}, {"name": "side", "image": "b"}]}}
    world = resumed(pause(running(template=two)))
    assert "ContainersNotRestored" in world.events
    assert world.bodies["box-0"]["spec"]["containers"][1]["image"] == "b"


def test_a_missing_snapshot_sends_a_resume_back_and_creates_no_pod() -> None:
    world = pause(running())
    world.snapshot = None
    world.edit(pause=False)
    world.run(2)
    assert (world.phase, world.reason("ResumeFailed")) == ("Paused", "SnapshotNotFound")
    assert world.pods == {}
    assert world.box["spec"]["pause"] is False
    world.run(3)
    assert world.phase == "Paused", "not tried again without a new request"


def test_a_snapshot_that_is_not_ready_sends_a_resume_back() -> None:
    world = pause(running())
    world.saved(phase=names.COMMITTING)
    world.edit(pause=False)
    world.run(2)
    assert (world.phase, world.reason("ResumeFailed")) == ("Paused", "SnapshotNotReady")
    text = next(c["message"] for c in world.status["conditions"] if c["type"] == "ResumeFailed")
    assert text == "snapshot not ready: phase=Committing"


def test_once_the_images_are_in_the_template_the_snapshot_may_vanish() -> None:
    world = resumed(pause(running()))
    world.snapshot = None
    world.run(2)
    assert world.phase == "Resuming"
    assert list(world.pods) == ["box-0"]
    world.ready(main_image=world.bodies["box-0"]["spec"]["containers"][0]["image"])
    world.run()
    assert world.phase == "Succeed"


def test_images_of_an_earlier_cycle_are_never_taken_for_the_present_ones() -> None:
    # Given a sandbox that was paused and resumed once, and paused again
    world = resumed(pause(running()))
    world.ready(main_image=world.bodies["box-0"]["spec"]["containers"][0]["image"])
    world.run(2)
    world.gone()
    world = pause(world)
    # When the second snapshot is lost before the resume
    world.snapshot = None
    world.edit(pause=False)
    world.run(2)
    # Then the resume fails instead of going back to the first snapshot's content
    assert (world.phase, world.reason("ResumeFailed")) == ("Paused", "SnapshotNotFound")


def test_cycles_are_counted_once_each() -> None:
    world = running()
    for cycle in (1, 2, 3):
        world = resumed(pause(world))
        assert orjson.loads(annotations(world)[names.RESUMED_FROM])["cycles"] == cycle
        world.ready(main_image=world.bodies["box-0"]["spec"]["containers"][0]["image"])
        world.run(2)
        world.gone()


def test_a_failed_resume_recovers_by_itself_when_the_pod_becomes_ready() -> None:
    world = resumed(pause(running()))
    image = world.bodies["box-0"]["spec"]["containers"][0]["image"]
    world.ready(phase="Pending", ready=False, waiting=(("main", "CrashLoopBackOff"),), main_image=image)
    world.run()
    assert world.phase == "Failed"
    assert (world.reason("ResumeFailed"), world.reason("PodFailed")) == ("CrashLoopBackOff", "CrashLoopBackOff")
    world.ready(main_image=image)
    world.run()
    assert (world.phase, world.reason("ResumeFailed"), world.reason("PodFailed")) == ("Succeed", "", "")


def test_a_failed_resume_falls_back_to_paused_so_that_it_can_be_asked_for_again() -> None:
    world = resumed(pause(running()))
    image = world.bodies["box-0"]["spec"]["containers"][0]["image"]
    world.ready(phase="Pending", ready=False, waiting=(("main", "CrashLoopBackOff"),), main_image=image)
    world.run()
    world.wait(601)
    world.run()
    assert (world.phase, world.reason("ResumeFailed")) == ("Paused", "CrashLoopBackOff")
    world.gone()
    assert world.pods == {}
    assert world.snapshot is not None
    assert not world.snapshot.deleting
    world.run(2)
    assert world.phase == "Paused"
    world.edit(pause=None)
    world.edit(pause=False)
    world.run(3)
    assert world.phase == "Resuming"
    assert list(world.pods) == ["box-0"]


def test_a_resume_that_never_gets_a_ready_pod_times_out() -> None:
    world = resumed(pause(running()))
    world.wait(601)
    world.run()
    assert (world.phase, world.reason("ResumeFailed")) == ("Paused", "ResumeTimeout")
    assert world.pods["box-0"].deleting


def test_a_retry_from_failed_replaces_the_broken_pod() -> None:
    world = resumed(pause(running()))
    image = world.bodies["box-0"]["spec"]["containers"][0]["image"]
    world.ready(phase="Pending", ready=False, waiting=(("main", "CrashLoopBackOff"),), main_image=image)
    world.run()
    assert world.phase == "Failed"
    world.wait(60)
    world.edit(pause=None)
    world.edit(pause=False)
    world.run(2)
    assert world.phase == "Resuming"
    assert world.pods["box-0"].deleting


def test_terminating_pods_of_before_neither_fail_nor_complete_a_resume() -> None:
    world = resumed(pause(running()))
    world.pods["old"] = pod("old", index_label="0", deleting=1, ready=True)
    world.pods.pop("box-0")
    world.run()
    assert world.phase == "Resuming"


def test_a_ready_pod_of_somebody_else_does_not_complete_a_resume() -> None:
    world = pause(running())
    world.snapshot = None
    world.edit(pause=False)
    world.run()
    world.pods["box-0"] = pod("box-0", owner_uid="somebody", box_label="box")
    world.run()
    assert (world.phase, world.reason("ResumeFailed")) == ("Paused", "SnapshotNotFound")


def test_a_sandbox_in_resuming_with_a_ready_pod_and_no_snapshot_is_running() -> None:
    world = pause(running())
    world.snapshot = None
    world.edit(pause=False)
    world.run()
    world.ready()
    world.run()
    assert (world.phase, world.reason("ResumeFailed")) == ("Succeed", "")


def test_a_pause_asked_for_during_a_resume_is_made_afterwards() -> None:
    world = resumed(pause(running()))
    world.edit(pause=True)
    world.run()
    assert world.phase == "Resuming"
    world.ready(main_image=world.bodies["box-0"]["spec"]["containers"][0]["image"])
    world.run()
    assert world.phase == "Succeed"
    world.run()
    world.gone()
    world.run(2)
    assert world.phase == "Pausing"


# -- small parts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "digest", "found"),
    [
        ("reg:5000/ns/box/main:snap-1", "sha256:ab", "reg:5000/ns/box/main@sha256:ab"),
        ("reg:5000/ns/box/main:snap-1", "", "reg:5000/ns/box/main:snap-1"),
        ("main:1", "sha256:ab", "main@sha256:ab"),
    ],
)
def test_an_image_is_referred_to_by_digest_when_it_is_known(uri: str, digest: str, found: str) -> None:
    assert image_reference(uri, digest) == found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"a": 1}),
        ({"a": {"b": 1, "c": [1]}, "d": 2}, {"a": {"c": [2]}}),
        ({"a": {"b": 1}}, {"a": 3}),
        ({"a": 1}, {"a": 1}),
    ],
)
def test_the_difference_as_a_merge_patch_gives_the_new_document(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merge(old, merge_diff(old, new)) == new


def test_a_condition_without_a_time_starts_its_clock_now() -> None:
    world = running()
    world.edit(pause=True)
    world.run()
    del world.status["conditions"][0]["lastTransitionTime"]
    world.run()
    assert world.phase == "Pausing"
    assert condition("Progressing")["status"] == "True"
