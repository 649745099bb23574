"""Strategic merge patches: the worked examples of the shard patch rules, directives, errors, JSON merge."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from osb.api import smp
from osb.errors import InvalidInput

POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}, "finalizers": ["a/one"]},
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


def patched(patch: Any) -> dict[str, Any]:
    before = copy.deepcopy(POD)
    kept = copy.deepcopy(patch)
    result = smp.merge(POD, patch)
    assert before == POD and kept == patch, "neither input may change"
    return result


def main(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", **fields}]}}


def container(result: dict[str, Any], index: int = 0) -> Any:
    return result["spec"]["containers"][index]


def env_of(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(item["name"], item.get("value")) for item in container(result)["env"]]


A1, B2 = ("A", "1"), ("B", "2")


def test_example_1_only_the_command_is_replaced() -> None:
    result = patched(main(command=["custom-command-0"]))
    assert container(result) == {**container(POD), "command": ["custom-command-0"]}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ([{"name": "B", "value": "9"}, {"name": "C", "value": "3"}], [A1, ("B", "9"), ("C", "3")]),
        ([{"name": "C", "value": "3"}], [("C", "3"), A1, B2]),
        ([{"name": "A", "$patch": "delete"}], [B2]),
        ([{"$patch": "replace"}, {"name": "Z", "value": "0"}], [("Z", "0")]),
        ([{"name": "B", "value": "9"}, {"name": "A", "value": "8"}], [("B", "9"), ("A", "8")]),
        ([{"name": "A", "$patch": "merge", "value": "5"}], [("A", "5"), B2]),
        ([{"name": "A", "$patch": "replace", "value": "5"}], []),
    ],
    ids=[
        "example 2: known elements keep their place",
        "example 3: new elements land in front",
        "example 4: an element is deleted",
        "a replace marker replaces the list",
        "patch order wins among patched elements",
        "merge is the default directive",
        "a replace marker is never an element itself",
    ],
)
def test_env_merges_by_name(env: list[Any], expected: list[tuple[str, str]]) -> None:
    assert env_of(patched(main(env=env))) == expected


def test_example_4_leaves_nothing_of_the_deleted_variable_behind() -> None:
    pod = copy.deepcopy(POD)
    source = {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    pod["spec"]["containers"][0]["env"][1] = source
    result = smp.merge(pod, main(env=[{"name": "A", "$patch": "delete"}]))
    assert container(result)["env"] == [source]


def test_example_5_a_new_container_comes_first_and_inherits_nothing() -> None:
    result = patched({"spec": {"containers": [{"name": "side", "image": "s:1"}]}})
    assert result["spec"]["containers"] == [{"name": "side", "image": "s:1"}, container(POD)]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, None),
        ({"zone": "z1"}, {"disk": "ssd", "zone": "z1"}),
        ({"$patch": "replace", "zone": "z1"}, {"zone": "z1"}),
        ({"$patch": "delete"}, {}),
        ({"disk": None}, {}),
    ],
    ids=["example 6: removed", "example 7: merged", "example 8: replaced", "deleted", "one key removed"],
)
def test_maps_merge_and_null_removes(selector: Any, expected: Any) -> None:
    result = patched({"spec": {"nodeSelector": selector}})
    assert result["spec"].get("nodeSelector") == expected
    assert (selector is None) == ("nodeSelector" not in result["spec"])


def test_example_9_atomic_lists_are_replaced() -> None:
    assert patched({"spec": {"tolerations": [{"key": "b"}]}})["spec"]["tolerations"] == [{"key": "b"}]


def test_example_10_mounts_merge_by_path() -> None:
    result = patched(main(volumeMounts=[{"mountPath": "/data", "readOnly": True}]))
    assert container(result)["volumeMounts"] == [{"mountPath": "/data", "name": "d", "readOnly": True}]


def test_example_11_retain_keys_drops_what_it_does_not_name() -> None:
    volume = {"name": "d", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}
    result = patched({"spec": {"volumes": [volume]}})
    assert result["spec"]["volumes"] == [{"name": "d", "hostPath": {"path": "/x"}}]


def test_example_12_metadata_is_patched_like_the_rest_and_forced_later_by_pod_construction() -> None:
    result = patched({"metadata": {"labels": {"pod-index": "7"}, "name": "zzz"}})
    assert result["metadata"]["labels"] == {"app": "x", "pod-index": "7"}
    assert result["metadata"]["name"] == "zzz"


def test_example_13_a_null_field_of_an_element_is_removed() -> None:
    assert "command" not in container(patched(main(command=None)))


def test_example_14_an_element_without_its_merge_key_is_an_error() -> None:
    with pytest.raises(InvalidInput) as caught:
        smp.merge(POD, {"spec": {"containers": [{"image": "x"}]}}, at="spec.shardPatches[3]")
    assert caught.value.field == "spec.shardPatches[3].spec.containers[0]"
    assert "name" in caught.value.message


@pytest.mark.parametrize("patch", [{}, None], ids=["empty", "null"])
def test_example_15_an_empty_patch_changes_nothing(patch: Any) -> None:
    result = patched(patch)
    assert result == POD
    result["spec"]["volumes"].append("x")
    assert POD["spec"]["volumes"] == [{"name": "d", "emptyDir": {}}], "the result shares nothing"


def test_scalars_of_finalizers_are_united_and_removable() -> None:
    added = patched({"metadata": {"finalizers": ["b/two", "a/one"]}})
    assert sorted(added["metadata"]["finalizers"]) == ["a/one", "b/two"]
    removed = patched({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/one"]}})
    assert removed["metadata"]["finalizers"] == []


def test_set_element_order_decides_where_elements_stand() -> None:
    patch = main(
        env=[{"name": "C", "value": "3"}],
        **{"$setElementOrder/env": [{"name": "A"}, {"name": "C"}, {"name": "B"}]},
    )
    assert env_of(patched(patch)) == [A1, ("C", "3"), B2]


def test_set_element_order_alone_reorders() -> None:
    patch = main(**{"$setElementOrder/env": [{"name": "B"}, {"name": "A"}]})
    assert env_of(patched(patch)) == [B2, A1]


def test_a_port_used_for_two_protocols_keeps_both() -> None:
    ports = [{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]
    pod = {"spec": {"containers": [{"name": "dns", "ports": ports}]}}
    change = {"spec": {"containers": [{"name": "dns", "ports": [{"containerPort": 80}]}]}}
    assert container(smp.merge(pod, change))["ports"] == [{"containerPort": 80}, *ports]


def test_a_list_the_original_lacks_is_merged_into_nothing() -> None:
    init = [{"name": "i", "image": "x", "command": None}, {"name": "gone", "$patch": "delete"}]
    assert patched({"spec": {"initContainers": init}})["spec"]["initContainers"] == [{"name": "i", "image": "x"}]


def test_a_type_mismatch_takes_the_patch() -> None:
    assert patched({"spec": {"nodeSelector": "x"}})["spec"]["nodeSelector"] == "x"
    assert patched({"spec": {"tolerations": {"a": 1}}})["spec"]["tolerations"] == {"a": 1}


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        ({"spec": {"$patch": "explode"}}, "patch.spec.$patch"),
        ({"spec": {"$frobnicate": []}}, "patch.spec.$frobnicate"),
        (main(env=[{"name": "A", "$patch": "no"}]), "patch.spec.containers[0].env[0].$patch"),
        (main(env=["A"]), "patch.spec.containers[0].env[0]"),
        ({"spec": {"volumes": [{"name": "d", "$retainKeys": ["name"], "x": 1}]}}, "patch.spec.volumes[0].x"),
        ({"spec": {"$retainKeys": "name"}}, "patch.spec.$retainKeys"),
        (
            main(env=[{"name": "Z"}], **{"$setElementOrder/env": [{"name": "A"}]}),
            "patch.spec.containers[0].$setElementOrder/env",
        ),
        (
            {"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}},
            "patch.metadata.$deleteFromPrimitiveList/finalizers",
        ),
        ("text", "patch"),
        ([], "patch"),
    ],
)
def test_errors_name_the_place_in_the_patch(patch: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        smp.merge(POD, patch)
    assert caught.value.field == path


def test_task_variables_merge_by_name() -> None:
    template = {"spec": {"process": {"command": ["run"], "env": [{"name": "foo", "value": "bar"}]}}}
    patch = {"spec": {"process": {"env": [{"name": "hello", "value": "world"}]}, "timeoutSeconds": 5}}
    merged = smp.merge(template, patch, schema="task")["spec"]
    assert {item["name"]: item["value"] for item in merged["process"]["env"]} == {
        "foo": "bar",
        "hello": "world",
    }
    assert merged["process"]["command"] == ["run"] and merged["timeoutSeconds"] == 5


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a"], {"b": "c"}, {"b": "c"}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "b"}, None, None),
    ],
)
def test_json_merge_follows_rfc_7386(original: Any, patch: Any, expected: Any) -> None:
    assert smp.json_merge(original, patch) == expected
