"""Snapshots that users and the lifecycle server make themselves, and how their commits end."""

from __future__ import annotations

import orjson

from tests.acceptance.test_pause import paused, phase
from tests.doubles.cluster import Obj, Space, condition, record, template
from tests.doubles.controller import Controller

PUBLIC = "osb-snap-11111111222233334444555555555555"


def failed(snapshot: Obj) -> Obj | None:
    """The condition that says why it failed."""
    return condition(snapshot, "Failed")


def until_saved(space: Space, name: str) -> Obj:
    return space.until_snapshot(name, lambda s: phase(s) == "Succeed")


def running(space: Space, name: str = "box", **marks: str) -> Obj:
    """A served sandbox of its own pod."""
    space.box(name, pool=None, template=template(marks=marks))
    (box,) = space.served(name)
    return box


def test_a_public_snapshot_records_what_it_saved_and_leaves_the_sandbox_alone(space: Space) -> None:
    box = running(space)
    before = len(space.history("batchsandbox", "box"))
    space.create("snapshot", PUBLIC, {"sandboxName": "box"})
    saved = until_saved(space, PUBLIC)
    (container,) = saved["status"]["containers"]
    uid = saved["metadata"]["uid"]
    tag = f"snap-{PUBLIC.removeprefix('osb-snap-')}-{uid[:8]}"
    assert container["imageUri"] == f"registry.example:5000/saved/{space.name}/box/main:{tag}"
    assert container["imageDigest"].startswith("sha256:")
    assert saved["status"]["sourcePodName"] == "box-0" and saved["status"]["sourceNodeName"]
    assert condition(saved, "Ready")["reason"] == "SnapshotReady" and condition(saved, "Progressing") is None
    assert len(space.history("batchsandbox", "box")) == before
    assert phase(space.live("batchsandbox", "box")) == "Succeed" and space.all("pod")
    # It outlives its sandbox, and its Job goes with it
    space.delete("batchsandbox", box["metadata"]["name"])
    space.gone("batchsandbox")
    assert space.live("snapshot", PUBLIC)["status"]["phase"] == "Succeed"
    space.delete("snapshot", PUBLIC)
    space.gone("snapshot")
    space.gone("job")


def test_a_pooled_sandbox_is_saved_from_the_pod_that_it_has(space: Space) -> None:
    space.warm("warm", 2, 3, 0, 6)
    space.box("box")
    (box,) = space.served("box")
    space.create("snapshot", "saved", {"sandboxName": "box"})
    assert until_saved(space, "saved")["status"]["sourcePodName"] == record(box)[0]


def test_two_snapshots_of_one_pod_never_commit_at_once(space: Space) -> None:
    running(space)
    for name in ("first", "second", "third"):
        space.create("snapshot", name, {"sandboxName": "box"})
    for name in ("first", "second", "third"):
        until_saved(space, name)
    active: set[str] = set()
    for seen in sorted(space.history("snapshot"), key=lambda s: s.version):
        (active.add if phase(seen.obj) == "Committing" else active.discard)(seen.name)
        assert len(active) <= 1


def test_a_snapshot_deleted_during_its_commit_leaves_nothing_frozen(space: Space) -> None:
    running(space, commit="hang")
    space.create("snapshot", "cut", {"sandboxName": "box"})
    space.until_snapshot("cut", lambda s: phase(s) == "Committing")
    space.until("the committer runs", lambda: any(phase(p) == "Running" for p in space.pods_of("cut-commit")))
    space.delete("snapshot", "cut")
    space.gone("snapshot", seconds=20)
    assert any(seen.name == "cut-unpause" for seen in space.history("job"))
    ended = [s for s in space.history("job", "cut-unpause") if (s.obj.get("status") or {}).get("succeeded")]
    assert ended
    space.gone("job")


def test_a_failed_commit_says_why_and_unfreezes(space: Space) -> None:
    running(space, commit="fail")
    space.create("snapshot", "bad", {"sandboxName": "box"})
    job = space.until("its Job", lambda: space.get("job", "bad-commit"))
    assert job is not None and job["spec"]["backoffLimit"] == 3
    space.patch("job", "bad-commit", {"spec": {"backoffLimit": 1}})  # a real one waits ever longer: minutes for three
    bad = space.until_snapshot("bad", lambda s: phase(s) == "Failed", seconds=90)
    assert failed(bad)["reason"] == "CommitJobFailed"
    assert failed(bad)["message"].endswith("nerdctl push ended with 1: simulated failure")
    assert any(seen.name == "bad-unpause" for seen in space.history("job"))
    assert space.events("bad", "JobFailed")


def test_a_result_without_every_container_is_no_success(space: Space) -> None:
    running(space, commit=orjson.dumps({"v": 1, "containers": []}).decode())
    space.create("snapshot", "part", {"sandboxName": "box"})
    part = space.until_snapshot("part", lambda s: phase(s) == "Failed")
    assert failed(part)["reason"] == "ResultUnreadable"


def test_a_job_of_an_earlier_snapshot_of_that_name_counts_for_nothing(space: Space) -> None:
    running(space)
    space.create("snapshot", "same", {"sandboxName": "box"})
    first = until_saved(space, "same")
    space.delete("snapshot", "same", propagation="Orphan")
    space.gone("snapshot")
    space.create("snapshot", "same", {"sandboxName": "box"})
    second = until_saved(space, "same")
    assert second["status"]["jobUID"] != first["status"]["jobUID"]
    assert second["status"]["containers"][0]["imageUri"] != first["status"]["containers"][0]["imageUri"]


def test_a_paused_sandbox_and_a_missing_one_are_refused_with_their_reason(space: Space) -> None:
    running(space)
    paused(space, "box")
    space.create("snapshot", "late", {"sandboxName": "box"})
    late = space.until_snapshot("late", lambda s: phase(s) == "Failed")
    assert failed(late)["reason"] == "SourcePodNotFound" and "paused" in failed(late)["message"]
    space.create("snapshot", "nobodys", {"sandboxName": "nobody"})
    nobodys = space.until_snapshot("nobodys", lambda s: phase(s) == "Failed")
    assert failed(nobodys)["reason"] == "BatchSandboxLookupFailed"


def test_a_commit_goes_on_when_every_worker_is_killed(space: Space, controller: Controller) -> None:
    running(space)
    space.create("snapshot", "kept", {"sandboxName": "box"})
    for name in ("worker-1", "worker-2"):
        controller.kill(name)
    for name in ("worker-1", "worker-2"):
        controller.spawn(name)
    until_saved(space, "kept")
    assert len({s.obj["metadata"]["uid"] for s in space.history("job", "kept-commit")}) == 1
