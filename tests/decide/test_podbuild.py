"""Bodies of pods, and the template that a pooled pod leaves behind."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from osb.api import names
from osb.decide import podbuild
from osb.errors import InvalidInput
from tests.doubles.boxes import UID, box

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}, "finalizers": ["a/b"], "name": "ignored"},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "img:1",
                "command": ["sleep", "1"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "volumeMounts": [{"mountPath": "/data", "name": "d"}],
            }
        ],
        "volumes": [{"name": "d", "emptyDir": {}}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "a"}],
    },
}


def build(*patches: Any, slot: int = 0, **more: Any) -> dict[str, Any]:
    return podbuild.build(box(template=TEMPLATE, shardPatches=list(patches), replicas=3, **more), slot)


def test_a_pod_carries_the_templates_metadata_and_our_identity() -> None:
    meta = build(slot=2)["metadata"]
    assert meta["name"] == "box-2"
    assert meta["namespace"] == "ns"
    assert meta["labels"] == {"app": "x", names.LABEL_BOX_NAME: "box", names.LABEL_POD_INDEX: "2"}
    assert meta["annotations"] == {"note": "y"}
    assert meta["finalizers"] == ["a/b"]
    assert meta["ownerReferences"] == [
        {
            "apiVersion": "sandbox.opensandbox.io/v1alpha1",
            "kind": "BatchSandbox",
            "name": "box",
            "uid": UID,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_the_template_is_not_touched() -> None:
    before = orjson.dumps(TEMPLATE)
    build({"spec": {"containers": [{"name": "main", "image": "other"}]}})
    assert orjson.dumps(TEMPLATE) == before


def test_removals_of_a_patch_are_removals() -> None:
    spec = build({"spec": {"nodeSelector": None, "containers": [{"name": "main", "command": None}]}})["spec"]
    assert "nodeSelector" not in spec
    assert "command" not in spec["containers"][0]


def test_a_new_container_in_front_inherits_nothing_from_the_old_first_one() -> None:
    containers = build({"spec": {"containers": [{"name": "side", "image": "s:1"}]}})["spec"]["containers"]
    assert [c["name"] for c in containers] == ["side", "main"]
    assert containers[0] == {"name": "side", "image": "s:1"}


def test_a_patch_cannot_take_a_pods_identity_or_its_owner() -> None:
    patch = {
        "metadata": {
            "name": "zzz",
            "labels": {names.LABEL_POD_INDEX: "7", names.LABEL_POOL_NAME: "warm", "mine": "1"},
            "ownerReferences": [
                {"uid": "thief", "controller": True, "kind": "X", "name": "x"},
                {"uid": "friend", "kind": "Y", "name": "y"},
            ],
        }
    }
    meta = build({}, patch, slot=1)["metadata"]
    assert meta["name"] == "box-1"
    assert meta["labels"] == {
        "app": "x",
        "mine": "1",
        names.LABEL_BOX_NAME: "box",
        names.LABEL_POD_INDEX: "1",
    }
    assert [(o["uid"], o.get("controller")) for o in meta["ownerReferences"]] == [("friend", None), (UID, True)]


def test_a_patch_may_be_the_json_text_of_the_object() -> None:
    text = '{"metadata":{"labels":{"mine":"1"}}}'
    assert build(text)["metadata"]["labels"]["mine"] == "1"


@pytest.mark.parametrize("patch", [{}, None])
def test_an_empty_patch_changes_nothing(patch: Any) -> None:
    assert build(patch) == build()


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, ".spec.containers[0]"),
        ({"spec": {"containers": [{"name": "main", "$patch": "bend"}]}}, ".spec.containers[0].$patch"),
        ({"spec": {"containers": "x"}}, ".spec.containers"),
        ({"spec": {"containers": [{"name": [1]}]}}, ".spec.containers[0].name"),
        ({"metadata": {"finalizers": 5}}, ".metadata.finalizers"),
        ({"metadata": {"labels": {"a": True}}}, ".metadata.labels[a]"),
        ({"metadata": {"ownerReferences": ["x"]}}, ".metadata.ownerReferences[0]"),
        ({"metadata": "x"}, ".metadata"),
        (7, ""),
        (0, ""),
        ([1], ""),
        ([], ""),
        ("{", ""),
        ("[1]", ""),
    ],
    ids=repr,
)
def test_a_bad_patch_names_its_slot_and_the_place_in_it(patch: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        build(patch)
    assert caught.value.field == f"spec.shardPatches[0]{field}"


def test_a_slot_beyond_the_patches_gets_the_plain_template() -> None:
    assert build({"spec": {"nodeSelector": None}}, slot=2)["spec"]["nodeSelector"] == {"disk": "ssd"}


def test_images_of_a_resume_win_over_template_and_patch() -> None:
    memory = {"snapshot": "s", "images": {"main": "reg/ns/box/main@sha256:1"}, "cycles": 1}
    patch = {"spec": {"containers": [{"name": "main", "image": "original"}, {"name": "side", "image": "s:1"}]}}
    spec = build(patch, annotations={names.RESUMED_FROM: orjson.dumps(memory).decode()})["spec"]
    assert {c["name"]: c["image"] for c in spec["containers"]} == {
        "main": "reg/ns/box/main@sha256:1",
        "side": "s:1",
    }


def test_long_names_give_valid_labels_and_names_and_the_full_name_in_an_annotation() -> None:
    meta = podbuild.build(box(name="b" * 253, template=TEMPLATE), 11)["metadata"]
    assert len(meta["name"]) <= 253
    assert len(meta["labels"][names.LABEL_BOX_NAME]) <= 63
    assert meta["annotations"][names.FULL_NAME] == "b" * 253 + "-11"
    other = podbuild.build(box(name="b" * 252 + "c", template=TEMPLATE), 11)["metadata"]
    assert other["name"] != meta["name"]


# -- solidify ------------------------------------------------------------------------------------------------


def live(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "labels": {
                "app": "x",
                names.LABEL_POOL_NAME: "warm",
                names.LABEL_POOL_REVISION: "r1",
                names.LABEL_EVICT: "true",
            },
            "annotations": {
                "note": "y",
                "opensandbox.io/extensions.a": "b",
                "cni.example/network-status": "[]",
                names.RESTART_RECORD: "{}",
            },
        },
        "spec": {"containers": [{"name": "main", "image": "img:2"}], **spec},
    }


def test_a_solidified_template_keeps_the_users_labels_and_drops_ours() -> None:
    meta = podbuild.solidify(live())["metadata"]
    assert meta["labels"] == {"app": "x"}
    assert meta["annotations"] == {"note": "y", "opensandbox.io/extensions.a": "b"}


def test_a_solidified_template_can_be_created_again() -> None:
    pod = live(
        nodeName="n1",
        hostname="warm-1",
        priority=0,
        serviceAccount="default",
        ephemeralContainers=[{"name": "debug"}],
        schedulingGates=[{"name": "g"}],
        volumes=[{"name": "kube-api-access-x7"}, {"name": "d", "emptyDir": {}}],
        tolerations=[
            {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "mine"},
        ],
    )
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "kube-api-access-x7", "mountPath": "/var/run"}]
    assert podbuild.solidify(pod)["spec"] == {
        "containers": [{"name": "main", "image": "img:2"}],
        "volumes": [{"name": "d", "emptyDir": {}}],
        "tolerations": [{"key": "mine"}],
    }


def test_the_pools_own_template_is_used_while_the_pod_has_its_revision() -> None:
    found = podbuild.solidify(live(nodeName="n1"), pool_template=TEMPLATE, pool_revision="r1")
    assert found["spec"] == TEMPLATE["spec"]
    assert found["metadata"]["labels"] == {"app": "x"}
    older = podbuild.solidify(live(), pool_template=TEMPLATE, pool_revision="r2")
    assert older["spec"]["containers"][0]["image"] == "img:2"
