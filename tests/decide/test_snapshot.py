"""One pass over a snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from osb.api import names
from osb.decide import snapshot
from osb.decide.plan import DeleteObject, EmitEvent, PatchObject, Plan
from osb.facts.boxview import SnapshotOptions
from tests.doubles.boxes import at, box, condition, of, pod, told
from tests.doubles.snapviews import (
    DIGEST,
    IMAGE,
    committing,
    done_job,
    failed,
    failed_job,
    job,
    job_pod,
    made,
    recorded,
    report,
    snap,
    source,
    view,
)

NO_POD = "source pod not found: no running pod found for BatchSandbox box"
NO_REGISTRY = (
    "snapshot-registry not configured in controller manager; set --snapshot-registry "
    "(OSB_SNAPSHOT_REGISTRY), in the chart controller.snapshot.registry"
)


# -- pending ---------------------------------------------------------------------------------------------------------


def test_the_finalizer_comes_before_everything_else() -> None:
    plan = snapshot.plan(view(snap(finalizer=False)))
    patch = of(plan, PatchObject)[0]
    assert patch.patch["metadata"]["finalizers"] == [names.FINALIZER_SNAPSHOT]
    assert (patch.version, plan.status) == ("8", None)


def test_the_source_is_pinned_by_uid_before_a_job_is_made() -> None:
    plan = snapshot.plan(view(snap()))
    assert plan.status is not None
    assert {k: plan.status[k] for k in ("sourcePodName", "sourcePodUID", "sourceNodeName", "phase")} == {
        "sourcePodName": "box-0",
        "sourcePodUID": "uid-box-0",
        "sourceNodeName": "n1",
        "phase": "Pending",
    }
    assert plan.status["containers"] == [{"containerName": "main", "imageUri": IMAGE}]
    assert made(plan) == []
    assert "sourceTemplate" not in plan.status


def test_the_job_is_made_for_the_pinned_pod_and_seen_before_committing() -> None:
    plan = snapshot.plan(view(snap(**recorded())))
    assert made(plan) == ["box-pause-commit"]
    assert plan.status is not None
    assert plan.status["phase"] == "Pending"
    seen = snapshot.plan(view(snap(**recorded()), commit_job=job(active=1)))
    assert seen.status is not None
    assert (seen.status["phase"], seen.status["jobUID"]) == ("Committing", "uid-box-pause-commit")
    assert told(seen.status["conditions"]) == {"Progressing": "Committing"}
    assert [e.message for e in of(seen, EmitEvent)] == ["Created commit job: box-pause-commit"]


def test_a_pooled_pause_remembers_the_template_of_its_source() -> None:
    held = box(poolRef="warm", pause=True, record={"pods": ["box-0"], "poolRef": "warm"}, status={"phase": "Pausing"})
    plan = snapshot.plan(view(snap(), box=held, box_pods=(), box_slots={0: pod()}))
    assert plan.status is not None
    assert plan.status["sourceTemplate"] == {"spec": {"containers": [{"name": "main", "image": "img:1"}]}}


@pytest.mark.parametrize(
    ("changes", "reason", "message"),
    [
        ({"options": SnapshotOptions()}, "RegistryNotConfigured", NO_REGISTRY),
        ({"box": None}, "BatchSandboxLookupFailed", "failed to get BatchSandbox box: not found"),
        ({"box_pods": ()}, "SourcePodNotFound", NO_POD),
        ({"source": None}, "SourcePodNotFound", NO_POD),
        ({"source": source(uid="another")}, "SourcePodNotFound", NO_POD),
        ({"source": source(deletionTimestamp="2026-05-04T12:00:00Z")}, "SourcePodNotFound", NO_POD),
        ({"box_pods": (pod(owner_uid="other", box_label="box"),)}, "SourcePodNotFound", NO_POD),
        ({"box_pods": (pod("box-1"),)}, "SourcePodNotFound", NO_POD),
    ],
    ids=["registry", "sandbox", "no pod", "gone", "another uid", "terminating", "only labelled", "not slot 0"],
)
def test_without_a_source_it_fails_with_the_reason(changes: dict[str, Any], reason: str, message: str) -> None:
    assert failed(snapshot.plan(view(snap(), **changes))) == (reason, message)


def test_only_single_sandboxes_get_a_public_snapshot() -> None:
    plan = snapshot.plan(view(snap(internal=False), box=box(replicas=2), box_pods=(pod(), pod("box-1"))))
    assert failed(plan)[0] == "UnsupportedReplicas"


def test_a_snapshot_of_a_paused_sandbox_says_where_its_content_is() -> None:
    plan = snapshot.plan(view(snap(internal=False), box=box(status={"phase": "Paused"}), box_pods=()))
    assert "pause snapshot" in failed(plan)[1]


def test_a_stale_record_does_not_choose_the_source() -> None:
    # Given a sandbox that left its pool, whose old pool pod still runs
    left = box(record={"pods": ["warm-1"], "poolRef": "warm"}, pause=True)
    plan = snapshot.plan(view(snap(), box=left, box_slots={0: pod("warm-1", owner_uid="pool")}))
    assert plan.status is not None
    assert plan.status["sourcePodName"] == "box-0"


def test_containers_that_do_not_run_in_the_pod_are_left_out_and_told() -> None:
    template = {"spec": {"containers": [{"name": "main"}, {"name": "renamed"}, {"name": "ended"}]}}
    live = source()
    live["spec"]["containers"] = [{"name": n} for n in ("main", "ended", "injected")]
    live["status"]["containerStatuses"].append({"name": "ended", "state": {"terminated": {}}})
    plan = snapshot.plan(view(snap(), box=box(template=template), source=live))
    assert plan.status is not None
    assert [c["containerName"] for c in plan.status["containers"]] == ["main"]
    assert of(plan, EmitEvent)[0].message.startswith("not saved: renamed, ended, injected")


def test_two_snapshots_of_a_pod_go_one_after_the_other() -> None:
    plan = snapshot.plan(view(snap(**recorded()), rivals=("osb-snap-1",)))
    assert made(plan) == []
    assert plan.status is not None
    assert told(plan.status["conditions"]) == {"Progressing": "WaitingForSnapshot"}
    assert plan.again is not None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"push_secret": "missing"}, "PushSecretNotFound"),
        ({"node_gone": True}, "NodeUnavailable"),
        ({"source": source(uid="another")}, "SourcePodNotFound"),
        ({"create_refused": "is invalid"}, "BuildCommitJobFailed"),
    ],
)
def test_what_can_never_work_fails_before_a_job_is_made(changes: dict[str, Any], reason: str) -> None:
    plan = snapshot.plan(view(snap(**recorded()), **changes))
    assert failed(plan)[0] == reason
    assert made(plan) == []


def test_a_leftover_job_of_an_earlier_snapshot_is_removed_and_never_believed() -> None:
    plan = snapshot.plan(view(snap(**recorded()), commit_job=job(owner="earlier", succeeded=1)))
    assert [(a.name, a.uid) for a in of(plan, DeleteObject)] == [("box-pause-commit", "uid-box-pause-commit")]
    assert plan.status is not None
    assert plan.status["phase"] == "Pending"


def test_a_users_job_of_the_same_name_is_respected() -> None:
    theirs = job(owner="", succeeded=1)
    theirs["metadata"]["labels"] = {}
    plan = snapshot.plan(view(snap(**recorded()), commit_job=theirs))
    assert failed(plan)[0] == "BuildCommitJobFailed"
    assert of(plan, DeleteObject) == []


# -- committing ------------------------------------------------------------------------------------------------------


def test_a_result_for_every_container_makes_it_succeed_with_digests() -> None:
    plan = snapshot.plan(view(committing(), commit_job=done_job(), job_pods=(job_pod(report()),)))
    assert plan.status is not None
    assert plan.status["phase"] == "Succeed"
    assert plan.status["containers"] == [{"containerName": "main", "imageUri": IMAGE, "imageDigest": DIGEST}]
    assert told(plan.status["conditions"]) == {"Ready": "SnapshotReady"}
    assert [e.reason for e in of(plan, EmitEvent)] == ["JobSucceeded"]


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{trunc",
        "[]",
        report(containers=[]),
        report(containers=[{"name": "main", "image": "other", "digest": DIGEST}]),
    ],
    ids=["empty", "cut", "a list", "nothing in it", "another image"],
)
def test_a_result_that_does_not_tell_everything_is_a_failure_and_unfreezes(message: object) -> None:
    plan = snapshot.plan(view(committing(), commit_job=done_job(), job_pods=(job_pod(message),)))
    assert failed(plan)[0] == "ResultUnreadable"
    assert made(plan) == ["box-pause-unpause"]


def test_a_result_of_another_jobs_pod_is_not_taken() -> None:
    plan = snapshot.plan(view(committing(), commit_job=done_job(), job_pods=(job_pod(report(), owner="earlier"),)))
    assert plan.status is not None
    assert plan.status["phase"] == "Committing"
    late = snapshot.plan(view(committing(), commit_job=done_job(), now=at(60)))
    assert failed(late)[0] == "ResultUnreadable"


def test_a_digest_of_a_committer_that_knows_none_is_left_out() -> None:
    old = {"containers": [{"name": "main", "image": IMAGE, "digest": DIGEST}]}
    plan = snapshot.plan(view(committing(), commit_job=done_job(), job_pods=(job_pod(old),)))
    assert plan.status is not None
    assert plan.status["containers"] == [{"containerName": "main", "imageUri": IMAGE}]


def test_a_failed_job_fails_the_snapshot_with_its_words_and_unfreezes() -> None:
    plan = snapshot.plan(view(committing(), commit_job=failed_job("deadline")))
    assert failed(plan) == ("CommitJobFailed", "deadline")
    assert made(plan) == ["box-pause-unpause"]
    assert [e.reason for e in of(plan, EmitEvent)] == ["JobFailed"]


def test_a_failed_job_tells_what_its_last_committer_said() -> None:
    ends = [(1, "old", "2026-01-01T00:00:01Z"), (1, "401 Unauthorized", "2026-01-01T00:00:03Z"), (137, "", "")]
    pods = [job_pod({"v": 1, "error": said}, code=code) for code, said, _ in ends]
    for one, (_, _, at_) in zip(pods, ends, strict=True):
        one["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = at_
    stray = job_pod({"v": 1, "error": "another Job's"}, code=1, owner="other")
    plan = snapshot.plan(view(committing(), commit_job=failed_job("backoff limit"), job_pods=(*pods, stray)))
    assert failed(plan) == ("CommitJobFailed", "backoff limit: 401 Unauthorized")
    assert [e.message for e in of(plan, EmitEvent)] == ["Commit job failed: 401 Unauthorized"]


@pytest.mark.parametrize("message", ["password is x", '{"error":"x"}', '{"v":1,"error":[]}', "[1]", report()])
def test_a_message_of_another_format_is_not_repeated(message: object) -> None:
    pods = (job_pod(message, code=1),)
    assert failed(snapshot.plan(view(committing(), commit_job=failed_job("limit"), job_pods=pods)))[1] == "limit"


def test_nothing_is_unfrozen_when_the_pod_is_gone_or_it_was_tried_already() -> None:
    gone = snapshot.plan(view(committing(), commit_job=failed_job(), source=None))
    again = snapshot.plan(view(committing(), commit_job=failed_job(), unpause_job=job(name="box-pause-unpause")))
    assert made(gone) == made(again) == []


def test_a_job_with_failed_pods_is_still_running() -> None:
    plan = snapshot.plan(view(committing(), commit_job=job(failed=2)))
    assert plan.status is not None
    assert (plan.status["phase"], plan.again) == ("Committing", snapshot.POLL)


def test_while_a_job_repeats_its_failures_the_condition_says_how_many_and_why() -> None:
    pods = (job_pod(report(error="push ended with 1"), code=1),)
    plan = snapshot.plan(view(committing(), commit_job=job(failed=2), job_pods=pods))
    assert plan.status is not None
    told = plan.status["conditions"][0]["message"]
    assert told == "The commit Job runs, attempt 1 of 3; 2 of its pods failed, the last one: push ended with 1"
    # and the Job that takes its place is still counted right
    plan = snapshot.plan(view({**committing(), "status": plan.status}))
    assert plan.status is not None and "attempt 2 of 3" in plan.status["conditions"][0]["message"]


def test_a_job_that_disappears_is_made_again_three_times_at_most() -> None:
    obj = committing()
    for attempt in (2, 3):
        plan = snapshot.plan(view(obj))
        assert made(plan) == ["box-pause-commit"]
        assert plan.status is not None
        assert f"attempt {attempt} of 3" in plan.status["conditions"][0]["message"]
        obj = {**obj, "status": plan.status}
    assert failed(snapshot.plan(view(obj)))[0] == "CommitJobFailed"


def test_a_job_that_gets_no_pod_or_no_node_fails_fast() -> None:
    stuck = snapshot.plan(view(committing(), commit_job=job(age=61)))
    assert failed(stuck)[0] == "PodCreateForbidden"
    assert len(of(stuck, DeleteObject)) == 1
    young = snapshot.plan(view(committing(), commit_job=job(age=59)))
    assert young.status is not None
    assert young.status["phase"] == "Committing"
    lost = snapshot.plan(view(committing(), commit_job=job(active=1), node_gone=True))
    assert failed(lost)[0] == "NodeUnavailable"


# -- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "became"),
    [
        (None, "pod box-0, which was to be saved, is gone"),
        (source(deletionTimestamp="2026-05-04T12:00:00Z"), "pod box-0 is being deleted"),
        ({**source(), "status": {"phase": "Failed"}}, "pod box-0 does not run any more (phase Failed)"),
    ],
)
def test_a_pod_that_cannot_be_saved_any_more_is_told_with_what_became_of_it(
    found: dict[str, Any] | None, became: str
) -> None:
    assert failed(snapshot.plan(view(snap(**recorded()), source=found))) == (
        "SourcePodNotFound", f"source pod not found: {became}",
    )  # fmt: skip


def progress(plan: Plan) -> str:
    assert plan.status is not None
    return next(str(c["message"]) for c in plan.status["conditions"] if c["type"] == "Progressing")


def test_a_job_of_an_earlier_snapshot_in_the_way_is_named() -> None:
    plan = snapshot.plan(view(snap(**recorded()), commit_job=job(owner="a-former-snapshot")))
    assert progress(plan) == (
        "The commit Job is being created, once Job box-pause-commit of an earlier snapshot is gone"
    )


def test_a_job_that_succeeded_is_not_called_running_while_its_report_is_awaited() -> None:
    plan = snapshot.plan(view(committing(), commit_job=done_job()))
    assert progress(plan) == "The commit Job, attempt 1 of 3, succeeded; the report of its pod is awaited"


def test_a_snapshot_of_a_sandbox_without_a_pod_says_why_it_has_none() -> None:
    lost = condition("Paused", "SnapshotNotFound", "the pause's snapshot box-pause was deleted")
    cases = {
        "its content is in the images of its pause snapshot": {"conditions": [condition("Paused", "Paused")]},
        "it is paused, and the pause's snapshot box-pause was deleted": {"conditions": [lost]},
    }
    for end, status in cases.items():
        paused = box(pause=True, status={"phase": "Paused", **status})
        reason, message = failed(snapshot.plan(view(snap(), box=paused, box_pods=(), source=None)))
        assert reason == "SourcePodNotFound" and message.endswith(end)
    record = {"pods": ["warm-1"], "poolRef": "warm"}
    back = box(poolRef="warm", record=record, release={"pods": ["warm-1"]}, status={"phase": "Succeed"})
    _, message = failed(snapshot.plan(view(snap(), box=back, box_pods=(), source=None)))
    assert message.endswith("it gave its pod back, and no other one takes its place")
