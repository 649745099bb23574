"""Generation of tasks from the template and the shard patches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from osb.decide.taskgen import generate, generate_all, problems
from osb.errors import InvalidInput

TEMPLATE: dict[str, Any] = {
    "spec": {
        "process": {
            "command": ["echo", "hello"],
            "env": [{"name": "foo", "value": "bar"}],
            "workingDir": "/w",
        },
        "timeoutSeconds": 60,
    }
}


def made(index: int, *patches: Any, template: dict[str, Any] | None = None) -> dict[str, Any]:
    task = generate("sbx", index, template=TEMPLATE if template is None else template, patches=patches)
    process: dict[str, Any] = task["process"]
    return process


def test_without_patches_a_task_is_the_template_under_the_name_of_its_slot() -> None:
    task = generate("sbx", 3, template=TEMPLATE)
    assert task == {
        "name": "sbx-3",
        "process": {
            "command": ["echo", "hello"],
            "env": [{"name": "foo", "value": "bar"}],
            "workingDir": "/w",
            "timeoutSeconds": 60,
        },
    }


def test_a_patch_replaces_the_command_of_its_own_index_only() -> None:
    patch = {"spec": {"process": {"command": ["echo", "world"]}}}
    assert made(0, patch)["command"] == ["echo", "world"]
    assert made(1, patch)["command"] == ["echo", "hello"]


def test_env_of_a_patch_is_merged_by_name() -> None:
    patch = {"spec": {"process": {"env": [{"name": "hello", "value": "world"}]}}}
    env = made(0, patch)["env"]
    assert {item["name"]: item["value"] for item in env} == {"foo": "bar", "hello": "world"}


def test_a_patch_may_be_the_json_text_of_the_object() -> None:
    text = '{"spec":{"process":{"command":["echo","world"]},"timeoutSeconds":5}}'
    assert made(0, text) == made(0, json.loads(text))
    assert made(0, text)["command"] == ["echo", "world"]
    assert made(0, "null") == made(1)


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '"x"', "[" * 5000, '{"a":' * 300 + "1" + "}" * 300], ids=lambda t: t[:9]
)
def test_text_that_is_no_json_object_is_an_error_of_its_index_only(text: str) -> None:
    tasks = generate_all("sbx", 2, template=TEMPLATE, patches=[text, {}])
    assert isinstance(tasks[0], InvalidInput)
    assert tasks[0].field == "spec.shardTaskPatches[0]"
    assert isinstance(tasks[1], dict)


def test_env_can_still_be_replaced_whole() -> None:
    patch = {"spec": {"process": {"env": [{"$patch": "replace"}, {"name": "a", "value": "1"}]}}}
    assert made(0, patch)["env"] == [{"name": "a", "value": "1"}]


def test_the_time_limit_of_a_patch_counts() -> None:
    assert made(0, {"spec": {"timeoutSeconds": 5}})["timeoutSeconds"] == 5


@pytest.mark.parametrize(
    ("template", "patch"),
    [
        ({}, {"spec": {"process": None}}),
        (TEMPLATE, {"spec": {"process": None}}),
        ({"spec": {}}, None),
        ({"spec": {"process": {"command": []}}}, None),
        (TEMPLATE, '{"invalid json'),
        (TEMPLATE, {"spec": "text"}),
        (TEMPLATE, {"spec": {"process": {"env": [{"value": "no name"}]}}}),
        (TEMPLATE, {"spec": {"process": {"command": [{"a": 1}]}}}),
        (TEMPLATE, {"spec": {"timeoutSeconds": "soon"}}),
        (TEMPLATE, {"spec": {"timeoutSeconds": -1}}),
        (TEMPLATE, {"spec": {"timeoutSeconds": 2**31}}),
    ],
    ids=str,
)
def test_a_task_that_cannot_run_is_an_error_of_its_index(template: dict[str, Any], patch: Any) -> None:
    with pytest.raises(InvalidInput):
        made(0, patch, template=template)


def test_a_patch_can_give_a_process_to_a_template_that_has_none() -> None:
    patch = {"spec": {"process": {"command": ["true"]}}}
    assert made(0, patch, template={})["command"] == ["true"]


def test_numbers_in_args_become_text_as_the_shipped_sample_needs() -> None:
    patch = {"spec": {"process": {"command": ["sleep"], "args": [3600, True, 1.5]}}}
    assert made(0, patch)["args"] == ["3600", "true", "1.5"]


def test_a_variable_from_elsewhere_is_refused_with_its_path() -> None:
    patch = {"spec": {"process": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]}}}
    with pytest.raises(InvalidInput, match="valueFrom"):
        made(0, patch)


GOOD = {"spec": {"process": {"command": ["run"], "env": [{"name": "A", "value": "1"}]}}}


@pytest.mark.parametrize(
    ("template", "patch", "field"),
    [
        ({"spec": {**GOOD["spec"], "timeoutSeconds": "x"}}, None, "spec.taskTemplate.spec.timeoutSeconds"),
        (
            {"spec": {"process": {"command": ["x"], "timeoutSeconds": "x"}}},
            None,
            "spec.taskTemplate.spec.process.timeoutSeconds",
        ),
        (GOOD, {"spec": {"timeoutSeconds": "x"}}, "spec.shardTaskPatches[0].spec.timeoutSeconds"),
        (GOOD, '{"spec":{"timeoutSeconds":"x"}}', "spec.shardTaskPatches[0].spec.timeoutSeconds"),
        (GOOD, {"spec": {"process": {"env": "x"}}}, "spec.shardTaskPatches[0].spec.process.env"),
        (GOOD, {"spec": "x"}, "spec.shardTaskPatches[0].spec"),
        (GOOD, {"spec": {"process": None}}, "spec.shardTaskPatches[0].spec.process"),
        (GOOD, {"spec": {"$patch": "replace"}}, "spec.shardTaskPatches[0].spec.process"),
        ({"spec": {}}, {"spec": {"timeoutSeconds": 5}}, "spec.taskTemplate.spec.process"),
        (
            GOOD,
            {"spec": {"process": {"env": [{"name": "B", "value": "1"}, {"name": "A", "value": [2]}]}}},
            "spec.shardTaskPatches[0].spec.process.env[1].value",
        ),
        (
            {"spec": {"process": {"command": ["x"], "env": [{"name": "A"}, {"name": "C", "value": []}]}}},
            {"spec": {"process": {"env": [{"name": "B", "value": "1"}]}}},
            "spec.taskTemplate.spec.process.env[1].value",
        ),
        (GOOD, {"spec": {"process": {"command": ["a", {}]}}}, "spec.shardTaskPatches[0].spec.process.command[1]"),
        ({"spec": 5}, None, "spec.taskTemplate.spec"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named_where_its_user_wrote_it(template: Any, patch: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        made(0, patch, template=template)
    assert caught.value.field == field


def test_one_bad_patch_leaves_the_other_indexes_alone() -> None:
    tasks = generate_all("sbx", 3, template=TEMPLATE, patches=[{}, {"spec": {"process": None}}])
    assert isinstance(tasks[1], InvalidInput)
    assert isinstance(tasks[0], dict)
    assert isinstance(tasks[2], dict)


def test_problems_are_known_before_anything_starts_and_each_is_told_once() -> None:
    found = problems("sbx", 1000, template={"spec": {}}, patches=[])
    assert len(found) == 1
    assert "spec.taskTemplate" in str(found[0])
    assert problems("sbx", 1000, template=TEMPLATE, patches=[{}]) == ()
