"""Sandboxes without a pool: pods by index, shard patches, replicas up and down, strangers, lost pods."""

from __future__ import annotations

import pytest

from osb.api import names
from tests.doubles.cluster import Obj, Space, condition, endpoints, ready, template


def _names(pods: list[Obj]) -> list[str]:
    return [p["metadata"]["name"] for p in pods]


def _lost(box: Obj) -> str:
    return str((condition(box, "PodLost") or {}).get("reason", ""))


def test_every_index_has_its_pod_with_its_patch(space: Space) -> None:
    base = template("a:1", labels={"app": "duo"}, annotations={"keep": "me"})
    base["spec"]["containers"][0]["env"] = [{"name": "MODE", "value": "train"}, {"name": "SEED", "value": "0"}]
    patches = [
        {},
        {"spec": {"containers": [{"name": "main", "image": "b:1", "env": [{"name": "MODE", "value": "eval"}]}]}},
    ]
    space.box("duo", 2, pool=None, template=base, shardPatches=patches)
    (box,) = space.served("duo")
    first, second = space.pods_of("duo")
    assert _names([first, second]) == ["duo-0", "duo-1"]
    assert [p["spec"]["containers"][0]["image"] for p in (first, second)] == ["a:1", "b:1"]
    env = {e["name"]: e.get("value") for e in second["spec"]["containers"][0]["env"]}
    assert env == {"MODE": "eval", "SEED": "0"}
    for index, pod in enumerate((first, second)):
        labels = pod["metadata"]["labels"]
        assert labels["app"] == "duo" and pod["metadata"]["annotations"]["keep"] == "me"
        assert labels[names.LABEL_POD_INDEX] == str(index) and labels[names.LABEL_BOX_NAME] == "duo"
        assert pod["metadata"]["ownerReferences"][0]["controller"] is True
    assert endpoints(box) == [p["status"]["podIP"] for p in (first, second)]
    assert "finalizers" not in box["metadata"]


def test_endpoints_are_published_before_success(space: Space) -> None:
    space.box("box", pool=None, template=template())
    space.served("box")
    seen = space.history("batchsandbox", "box")
    published = next(e.version for e in seen if (endpoints(e.obj) or [""])[0])
    success = next(e.version for e in seen if (e.obj.get("status") or {}).get("phase") == "Succeed")
    pending = next(e.version for e in seen if (e.obj.get("status") or {}).get("phase") == "Pending")
    assert pending < published < success


def test_replicas_go_up_and_down_from_the_end(space: Space) -> None:
    space.box("box", 2, pool=None, template=template())
    space.served("box")
    kept = {p["metadata"]["uid"] for p in space.pods_of("box")}
    space.patch("batchsandbox", "box", {"spec": {"replicas": 4}})
    space.until_box("box", lambda b: b["status"]["ready"] == 4)
    assert _names(space.pods_of("box")) == ["box-0", "box-1", "box-2", "box-3"]
    space.patch("batchsandbox", "box", {"spec": {"replicas": 1}})
    space.gone("pod", "box-1", "box-2", "box-3")
    box = space.until_box("box", lambda b: len(endpoints(b) or []) == 1 and b["status"]["replicas"] == 1)
    assert box["status"]["ready"] == 1
    assert {p["metadata"]["uid"] for p in space.pods_of("box")} <= kept


@pytest.mark.parametrize("how", ["deleted", "failed"])
def test_a_lost_pod_is_replaced_under_the_same_name(space: Space, how: str) -> None:
    space.box("box", 2, pool=None, template=template())
    space.served("box")
    old = space.live("pod", "box-1")["metadata"]["uid"]
    if how == "deleted":
        space.delete("pod", "box-1")
    else:
        space.mark("box-1", fail="true")
    box = space.until_box("box", lambda b: _lost(b) == "PodReplaced" and b["status"]["ready"] == 2)
    assert space.live("pod", "box-1")["metadata"]["uid"] != old
    assert "" not in (endpoints(box) or [""])


def test_with_policy_fail_a_lost_pod_is_not_replaced(space: Space) -> None:
    space.box("box", 2, pool=None, template=template(), lostPodPolicy="Fail")
    (before,) = space.served("box")
    space.delete("pod", "box-0")
    after = space.until_box("box", lambda b: _lost(b) == "SlotFailed")
    after = space.until_box("box", lambda b: endpoints(b) == ["", (endpoints(before) or ["", ""])[1]])
    assert after["status"]["ready"] == 1
    assert _names(space.pods_of("box")) == ["box-1"]


def test_a_foreign_pod_of_the_same_name_is_left_alone(space: Space) -> None:
    stranger = {"metadata": {"name": "box-0", "labels": {names.LABEL_BOX_NAME: "box", names.LABEL_POD_INDEX: "0"}},
                "spec": template()["spec"]}  # fmt: skip
    space.kube.create("pod", space.name, {"apiVersion": "v1", "kind": "Pod", **stranger})
    mine = space.until_pod("box-0", ready)["metadata"]["uid"]
    space.box("box", pool=None, template=template())
    space.until("it is said", lambda: [e for e in space.all("event") if e["type"] == "Warning"])
    assert space.live("pod", "box-0")["metadata"]["uid"] == mine
    # When the stranger goes, the sandbox gets its pod
    space.delete("pod", "box-0")
    space.served("box")


def test_two_pods_of_one_index_become_one(space: Space) -> None:
    space.box("box", pool=None, template=template())
    (box,) = space.served("box")
    original = space.live("pod", "box-0")
    twin = {
        "apiVersion": "v1", "kind": "Pod", "spec": template()["spec"],
        "metadata": {"name": "box-twin", "labels": original["metadata"]["labels"],
                     "ownerReferences": original["metadata"]["ownerReferences"]},
    }  # fmt: skip
    space.kube.create("pod", space.name, twin)
    space.gone("pod", "box-twin")
    assert space.live("pod", "box-0")["metadata"]["uid"] == original["metadata"]["uid"]
    assert record_free(space.live("batchsandbox", "box")) and box["status"]["ready"] == 1


def record_free(box: Obj) -> bool:
    return names.ALLOC_STATUS not in (box["metadata"].get("annotations") or {})


def test_an_image_that_cannot_be_pulled_is_told_and_may_recover(space: Space) -> None:
    space.box("box", pool=None, template=template(marks={"waiting-reason": "ErrImagePull", "waiting-for": "1s"}))
    space.served("box")


def test_a_broken_shard_patch_is_reported_and_the_other_shards_run(space: Space) -> None:
    patches = [{}, {"spec": {"containers": [{"image": "b:1"}]}}]
    space.box("box", 2, pool=None, template=template(), shardPatches=patches)
    space.until_box("box", lambda b: condition(b, "SpecInvalid"))
    space.until("the good one runs", lambda: any(ready(p) for p in space.pods_of("box")))


def test_a_sandbox_with_neither_pool_nor_template_says_so(space: Space) -> None:
    space.create("batchsandbox", "empty", {"replicas": 1})
    space.until_box("empty", lambda b: condition(b, "SpecInvalid"))


def test_deleting_it_takes_its_pods(space: Space) -> None:
    space.box("box", 3, pool=None, template=template())
    space.served("box")
    space.delete("batchsandbox", "box", grace=0)
    space.gone("batchsandbox", "box")
    space.gone("pod")
