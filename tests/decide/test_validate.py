"""Everything that is wrong with an object, in words."""

from __future__ import annotations

from typing import Any

import pytest

from osb.decide import validate
from osb.errors import InvalidInput
from tests.api import samples

TASK = {"spec": {"process": {"command": ["run"]}}}
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "img:1"}]}}


def found(kind: str, obj: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(problem.field, problem.reason, problem.level) for problem in validate.problems(kind, obj)]


def own(**spec: Any) -> dict[str, Any]:
    return samples.box(spec={"poolRef": "", "template": TEMPLATE, **spec})


@pytest.mark.parametrize("kind", ["Pool", "pool"])
def test_a_sound_pool(kind: str) -> None:
    assert found(kind, samples.pool()) == []


def test_a_pool_lists_every_broken_rule() -> None:
    spec = {
        "capacitySpec": {"bufferMin": 5, "bufferMax": 1, "poolMin": 4, "poolMax": 2},
        "scaleStrategy": {"maxUnavailable": "0"},
    }
    assert [reason for _, reason, _ in found("Pool", samples.pool(spec=spec))] == [
        "BufferRangeInvalid",
        "PoolRangeInvalid",
        "InvalidMaxUnavailable",
    ]


@pytest.mark.parametrize("obj", [samples.box(), own(), own(shardPatches=[{}, None])])
def test_sound_sandboxes(obj: dict[str, Any]) -> None:
    assert found("BatchSandbox", obj) == []


def test_an_unusable_shard_patch_is_named_by_its_index() -> None:
    bad = {"spec": {"containers": [{"image": "x"}]}}
    obj = own(shardPatches=[{}, bad, "text"])
    assert found("batchsandbox", obj) == [
        ("spec.shardPatches[1].spec.containers[0]", "InvalidShardPatch", "invalid"),
        ("spec.shardPatches[2]", "InvalidShardPatch", "invalid"),
    ]


def test_patches_without_effect_only_warn() -> None:
    assert found("BatchSandbox", own(shardPatches=[{}] * 4)) == [("spec.shardPatches", "NoEffect", "warning")]
    pooled = samples.box(spec={"shardPatches": [{}], "template": TEMPLATE})
    assert [field for field, _, _ in found("BatchSandbox", pooled)] == ["spec.template", "spec.shardPatches"]


def test_a_template_beside_a_wish_for_any_pool_is_the_documented_use() -> None:
    assert found("BatchSandbox", samples.box(spec={"poolRef": "*", "template": TEMPLATE})) == []


def test_neither_pool_nor_template() -> None:
    assert found("BatchSandbox", samples.box(spec={"poolRef": ""})) == [("spec.template", "NoPodSource", "invalid")]


@pytest.mark.parametrize(
    ("task", "patches", "field"),
    [
        ({}, [], "spec.taskTemplate.spec.process"),
        (TASK, [{"spec": {"process": None}}], "spec.shardTaskPatches[0].spec.process"),
        (
            TASK,
            [{}, {"spec": {"process": {"env": [{"value": "x"}]}}}],
            "spec.shardTaskPatches[1].spec.process.env[0]",
        ),
        (TASK, ["{"], "spec.shardTaskPatches[0]"),
    ],
)
def test_tasks_that_could_not_be_sent(task: dict[str, Any], patches: list[Any], field: str) -> None:
    obj = samples.box(spec={"taskTemplate": task, "shardTaskPatches": patches})
    assert found("BatchSandbox", obj) == [(field, "InvalidTaskTemplate", "invalid")]


def test_a_template_without_process_is_fine_when_every_patch_brings_one() -> None:
    obj = samples.box(spec={"replicas": 1, "taskTemplate": {}, "shardTaskPatches": [TASK]})
    assert found("BatchSandbox", obj) == []


def test_an_unreadable_record() -> None:
    [(field, reason, _)] = found("BatchSandbox", samples.box(record="{"))
    assert field.endswith("alloc-status]") and reason == "RecordUnreadable"


def test_a_snapshot_needs_its_sandbox() -> None:
    assert found("SandboxSnapshot", {"spec": {"sandboxName": "b7"}}) == []
    assert found("snapshot", {"spec": {}}) == [("spec.sandboxName", "SandboxNameMissing", "invalid")]


def test_another_kind_is_refused() -> None:
    with pytest.raises(InvalidInput):
        validate.problems("Pod", {})
