"""Whole passes of a snapshot: what the server does not answer is asked again, never taken for an answer."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from osb.api import names
from osb.errors import AlreadyExists, Refused, Unavailable
from osb.kube.client import Kube
from osb.sim import SimCluster
from osb.store.client import Store
from tests.doubles.passworld import Passes

Obj = dict[str, Any]


@pytest.fixture
def saving(store: Store, client: Kube, simulated: SimCluster) -> Any:
    """A running sandbox `b` and a registry to save it to."""
    one = Passes(store, client, snapshot_registry="reg.example", pod_namespace="")
    with contextlib.suppress(AlreadyExists):
        client.create("node", None, {"metadata": {"name": "node-1"}})
    one.own(template={"spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "img"}]}})
    one.box_pass()
    one.ready()
    one.box_pass()
    yield one
    simulated.clear_faults()
    one.close()


def snapshot(passes: Passes, name: str = "s", box: str = "b") -> None:
    passes.kube.create("snapshot", passes.ns, {"metadata": {"name": name}, "spec": {"sandboxName": box}})


def phase(passes: Passes) -> str:
    return str((passes.get("snapshot", "s").get("status") or {}).get("phase") or "")


def test_a_sandbox_that_cannot_be_read_now_is_read_again(saving: Passes, simulated: SimCluster) -> None:
    snapshot(saving)
    saving.run("snapshot", "s")
    path = f"/namespaces/{saving.ns}/batchsandboxes/b"
    simulated.add_fault(path=path, methods=["GET"], status=503)
    with pytest.raises(Unavailable):
        saving.run("snapshot", "s")
    assert phase(saving) in ("", names.PENDING)
    simulated.clear_faults()
    for _ in range(3):
        saving.run("snapshot", "s")
    assert phase(saving) == names.COMMITTING


def test_a_sandbox_that_does_not_exist_is_final(saving: Passes) -> None:
    snapshot(saving, box="nobody")
    for _ in range(3):
        saving.run("snapshot", "s")
    assert phase(saving) == names.FAILED
    failed = saving.condition("snapshot", "s", names.FAILED)
    assert failed is not None
    assert failed["reason"] == names.REASON_LOOKUP_FAILED


def test_a_failure_that_could_not_be_written_is_written_by_the_next_pass(saving: Passes, simulated: SimCluster) -> None:
    snapshot(saving, box="nobody")
    saving.run("snapshot", "s")
    path = f"/namespaces/{saving.ns}/sandboxsnapshots/s/status"
    simulated.add_fault(path=path, methods=["PATCH"], count=1, status=403, reason="Forbidden")
    with pytest.raises(Refused):
        for _ in range(3):
            saving.run("snapshot", "s")
    for _ in range(2):
        saving.run("snapshot", "s")
    assert phase(saving) == names.FAILED


def test_a_pause_that_failed_is_shown_even_if_the_first_write_was_refused(
    saving: Passes, simulated: SimCluster
) -> None:
    saving.patch("batchsandbox", "b", {"spec": {"pause": True}})
    saving.box_pass()
    saving.box_pass()
    raw = saving.get("snapshot", "b-pause")
    failed = {"type": "Failed", "status": "True", "reason": "CommitJobFailed", "message": "no space"}
    failed["lastTransitionTime"] = raw["metadata"]["creationTimestamp"]
    body = {"metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
            "status": {"phase": "Failed", "conditions": [failed]}}  # fmt: skip
    saving.patch("snapshot", "b-pause", body, sub="status")
    path = f"/namespaces/{saving.ns}/batchsandboxes/b/status"
    simulated.add_fault(path=path, methods=["PATCH"], count=1, status=403, reason="Forbidden")
    with pytest.raises(Refused):
        for _ in range(3):
            saving.box_pass()
    for _ in range(3):
        saving.box_pass()
    shown = saving.condition("batchsandbox", "b", names.PAUSE_FAILED)
    assert shown is not None
    assert saving.get("batchsandbox", "b")["status"]["phase"] == names.SUCCEED


def test_a_snapshot_that_only_waits_is_not_written_again(saving: Passes) -> None:
    snapshot(saving)
    for _ in range(4):
        saving.run("snapshot", "s")
    before = saving.get("snapshot", "s")
    assert phase(saving) == names.COMMITTING
    saving.run("snapshot", "s", turn=2)
    after = saving.get("snapshot", "s")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert after["status"]["conditions"] == before["status"]["conditions"]
