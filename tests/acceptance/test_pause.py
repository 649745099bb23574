"""Pause and resume as users see them: the commit Job is completed by the fake kubelet with a real result."""

from __future__ import annotations

import pytest

from osb.api import names
from tests.doubles.cluster import Obj, Space, condition, endpoints, note, record, template
from tests.doubles.controller import Controller
from tests.doubles.kubelet import play_kubelet

WAITING = "WaitingForSnapshot"


def phase(box: Obj) -> str:
    return str((box.get("status") or {}).get("phase", ""))


def pause(space: Space, name: str, value: bool | None = True) -> Obj:
    return space.patch("batchsandbox", name, {"spec": {"pause": value}})


def until_phase(space: Space, name: str, wanted: str, **options: float) -> Obj:
    return space.until_box(name, lambda b: phase(b) == wanted, **options)


def until_answered(space: Space, name: str, generation: int) -> Obj:
    """The sandbox once that generation's intent is acknowledged."""
    return space.until_box(name, lambda b: b["status"].get("pauseObservedGeneration", 0) >= generation)


def paused(space: Space, name: str) -> Obj:
    pause(space, name)
    return until_phase(space, name, "Paused")


def pause_behind_a_users_snapshot(space: Space) -> None:
    """A pause of `box` that waits for the snapshot `users` of the same pod, which hangs."""
    space.box("box", pool=None, template=template(marks={"commit": "hang"}))
    space.served("box")
    space.create("snapshot", "users", {"sandboxName": "box"})
    space.until("its commit runs", lambda: space.get("job", "users-commit"))
    pause(space, "box")
    space.until_snapshot("box-pause", lambda s: (condition(s, "Progressing") or {}).get("reason") == WAITING)


def resumed(space: Space, name: str) -> Obj:
    pause(space, name, False)
    return space.until_box(name, lambda b: phase(b) == "Succeed" and condition(b, "Ready"))


def images(pod: Obj) -> list[str]:
    return [c["image"] for c in pod["spec"]["containers"]]


def phases(space: Space, name: str) -> list[str]:
    """The phases that a sandbox went through, repetitions left out."""
    found: list[str] = []
    for seen in space.history("batchsandbox", name):
        if not found or found[-1] != phase(seen.obj):
            found.append(phase(seen.obj))
    return found


def two(first: str = "img:1", second: str = "side:1", **marks: str) -> Obj:
    made = template(first, marks=marks)
    made["spec"]["containers"].append({"name": "side", "image": second})
    return made


def test_a_sandbox_is_paused_renewed_resumed_and_paused_again(space: Space) -> None:
    # Given a running sandbox with two containers
    space.box("box", pool=None, template=two(), expireTime="2099-01-01T00:00:00Z")
    space.served("box")
    (first,) = space.pods_of("box")
    # When it is paused
    box = paused(space, "box")
    # Then its pod is gone, nothing is promised, its images are recorded
    assert space.pods_of("box") == []
    assert endpoints(box) == [] and condition(box, "Paused") and condition(box, "Ready") is None
    assert [box["status"][k] for k in ("replicas", "allocated", "ready")] == [0, 0, 0]
    assert box["spec"]["pause"] is True and box["spec"]["replicas"] == 1
    saved = space.live("snapshot", "box-pause")
    assert saved["status"]["phase"] == "Succeed"
    assert {c["containerName"] for c in saved["status"]["containers"]} == {"main", "side"}
    assert saved["status"]["sourcePodUID"] == first["metadata"]["uid"]
    # When it is renewed, relabelled and scaled, nothing happens to it
    for change in (
        {"spec": {"expireTime": "2099-02-01T00:00:00Z"}},
        {"metadata": {"labels": {"team": "blue"}}},
        {"spec": {"replicas": 2}},
        {"spec": {"replicas": 1}},
    ):
        changed = space.patch("batchsandbox", "box", change)
        until_answered(space, "box", changed["metadata"]["generation"])
    assert phase(space.live("batchsandbox", "box")) == "Paused"
    assert space.live("snapshot", "box-pause")["metadata"]["uid"] == saved["metadata"]["uid"]
    # When it is resumed
    box = resumed(space, "box")
    # Then a new pod runs the saved images, by digest, and the snapshot goes
    (second,) = space.pods_of("box")
    assert second["metadata"]["name"] == "box-0" and second["metadata"]["uid"] != first["metadata"]["uid"]
    assert all(f"/{space.name}/box/" in i and "@sha256:" in i for i in images(second))
    assert endpoints(box) == [second["status"]["podIP"]]
    space.gone("snapshot", "box-pause")
    # When it is renewed after that, the pause is not repeated
    renewed = space.patch("batchsandbox", "box", {"spec": {"expireTime": "2099-03-01T00:00:00Z"}})
    until_answered(space, "box", renewed["metadata"]["generation"])
    # And it can be paused and resumed again
    paused(space, "box")
    box = resumed(space, "box")
    assert note(box, names.RESUMED_FROM)["cycles"] == 2
    assert phases(space, "box") == ["", "Pending", "Succeed", *["Pausing", "Paused", "Resuming", "Succeed"] * 2] or (
        phases(space, "box") == ["", "Succeed", *["Pausing", "Paused", "Resuming", "Succeed"] * 2]
    )
    space.delete("batchsandbox", "box")
    space.gone("batchsandbox")
    space.gone("pod")
    space.gone("snapshot")
    space.gone("job")


def test_a_pooled_sandbox_leaves_its_pool_when_it_is_paused(space: Space) -> None:
    # Given a sandbox of a pool that would hand its pods out again as they are
    space.warm("warm", 1, 2, 0, 4, recycleStrategy={"type": "Noop"},
               template=template("pool:1", labels={"app": "x"}))  # fmt: skip
    space.box("box")
    (box,) = space.served("box")
    (used,) = record(box)
    # When it is paused
    box = paused(space, "box")
    # Then nothing of the pool is left on it, and the used pod is gone for good
    assert not box["spec"].get("poolRef") and box["spec"]["template"]["metadata"]["labels"]["app"] == "x"
    marks = set(box["metadata"].get("annotations") or {})
    assert not marks & {names.ALLOC_STATUS, names.ALLOC_RELEASE, names.ALLOC_RELEASED}
    assert names.FINALIZER_POOL not in (box["metadata"].get("finalizers") or [])
    assert space.get("pod", used) is None
    space.until_pool("warm", lambda p: p["status"]["allocated"] == 0)
    # When it is resumed, it has a pod of its own
    resumed(space, "box")
    (own,) = space.pods_of("box")
    assert own["metadata"]["name"] == "box-0" and "@sha256:" in images(own)[0]
    assert own["metadata"]["labels"]["app"] == "x" and names.LABEL_POOL_NAME not in own["metadata"]["labels"]
    # And it is paused once more without a pool
    paused(space, "box")
    resumed(space, "box")
    space.delete("batchsandbox", "box")
    space.gone("batchsandbox")


@pytest.mark.parametrize("pool", [None, "warm"], ids=["own", "pooled"])
def test_a_failed_commit_leaves_it_running_and_a_retry_works(space: Space, pool: str | None) -> None:
    if pool:
        space.warm("warm", 1, 1, 0, 3)
        space.box("box")
    else:
        space.box("box", pool=None, template=template())
    space.served("box")
    pod = (
        space.pods_of(pool or "box")[0] if not pool else space.live("pod", record(space.live("batchsandbox", "box"))[0])
    )
    # When the commit fails
    space.mark(pod["metadata"]["name"], commit="{}")  # a real Job that fails is repeated for more than a minute
    pause(space, "box")
    box = space.until_box("box", lambda b: phase(b) == "Succeed" and condition(b, "PauseFailed"))
    # Then the same pod runs on, and is offered again
    assert condition(box, "PauseFailed")["reason"] == "SnapshotFailed"
    assert space.live("pod", pod["metadata"]["name"])["metadata"]["uid"] == pod["metadata"]["uid"]
    box = space.until_box("box", lambda b: endpoints(b) == [pod["status"]["podIP"]])
    # A renewal is no retry
    renewed = space.patch("batchsandbox", "box", {"metadata": {"labels": {"x": "y"}}})
    assert phase(renewed) == "Succeed"
    # When the wish is withdrawn and made again
    space.mark(pod["metadata"]["name"], commit=None)
    pause(space, "box", None)
    pause(space, "box", True)
    box = until_phase(space, "box", "Paused")
    assert condition(box, "PauseFailed") is None
    resumed(space, "box")


def test_more_than_one_replica_is_refused(space: Space) -> None:
    space.box("pair", 2, pool=None, template=template())
    space.served("pair")
    pause(space, "pair")
    box = space.until_box("pair", lambda b: condition(b, "PauseFailed"))
    assert condition(box, "PauseFailed")["reason"] == "UnsupportedReplicas" and phase(box) == "Succeed"
    assert len(space.pods_of("pair")) == 2 and space.all("snapshot") == []


def test_a_wish_that_comes_during_an_operation_is_handled_after_it(space: Space) -> None:
    space.box("box", pool=None, template=template(marks={"ready-after": "600ms"}))
    space.served("box")
    # When resume is asked while it pauses, and pause while it resumes
    pause(space, "box")
    until_phase(space, "box", "Pausing")
    pause(space, "box", False)
    until_phase(space, "box", "Resuming")
    pause(space, "box", True)
    until_phase(space, "box", "Paused")
    # Then each was carried out in turn
    assert phases(space, "box")[-6:] == ["Pausing", "Paused", "Resuming", "Succeed", "Pausing", "Paused"]


@pytest.mark.parametrize("pool", [None, "warm"], ids=["own", "pooled"])
def test_it_can_be_deleted_in_every_phase(space: Space, pool: str | None) -> None:
    if pool:
        space.warm("warm", 5, 5, 0, 9)
    kept = {"pausing": "hang", "paused": "", "resuming": "", "failed": ""}
    for name in kept:
        space.box(name, pool=pool, **({} if pool else {"template": template()}))
    space.served(*kept)
    # Given one in each phase
    for name, commit in kept.items():
        box = space.live("batchsandbox", name)
        pod = record(box)[0] if pool else f"{name}-0"
        if commit:
            space.mark(pod, commit=commit)
        pause(space, name)
    space.until_box("pausing", lambda b: phase(b) == "Pausing")
    space.until("a commit runs", lambda: space.get("job", "pausing-pause-commit"))
    for name in ("paused", "resuming", "failed"):
        until_phase(space, name, "Paused")
    never = {"sim.osb/never-ready": "true"}
    bad = {"sim.osb/waiting-reason": "CrashLoopBackOff"}
    for name, marks in (("resuming", never), ("failed", bad)):
        space.patch("batchsandbox", name, {"spec": {"template": {"metadata": {"annotations": marks}}}})
        pause(space, name, False)
    until_phase(space, "resuming", "Resuming")
    space.until_box("failed", lambda b: phase(b) == "Failed" and condition(b, "ResumeFailed"), seconds=60)
    # When they are deleted, all are gone in seconds with everything that was theirs
    for name in kept:
        space.delete("batchsandbox", name)
    space.gone("batchsandbox", *kept)
    space.gone("snapshot")
    space.gone("job")
    if pool:
        space.until_pool("warm", lambda p: p["status"]["allocated"] == 0)


def test_a_resume_without_snapshot_goes_back_to_paused_and_says_so(space: Space) -> None:
    space.box("box", pool=None, template=template())
    space.served("box")
    paused(space, "box")
    uri = space.get("snapshot", "box-pause")["status"]["containers"][0]["imageUri"]
    image = uri.rpartition(":")[0] + "@sha256:"
    space.delete("snapshot", "box-pause")
    # The loss is told when it happens, with the image that is left
    box = space.until_box("box", lambda b: condition(b, "Paused")["reason"] == "SnapshotNotFound")
    assert image in condition(box, "Paused")["message"]
    space.gone("snapshot")
    pause(space, "box", False)
    box = space.until_box("box", lambda b: phase(b) == "Paused" and condition(b, "ResumeFailed"))
    assert condition(box, "ResumeFailed")["reason"] == "SnapshotNotFound"
    assert image in condition(box, "ResumeFailed")["message"]
    assert space.all("pod") == []


def test_a_missing_registry_is_told_and_can_be_retried(space: Space, controller: Controller) -> None:
    registry = controller.settings.pop("OSB_SNAPSHOT_REGISTRY")
    try:
        _new_workers(controller)
        space.box("box", pool=None, template=template())
        space.served("box")
        pause(space, "box")
        box = space.until_box("box", lambda b: phase(b) == "Succeed" and condition(b, "PauseFailed"))
        assert "snapshot-registry not configured" in condition(box, "PauseFailed")["message"]
    finally:
        controller.settings["OSB_SNAPSHOT_REGISTRY"] = registry
        _new_workers(controller)
    pause(space, "box", None)
    pause(space, "box", True)
    until_phase(space, "box", "Paused")


def _new_workers(controller: Controller) -> None:
    for name in ("worker-1", "worker-2"):
        controller.kill(name)
        controller.spawn(name)


def test_the_longest_names_work(space: Space) -> None:
    name = "n" * 240 + "-" + "x" * 12
    space.box(name, pool=None, template=template())
    space.served(name)
    paused(space, name)
    resumed(space, name)
    (pod,) = space.pods_of(name)
    assert "@sha256:" in images(pod)[0]
    space.delete("batchsandbox", name)
    space.gone("batchsandbox")


def test_a_pod_replaced_under_its_name_is_never_taken_for_the_saved_one(space: Space) -> None:
    pause_behind_a_users_snapshot(space)
    # When the pod is replaced by another of its name
    old = space.live("pod", "box-0")
    space.delete("pod", "box-0", grace=0)
    space.kube.create("pod", space.name, _again(old))
    new = space.until_pod("box-0", lambda p: p["metadata"]["uid"] != old["metadata"]["uid"] and condition(p, "Ready"))
    space.delete("snapshot", "users")
    # Then no commit touches it, and the sandbox runs on with it
    box = space.until_box("box", lambda b: condition(b, "PauseFailed"))
    assert condition(box, "PauseFailed")["reason"] == "SnapshotFailed" and phase(box) == "Succeed"
    assert space.history("job", "box-pause-commit") == []
    assert space.live("pod", "box-0")["metadata"]["uid"] == new["metadata"]["uid"]


def test_a_pod_lost_before_its_commit_is_told_as_lost_content(space: Space) -> None:
    pause_behind_a_users_snapshot(space)
    space.delete("pod", "box-0", grace=0)
    space.delete("snapshot", "users")
    box = space.until_box("box", lambda b: condition(b, "PauseFailed"))
    assert condition(box, "PauseFailed")["reason"] == "PodNotFound"
    assert "lost" in condition(box, "PauseFailed")["message"]
    # and it recovers with a new pod from its template
    space.until_box("box", lambda b: phase(b) == "Succeed" and condition(b, "Ready"))


def test_a_node_that_is_gone_ends_the_pause_with_its_reason(space: Space) -> None:
    # Given a pod on a node that only this test plays
    space.kube.create("node", None, {"metadata": {"name": "lost"}})
    where = template()
    where["spec"]["nodeName"] = "lost"
    try:
        space.box("box", pool=None, template=where)
        play_kubelet(space, "box-0", "127.31.255.9")
        space.served("box")
    finally:
        space.kube.delete("node", None, "lost")
    # When the node is gone and it is paused
    pause(space, "box")
    box = space.until_box("box", lambda b: condition(b, "PauseFailed"))
    assert "node lost does not exist" in condition(box, "PauseFailed")["message"]
    space.delete("batchsandbox", "box")
    space.gone("batchsandbox")
    space.delete("pod", "box-0", grace=0)


def _again(pod: Obj) -> Obj:
    """A pod like that one, by another creation."""
    kept = ("name", "labels", "annotations", "ownerReferences")
    spec = {k: v for k, v in pod["spec"].items() if k not in ("nodeName", "tolerations", "priority")}
    return {"metadata": {k: v for k, v in pod["metadata"].items() if k in kept}, "spec": spec}
