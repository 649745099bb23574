"""A snapshot that is final or deleted, and the image names it uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from osb.api import names, times
from osb.decide import snapshot
from osb.decide.plan import DeleteObject, EmitEvent, PatchObject, Plan
from osb.decide.snapsource import check_reference, option_problems, tag
from osb.errors import InvalidInput
from tests.doubles.boxes import NOW, at, box, condition, of
from tests.doubles.snapviews import (
    OPTIONS,
    SNAP_UID,
    committing,
    done_job,
    failed_job,
    job,
    made,
    recorded,
    snap,
    source,
    view,
)

# -- final -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Succeed", "Failed"])
def test_a_final_phase_keeps_its_reason_and_only_the_generation_follows(phase: str) -> None:
    kind, reason = ("Ready", "SnapshotReady") if phase == "Succeed" else ("Failed", "CommitJobFailed")
    stored = recorded(phase, conditions=[condition(kind, reason, "why")])
    obj = snap(**stored)
    obj["metadata"]["generation"] = 4
    plan = snapshot.plan(view(obj, commit_job=failed_job(), source=None))
    assert plan.status == {**stored, "observedGeneration": 4}


def test_a_finished_job_is_kept_five_minutes_and_then_deleted() -> None:
    obj = snap(**recorded("Succeed", conditions=[condition("Ready", "SnapshotReady", since=-299)]))
    early = snapshot.plan(view(obj, commit_job=done_job()))
    assert of(early, DeleteObject) == []
    assert early.again == pytest.approx(1)
    late = snapshot.plan(view(obj, commit_job=done_job(), now=at(2)))
    assert [a.name for a in of(late, DeleteObject)] == ["box-pause-commit"]


# -- deletion --------------------------------------------------------------------------------------------------------


def going(obj: dict[str, Any], *, seconds: float = 1) -> dict[str, Any]:
    obj["metadata"]["deletionTimestamp"] = times.format(at(-seconds))
    return obj


def released(plan: Plan) -> bool:
    return any(action.patch["metadata"]["finalizers"] == [] for action in of(plan, PatchObject))


def test_a_paused_sandbox_notes_the_images_of_its_snapshot_before_that_goes() -> None:
    # Given a snapshot that is deleted under its paused sandbox
    obj = going(snap(**recorded("Succeed")))
    paused = box(pause=True, status={"phase": "Paused", "conditions": [condition("Paused", "Paused")]})
    first = snapshot.plan(view(obj, box=paused, source=None))
    assert (released(first), first.again) == (False, 1.0)
    # Then it goes as soon as the sandbox says so, or after a while
    told = box(pause=True, status={"phase": "Paused", "conditions": [condition("Paused", "SnapshotNotFound")]})
    assert released(snapshot.plan(view(obj, box=told, source=None)))
    assert released(snapshot.plan(view(going(obj, seconds=11), box=paused, source=None)))
    # And nobody is waited for when the sandbox runs or goes
    for other in (box(status={"phase": "Succeed"}), box(status={"phase": "Paused"}, deleting=True)):
        assert released(snapshot.plan(view(going(obj), box=other, source=None)))


def test_a_final_snapshot_is_released_at_once_with_its_jobs() -> None:
    obj = going(snap(internal=False, **recorded("Succeed")))
    plan = snapshot.plan(view(obj, commit_job=done_job()))
    assert released(plan)
    assert [a.name for a in of(plan, DeleteObject)] == ["box-pause-commit"]


def test_deleting_in_mid_commit_stops_the_job_and_unfreezes_before_letting_go() -> None:
    obj = going(committing())
    first = snapshot.plan(view(obj, commit_job=job(active=1)))
    assert [a.name for a in of(first, DeleteObject)] == ["box-pause-commit"]
    assert made(first) == ["box-pause-unpause"]
    assert not released(first)
    ending = {"metadata": {}, "status": {"phase": "Running"}}
    unpause = job(name="box-pause-unpause", active=1)
    assert not released(snapshot.plan(view(obj, unpause_job=unpause, job_pods=(ending,))))
    assert not released(snapshot.plan(view(obj, unpause_job=unpause)))
    assert released(snapshot.plan(view(obj, unpause_job=job(name="box-pause-unpause", succeeded=1))))


def test_a_pause_that_was_given_up_unfreezes_what_its_commit_left_frozen() -> None:
    obj = going(snap(**recorded("Succeed")))
    plan = snapshot.plan(view(obj))
    assert made(plan) == ["box-pause-unpause"]
    assert not released(plan)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": None},
        {"source": source(uid="the-resumed-one")},
        {"box": None},
        {"box": box(deleting=True)},
        {"node_gone": True},
    ],
    ids=["pod gone", "pod replaced", "sandbox gone", "sandbox going", "node gone"],
)
def test_nothing_is_unfrozen_for_a_pod_that_does_not_go_on(changes: dict[str, Any]) -> None:
    plan = snapshot.plan(view(going(snap(**recorded("Succeed"))), **changes))
    assert made(plan) == []
    assert released(plan)


def test_deletion_never_takes_longer_than_its_limit() -> None:
    plan = snapshot.plan(view(going(committing(), seconds=200), unpause_job=job(name="box-pause-unpause", active=1)))
    assert released(plan)
    assert [e.reason for e in of(plan, EmitEvent)] == ["CleanupTimeout"]


def test_a_namespace_that_takes_no_jobs_any_more_does_not_hold_the_deletion() -> None:
    plan = snapshot.plan(view(going(snap(**recorded("Succeed"))), create_refused="namespace is being terminated"))
    assert released(plan)
    assert made(plan) == []


def test_other_finalizers_stay() -> None:
    obj = going(snap(internal=False, **recorded("Failed")))
    obj["metadata"]["finalizers"] = ["a/b", names.FINALIZER_SNAPSHOT, "c/d"]
    plan = snapshot.plan(view(obj, source=None))
    assert of(plan, PatchObject)[0].patch["metadata"]["finalizers"] == ["a/b", "c/d"]


# -- image references ------------------------------------------------------------------------------------------------


def test_tags_tell_pause_from_public_snapshots_and_incarnations_apart() -> None:
    assert tag("box-pause", SNAP_UID, generation=7) == "snap-gen7-5a9d0c11"
    public = "osb-snap-11111111222243338444555555555555"
    assert tag(public, SNAP_UID, generation=None) == "snap-11111111222243338444555555555555-5a9d0c11"
    other = tag("mine", SNAP_UID, generation=None)
    assert other.startswith("snap-")
    assert len(other) == len("snap-") + 32 + 9


def test_namespace_sandbox_and_container_are_separate_parts_of_an_image() -> None:
    uris = set()
    for name, container in (("a-b", "c"), ("a", "b-c")):
        live = source()
        live["spec"]["containers"] = [{"name": container}]
        spec = box(name=name, template={"spec": {"containers": [{"name": container}]}})
        plan = snapshot.plan(view(snap(), box=spec, source=live))
        assert plan.status is not None
        uris.add(plan.status["containers"][0]["imageUri"])
    assert len(uris) == 2
    assert all("/ns/" in uri for uri in uris)


def test_a_long_sandbox_name_still_gives_an_image_name() -> None:
    plan = snapshot.plan(view(snap(), box=box(name="b" * 253)))
    assert plan.status is not None
    check_reference(plan.status["containers"][0]["imageUri"])


@pytest.mark.parametrize(
    "uri",
    ["https://reg/ns/a:t", "reg/ns//a:t", "reg/Ns/a:t", "reg/ns/a:", "a:t", "reg/ns/" + "a" * 260 + ":t", "/ns/a:t"],
)
def test_references_that_a_registry_refuses_are_refused_first(uri: str) -> None:
    with pytest.raises(InvalidInput):
        check_reference(uri)


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"registry": "https://reg.example"}, "--snapshot-registry"),
        ({"registry": "reg.example/"}, "--snapshot-registry"),
        ({"image_template": "{registry}/{sandbox}/{container}:{tag}"}, "--snapshot-image-template"),
        ({"image_template": "{registry}/{namespace}/{sandbox}/{container}:latest"}, "--snapshot-image-template"),
        ({"image_template": "{registry}/{namespace}/{oops}:{tag}"}, "--snapshot-image-template"),
        ({"job_timeout": 0.5}, "--commit-job-timeout"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_start(changes: dict[str, Any], flag: str) -> None:
    assert {problem.field for problem in option_problems(replace(OPTIONS, **changes))} == {flag}


def test_good_settings_have_no_problems() -> None:
    flat = "{registry}/{namespace}--{sandbox}--{container}:{tag}"
    assert option_problems(OPTIONS) == option_problems(replace(OPTIONS, image_template=flat)) == []
    assert option_problems(replace(OPTIONS, registry="reg.example:5000/team/a")) == []
    assert at(0) == NOW


# -- what it says ----------------------------------------------------------------------------------------------------


def test_a_deletion_names_the_finalizer_and_what_it_waits_for() -> None:
    waiting = snapshot.plan(view(going(committing()), commit_job=job(active=1)))
    assert waiting.reasons == (
        f"terminating; finalizer {names.FINALIZER_SNAPSHOT} holds it: its commit Job is stopped, "
        "containers are unfrozen",
    )
    others = going(snap(finalizer=False))
    others["metadata"]["finalizers"] = ["example.com/keep"]
    [told] = snapshot.plan(view(others)).reasons
    assert told == "terminating; nothing of ours holds it; finalizers of others do: example.com/keep"


@pytest.mark.parametrize("alive", [True, False])
def test_a_clean_up_that_is_given_up_speaks_of_frozen_containers_only_if_there_are_any(alive: bool) -> None:
    obj = going(snap(**recorded("Committing")), seconds=200)
    plan = snapshot.plan(view(obj, commit_job=job(active=1), source=source() if alive else None))
    [event] = of(plan, EmitEvent)
    assert event.message.startswith("clean-up was given up after 180 s")
    assert ("pod box-0 may still be frozen" in event.message) is alive
