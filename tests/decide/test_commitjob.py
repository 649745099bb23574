"""The exact bodies of the commit and unpause Jobs, and how their results are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from osb.api import names
from osb.committer import report as committer
from osb.decide import commitresult
from osb.decide.commitjob import commit_job, commit_name, deadline, unpause_job, unpause_name
from osb.facts.boxview import SnapshotOptions
from tests.doubles.snapviews import DIGEST, IMAGE, OPTIONS, SNAP_UID, done_job, job_pod, recorded, snap

META = snap()["metadata"]


def pod_of(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["spec"]["template"]["spec"]
    return found


def commit(options: SnapshotOptions = OPTIONS, *, keep_frozen: bool = True, **status: Any) -> dict[str, Any]:
    return commit_job(META, recorded(**status), options, keep_frozen=keep_frozen)


def env_of(body: dict[str, Any]) -> dict[str, str]:
    return {e["name"]: e["value"] for e in pod_of(body)["containers"][0]["env"]}


def test_the_commit_job_is_owned_labelled_and_bounded() -> None:
    body = commit()
    assert (body["apiVersion"], body["kind"]) == ("batch/v1", "Job")
    assert body["metadata"]["name"] == "box-pause-commit"
    assert body["metadata"]["labels"] == {names.LABEL_SNAPSHOT_NAME: "box-pause", names.LABEL_PRIVILEGED: "true"}
    owner = body["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("SandboxSnapshot", SNAP_UID, True)
    spec = {k: v for k, v in body["spec"].items() if k != "template"}
    assert spec == {"backoffLimit": 3, "activeDeadlineSeconds": 600}
    assert "metadata" not in body["spec"]["template"]


def test_the_commit_pod_runs_on_the_sources_node_with_as_little_as_possible() -> None:
    pod = pod_of(commit())
    assert (pod["nodeName"], pod["restartPolicy"]) == ("n1", "Never")
    assert pod["automountServiceAccountToken"] is False
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert "serviceAccountName" not in pod
    container = pod["containers"][0]
    assert (container["name"], container["imagePullPolicy"]) == ("commit", "IfNotPresent")
    assert container["command"] == ["/usr/local/bin/image-committer"]
    assert container["securityContext"] == {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["resources"]["requests"]
    socket = next(v for v in pod["volumes"] if v["name"] == "containerd-sock")
    assert socket["hostPath"] == {"path": "/var/run/containerd/containerd.sock", "type": "Socket"}


def test_arguments_are_a_list_and_reach_the_program_as_they_are() -> None:
    nasty = "main;rm -rf / $(x) `y`"
    body = commit(containers=[{"containerName": nasty, "imageUri": IMAGE}])
    assert pod_of(body)["containers"][0]["args"] == ["box-0", "ns", f"{nasty}:{IMAGE}"]


def test_the_registry_setting_is_always_said_and_only_a_pause_keeps_frozen() -> None:
    assert env_of(commit(keep_frozen=False)) == {
        "CONTAINERD_SOCKET": "/var/run/containerd/containerd.sock",
        "SNAPSHOT_POD_UID": "uid-box-0",
        "SNAPSHOT_REGISTRY_INSECURE": "false",
    }
    assert env_of(commit(replace(OPTIONS, registry_insecure=True)))["SNAPSHOT_REGISTRY_INSECURE"] == "true"
    assert env_of(commit())["SNAPSHOT_KEEP_FROZEN"] == "true"


def test_a_push_secret_is_mounted_read_only() -> None:
    pod = pod_of(commit(replace(OPTIONS, push_secret="creds")))
    volume = next(v for v in pod["volumes"] if v["name"] == "registry-creds")
    assert volume["secret"] == {
        "secretName": "creds",
        "items": [{"key": ".dockerconfigjson", "path": "config.json"}],
    }
    mount = next(m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "registry-creds")
    assert mount == {"name": "registry-creds", "mountPath": "/var/run/opensandbox/registry", "readOnly": True}
    assert "registry-creds" not in [v["name"] for v in pod_of(commit())["volumes"]]


def test_the_unpause_job_tries_once_and_needs_only_the_socket() -> None:
    body = unpause_job(META, recorded(), replace(OPTIONS, push_secret="creds"))
    assert body["metadata"]["name"] == "box-pause-unpause"
    spec = {k: v for k, v in body["spec"].items() if k != "template"}
    assert spec == {"backoffLimit": 0, "activeDeadlineSeconds": 600, "ttlSecondsAfterFinished": 300}
    assert pod_of(body)["containers"][0]["args"] == ["unpause", "box-0", "ns", "main"]
    assert "registry-creds" not in [v["name"] for v in pod_of(body)["volumes"]]
    assert "SNAPSHOT_KEEP_FROZEN" not in env_of(body)


@pytest.mark.parametrize(("given", "seconds"), [(600.0, 600), (0.4, 1), (1.9, 1), (0.0, 600), (-5.0, 600)])
def test_a_deadline_is_at_least_a_second(given: float, seconds: int) -> None:
    assert deadline(replace(OPTIONS, job_timeout=given)) == seconds


def test_names_and_labels_of_jobs_stay_within_63_characters() -> None:
    long = "s" * 200
    meta = {**META, "name": long}
    body = commit_job(meta, recorded(), OPTIONS, keep_frozen=False)
    assert len(body["metadata"]["name"]) == 63
    assert len(body["metadata"]["labels"][names.LABEL_SNAPSHOT_NAME]) <= 63
    assert body["metadata"]["annotations"] == {names.FULL_NAME: f"{long}-commit"}
    assert commit_name(long) != commit_name("s" * 199)
    assert len(unpause_name(long)) == 63


# -- results ---------------------------------------------------------------------------------------------------------


def test_the_committers_own_report_is_understood_in_both_forms() -> None:
    few = [("main", IMAGE, DIGEST)]
    many = [(f"container-{i:02}", f"reg.example/ns/box/container-{i:02}:snap-gen2-5a9d0c11", DIGEST) for i in range(20)]
    for saved in (few, many):
        text = committer.message(saved)
        assert len(text.encode()) <= 4096
        requested = [(name, image) for name, image, _ in saved]
        found = commitresult.result(done_job(), (job_pod(text),), requested)
        assert found == {name: DIGEST for name, _, _ in saved}


def test_the_short_form_for_other_images_is_not_believed() -> None:
    many = [(f"container-{i:02}", f"reg.example/ns/other/container-{i:02}:t", DIGEST) for i in range(30)]
    requested = [(name, image.replace("other", "box")) for name, image, _ in many]
    with pytest.raises(commitresult.Unreadable):
        commitresult.result(done_job(), (job_pod(committer.message(many)),), requested)


def test_a_pod_that_ended_with_an_error_reports_nothing() -> None:
    with pytest.raises(commitresult.Unreadable):
        commitresult.result(done_job(), (job_pod({}, code=1),), [("main", IMAGE)])
