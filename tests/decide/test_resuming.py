"""Resuming a sandbox, and every way in which that fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from osb.api import names
from osb.decide import batch
from osb.decide.moves import merge_diff
from osb.decide.plan import PatchObject
from osb.decide.savedimages import image_reference
from tests.doubles.boxes import condition, of, pod
from tests.doubles.boxworld import World, merge, pause, running


def annotations(world: World) -> dict[str, str]:
    return dict(world.box["metadata"].get("annotations") or {})


def generation(world: World) -> int:
    return int(world.box["metadata"]["generation"])


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


def test_the_end_of_a_resume_is_looked_at_again_soon_because_its_own_write_wakes_nobody() -> None:
    world = resumed(pause(running()))
    world.ready(main_image=world.bodies["box-0"]["spec"]["containers"][0]["image"])
    plan = world.run()
    assert world.phase == "Succeed"
    assert plan.again is not None and plan.again <= 1  # the snapshot is still there, and a new wish may be


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


def test_the_hundredth_cycle_is_warned_about_once() -> None:
    world = pause(running())
    memory = {"snapshot": "earlier", "images": {}, "cycles": 99}
    world.box["metadata"].setdefault("annotations", {})[names.RESUMED_FROM] = orjson.dumps(memory).decode()
    resumed(world)
    assert world.events.count("ManyImageLayers") == 1


def test_the_template_is_rewritten_only_if_the_sandbox_is_as_it_was_read() -> None:
    world = pause(running())
    world.edit(pause=False)
    world.run()
    patch = of(batch.plan(world.view()), PatchObject)[0]
    assert "template" in patch.patch["spec"]
    assert patch.version == world.box["metadata"]["resourceVersion"]


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
    # The rewritten template raised the generation: that is no new request
    world.run(3)
    assert world.phase == "Paused"


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
    world.edit(pause=False)
    world.run()
    world.snapshot = None
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


def _message(world: World, kind: str) -> str:
    return next(str(c["message"]) for c in world.status["conditions"] if c["type"] == kind)


def test_the_deletion_of_a_paused_sandboxs_snapshot_is_told_at_once_with_the_images_that_are_left() -> None:
    # Given a paused sandbox whose snapshot somebody deletes; its finalizer keeps it for a moment
    world = pause(running())
    assert world.snapshot is not None
    [(container, uri, digest)] = world.snapshot.containers
    image = f"image {uri.rpartition(':')[0]}@{digest} (container {container})"
    world.snapshot = replace(world.snapshot, deleting=True)
    world.run()
    # Then condition and Event say so, with what can still be done, and it stays paused
    assert (world.phase, world.reason("Paused")) == ("Paused", "SnapshotNotFound")
    assert "box-pause was deleted" in _message(world, "Paused") and image in _message(world, "Paused")
    assert world.events.count("PauseSnapshotDeleted") == 1
    # And the images are remembered when it is gone, also by the resume that fails then
    world.gone()
    world.run(2)
    assert image in _message(world, "Paused")
    world.edit(pause=False)
    world.run(2)
    assert (world.phase, world.reason("ResumeFailed")) == ("Paused", "SnapshotNotFound")
    assert _message(world, "ResumeFailed").startswith("SandboxSnapshot not found: ")
    assert image in _message(world, "ResumeFailed") and image in _message(world, "Paused")
    assert world.status["pauseObservedGeneration"] == world.box["metadata"]["generation"]
    assert world.events.count("PauseSnapshotDeleted") == 1


def test_a_snapshot_that_is_restored_ends_the_complaint() -> None:
    world = pause(running())
    kept, world.snapshot = world.snapshot, None
    world.run()
    assert world.reason("Paused") == "SnapshotNotFound"
    assert "the saved image" in _message(world, "Paused"), "nobody saw which"
    world.snapshot = kept
    world.run()
    assert (world.reason("Paused"), _message(world, "Paused")) == ("Paused", "Sandbox is paused")


def test_a_snapshot_that_is_not_needed_any_more_is_not_missed() -> None:
    # Given a resume that put the images into the template and then ran out of time
    world = pause(running())
    world.edit(pause=False)
    world.run(2)
    world.snapshot = None
    world.wait(700)
    world.run(2)
    assert (world.phase, world.reason("ResumeFailed")) == ("Paused", "ResumeTimeout")
    assert world.reason("Paused") == "Paused"


def test_a_resume_that_took_too_long_says_what_its_pod_waited_for() -> None:
    world = resumed(pause(running()))
    image = world.bodies["box-0"]["spec"]["containers"][0]["image"]
    world.ready(phase="Pending", ready=False, unschedulable=True, main_image=image)
    world.wait(700)
    world.run()
    assert (world.phase, world.reason("ResumeFailed")) == ("Paused", "ResumeTimeout")
    assert _message(world, "ResumeFailed") == "no pod was ready within 10 min: no node can take pod box-0"
