"""Pausing and resuming a sandbox from beginning to end, interrupted at every write, and everything that goes wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from osb.api import names, times
from osb.decide import batch
from osb.decide.plan import CreateObject, DeleteObject
from osb.decide.restorable import snapshot_name
from osb.facts.boxview import BoxOptions, SnapshotFact, TaskSummary
from tests.doubles.boxes import of, pod, snapshot
from tests.doubles.boxworld import World, pause, pooled, running


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
    world.run()
    assert world.status["pauseObservedGeneration"] == generation(world), "acknowledged together with the completion"
    phases = [world.phase]
    for _ in range(3):
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
    assert next(c["message"] for c in world.status["conditions"] if c["type"] == "PauseFailed") == "registry says no"
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


def message(world: World, kind: str = "PauseFailed") -> str:
    return next(str(c["message"]) for c in world.status["conditions"] if c["type"] == kind)


def test_a_pause_that_does_not_end_says_what_it_waited_for_and_that_the_sandbox_runs_on() -> None:
    world = running()
    world.edit(pause=True)
    world.run(2)
    world.wait(13 * 60)
    world.run()
    assert message(world) == ("the pause did not end within 13 min: snapshot box-pause is Pending; the sandbox runs on")


@pytest.mark.parametrize(("commit", "told"), [(40, "3 min 40 s"), (600, "13 min")])
def test_a_limit_is_told_as_it_was_set(commit: float, told: str) -> None:
    world = running()
    world.options = BoxOptions(commit_timeout=commit)
    world.edit(pause=True)
    world.run(2)
    world.wait(13 * 60)
    world.run()
    assert message(world).startswith(f"the pause did not end within {told}:")


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (None, "its pod is gone"),
        ({"deleting": 1}, "its pod box-0 is being deleted"),
        ({"phase": "Failed", "ready": False}, "its pod box-0 ended (Failed)"),
    ],
)
def test_a_pause_that_lost_its_pod_says_that_it_is_lost_and_not_that_it_runs_on(
    state: dict[str, Any] | None, told: str
) -> None:
    # Given a sandbox whose pod goes while it is paused, and a pause that then takes too long
    world = running()
    world.edit(pause=True)
    world.run(2)
    world.pods.clear()
    if state is not None:
        world.ready(**state)
    world.wait(13 * 60)
    world.run()
    # Then one sentence tells what is true
    assert (world.phase, world.reason("PauseFailed")) == ("Failed", "PodNotFound")
    assert message(world).endswith(f"; {told} and was not saved, so the sandbox's content is lost")
    assert "runs on" not in message(world)


def test_a_taken_name_found_during_a_pause_says_what_to_do_too() -> None:
    world = running()
    world.edit(pause=True)
    world.run()
    world.snapshot = _foreign()
    world.run()
    assert world.reason("PauseFailed") == "SnapshotNameConflict"
    assert message(world).endswith("delete it, then pause again")


def test_a_sandbox_that_gave_its_pod_back_is_refused_a_pause_at_once() -> None:
    # Given a finished sandbox: its task is done, its pod went back to the pool
    world = pooled()
    world.edit(pause=None)
    released = orjson.dumps({"pods": ["warm-1"]}).decode()
    world._patch({"metadata": {"annotations": {names.ALLOC_RELEASE: released, names.ALLOC_RELEASED: released}}})
    world.run()
    assert world.phase == "Succeed"
    # When it is paused
    world.edit(pause=True)
    plan = world.run()
    # Then it hears why not, and nobody waits for a pod
    assert (world.phase, world.reason("PauseFailed")) == ("Succeed", "PodNotFound")
    assert message(world) == "there is no pod to save: the sandbox gave it back, and no other one takes its place"
    assert world.status["pauseObservedGeneration"] == generation(world)
    assert plan.again is None


def test_a_refusal_without_a_pod_claims_no_loss_that_it_does_not_know_of() -> None:
    # Given a sandbox that never got a pod
    world = World(replicas=1, poolRef="warm", allocationTimeoutSeconds=5)
    world.run()
    world.wait(10)
    world.run()
    assert (world.phase, world.reason("PodFailed")) == ("Failed", "AllocationTimeout")
    world.box["metadata"]["generation"] += 1
    world.status["observedGeneration"] = generation(world)
    world.box["spec"]["pause"] = True
    world.run()
    assert world.reason("PauseFailed") == "PodNotFound"
    assert "lost" not in message(world)


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


def test_a_snapshot_of_a_former_sandbox_of_this_name_goes_first_instead_of_failing_the_pause() -> None:
    # Given a sandbox made anew under its name, whose former pause snapshot the garbage collector has not met yet
    world = running()
    world.edit(pause=True)
    world.snapshot = snapshot(owner_uid="a-former-uid", owner_box=world.view().spec.name)
    plan = batch.plan(world.view())
    assert [action.uid for action in of(plan, DeleteObject)] == [world.snapshot.uid]
    assert plan.again is not None
    world.run()
    assert world.reason("PauseFailed") != "SnapshotNameConflict"


def test_a_snapshot_that_another_sandbox_owns_is_a_conflict_and_is_left_alone() -> None:
    world = running()
    world.edit(pause=True)
    world.snapshot = snapshot(owner_uid="another-uid", owner_box="another")
    assert of(batch.plan(world.view()), DeleteObject) == []
    world.run()
    assert world.reason("PauseFailed") == "SnapshotNameConflict"
