"""The line that tells where a pause or a resume stands."""

from __future__ import annotations

from dataclasses import replace

from osb.api import names
from osb.decide import batch
from osb.decide.pausetext import standing
from osb.facts.boxview import Leaving, TaskSummary
from tests.doubles.boxworld import World, pause, pooled, running


def pausing() -> World:
    world = running()
    world.edit(pause=True)
    world.run()
    return world


def test_a_running_sandbox_has_nothing_to_say() -> None:
    assert standing(running().view()) == ""


def test_a_pause_names_its_step_what_it_waits_for_and_its_limit() -> None:
    world = pausing()
    assert standing(world.view()).startswith("pause, step 2 of 4: snapshot box-pause is to be made; given up in 13 min")
    world.run()
    told = standing(world.view(), "The commit Job runs, attempt 1 of 3")
    assert told.startswith("pause, step 3 of 4: snapshot box-pause is Pending (The commit Job runs, attempt 1 of 3)")
    world.saved()
    told = standing(world.view())
    assert told == "pause, step 4 of 4: the images are saved, 1 pod(s) still to go", "it is not given up any more"


def test_a_pool_on_hold_that_keeps_the_saved_pod_is_told() -> None:
    world = pooled()
    world.edit(pause=True)
    world.run(2)
    world.saved(source_template={"spec": {"containers": [{"name": "main", "image": "img:1"}]}})
    world.run()
    assert standing(world.view()) == "pause, step 4 of 4: the pool deletes the pod that was saved"
    held = replace(world.view(), leaving=Leaving(pool="warm", hold=True))
    assert standing(held).startswith("pause, step 4 of 4: pool warm is on hold")
    assert batch.plan(held).reasons == ("pool warm is on hold and takes no pod back",)


def test_tasks_come_first() -> None:
    view = pausing().view()
    view = replace(view, spec=replace(view.spec, task_template={}), tasks=TaskSummary(stopped=False))
    assert "step 1 of 4: its tasks are being stopped" in standing(view)


def test_a_resume_names_its_pod_and_why_it_is_not_ready() -> None:
    world = pause(running())
    world.edit(pause=False)
    world.run()
    assert standing(world.view()).startswith("resume, step 1 of 2: the saved images")
    world.run(2)
    assert "step 2 of 2: pod box-0 is not ready" in standing(world.view())


def test_an_opposite_wish_is_told() -> None:
    world = pausing()
    world.edit(pause=False)
    assert standing(world.view()).endswith("; then resume, as asked meanwhile")


def test_a_failed_pause_says_how_it_is_tried_again() -> None:
    view = running().view()
    failed = {"type": names.PAUSE_FAILED, "status": "True", "reason": "SnapshotFailed", "message": ""}
    seen = {"conditions": [failed], "pauseObservedGeneration": view.spec.generation}
    spec = replace(view.spec, pause=True, status={**view.spec.status, **seen})
    assert standing(replace(view, spec=spec)).startswith("the last pause failed; asked again")


def test_a_failed_pause_that_lost_its_pod_is_tried_again_only_when_one_runs() -> None:
    world = pausing()
    world.run()
    world.pods.clear()
    world.saved(phase=names.FAILED, message="source pod not found")
    world.run()
    assert world.phase == "Failed"
    assert "(pause: null, then the value), once its pod runs it is tried again" in standing(world.view())


def test_a_sandbox_that_gave_its_pod_back_is_not_told_to_ask_again() -> None:
    view = running().view()
    failed = {"type": names.PAUSE_FAILED, "status": "True"}
    seen = {"conditions": [failed], "pauseObservedGeneration": view.spec.generation}
    spec = replace(view.spec, pause=True, status={**view.spec.status, **seen})
    view = replace(view, spec=spec, pods=(), tasks=TaskSummary(done=frozenset({0})))
    assert standing(view) == "it cannot be paused: its pod was given back, and no other one takes its place"


def test_a_pause_of_several_says_what_to_change_before_and_after_it_was_refused() -> None:
    world = running()
    world.edit(pause=True, replicas=2)
    before = standing(world.view())
    world.run(2)
    assert world.reason("PauseFailed") == "UnsupportedReplicas"
    assert before == standing(world.view())
    assert "set replicas to 1" in before and "asked again" not in before
    # And it is true
    world.edit(replicas=1)
    world.run()
    assert world.phase == "Pausing"


def test_a_resume_without_its_snapshot_says_what_can_be_done() -> None:
    world = pause(running())
    assert standing(world.view()) == ""
    world.snapshot = None
    early = standing(world.view())
    world.edit(pause=False)
    world.run(3)
    assert world.reason("ResumeFailed") == "SnapshotNotFound"
    assert early == standing(world.view())
    assert early.startswith("the pause's snapshot box-pause was deleted") and "restore it" in early


def test_a_failed_resume_says_when_it_is_paused_again_and_that_a_retry_is_possible() -> None:
    world = pause(running())
    world.edit(pause=False)
    world.run(3)
    image = world.bodies["box-0"]["spec"]["containers"][0]["image"]
    world.ready(phase="Pending", ready=False, waiting=(("main", "CrashLoopBackOff"),), main_image=image)
    world.run()
    assert world.phase == "Failed"
    told = standing(world.view())
    assert "it is Paused again in 10 min; a retry is possible at once" in told
    # And it is true
    world.edit(pause=None)
    world.run()
    world.edit(pause=False)
    assert standing(world.view()) == "a resume is asked for and begins with the next pass"
    world.run()
    assert world.phase == "Resuming"
