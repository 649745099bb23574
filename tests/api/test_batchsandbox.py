"""Reading a BatchSandbox: defaults, fallbacks and problems."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osb.api import names
from osb.api.batchsandbox import parse
from tests.api import samples


def reasons(obj: dict[str, Any], level: str = "invalid") -> list[str]:
    return [problem.reason for problem in parse(obj).problems if problem.level == level]


def test_a_plain_pooled_sandbox() -> None:
    spec = parse(samples.box())
    assert (spec.member, spec.uid, spec.version, spec.generation) == ("boxes/b7", "box-uid", "11", 4)
    assert (spec.replicas, spec.pool_ref, spec.has_template) == (3, "warm", False)
    assert (spec.lost_policy, spec.allocation_policy, spec.priority) == ("Replace", "Partial", 0)
    assert spec.record is None and spec.record_error is None and spec.endpoints is None
    assert spec.expire is None and spec.deleting is None and spec.pause is None and spec.problems == ()
    assert not spec.release_when_completed and spec.allocation_timeout is None


@pytest.mark.parametrize(("raw", "replicas"), [(None, 1), (0, 0), (7, 7)])
def test_absent_replicas_are_one(raw: int | None, replicas: int) -> None:
    assert parse(samples.box(spec={"replicas": raw})).replicas == replicas
    assert parse({"metadata": {"name": "x", "namespace": "n"}, "spec": {"poolRef": "p"}}).replicas == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T08:00:00Z", datetime(2026, 1, 31, 8, tzinfo=UTC)),
        ("2026-01-31T08:00:00.123456+00:00", datetime(2026, 1, 31, 8, 0, 0, 123456, tzinfo=UTC)),
        ("2026-01-31T10:00:00+02:00", datetime(2026, 1, 31, 8, tzinfo=UTC)),
    ],
)
def test_expire_time_is_read_with_fractions_and_offsets(text: str, expected: datetime) -> None:
    assert parse(samples.box(spec={"expireTime": text})).expire == expected


@pytest.mark.parametrize("text", ["tomorrow", "2026-01-31", "2026-01-31T08:00:00", 7, "2026-13-31T08:00:00Z"])
def test_an_unreadable_expire_time_is_reported_and_never_expires(text: Any) -> None:
    assert parse(samples.box(spec={"expireTime": text})).expire is None
    assert reasons(samples.box(spec={"expireTime": text})) == ["InvalidExpireTime"]


@pytest.mark.parametrize(
    ("value", "releases", "expected"),
    [
        (None, False, []),
        ("", False, []),
        ("Retain", False, []),
        ("Release", True, []),
        ("release", False, ["UnknownTaskResourcePolicy"]),
        (True, False, ["UnknownTaskResourcePolicy"]),
    ],
)
def test_an_unknown_task_policy_behaves_as_retain_and_is_reported(
    value: Any, releases: bool, expected: list[str]
) -> None:
    obj = samples.box(spec={"taskResourcePolicyWhenCompleted": value})
    assert parse(obj).release_when_completed is releases
    assert reasons(obj) == expected


def test_without_pool_and_template_there_is_no_source_of_pods() -> None:
    assert reasons(samples.box(spec={"poolRef": ""})) == ["NoPodSource"]
    assert reasons(samples.box(spec={"poolRef": "", "template": {}})) == []


def test_a_detaching_sandbox_has_no_pool_ref_and_is_valid() -> None:
    obj = samples.box(spec={"poolRef": ""}, record={"pods": ["p1"], "poolRef": "warm", "detaching": True})
    assert parse(obj).detaching and parse(obj).problems == ()


def test_a_template_with_a_wrong_type_makes_no_pod_and_is_named_where_it_is_wrong() -> None:
    bad = {"metadata": {"labels": "x"}, "spec": {"containers": ["x"]}}
    spec = parse(samples.box(spec={"poolRef": None, "template": bad}))
    assert spec.template is None and spec.has_template and spec.barred == "NoPodSource"
    assert [problem.field for problem in spec.invalid] == [
        "spec.template.metadata.labels",
        "spec.template.spec.containers[0]",
        "spec.template",
    ]


def test_a_bad_template_beside_a_pool_is_told_and_bars_nothing() -> None:
    spec = parse(samples.box(spec={"template": {"spec": {"containers": "x"}}}))
    assert spec.barred == "" and [problem.field for problem in spec.invalid] == ["spec.template.spec.containers"]


def test_a_template_beside_a_pool_is_allowed() -> None:
    spec = parse(samples.box(spec={"template": {"spec": {}}}))
    assert spec.has_template and spec.problems == ()


@pytest.mark.parametrize("task", [{}, {"spec": {}}])
def test_any_task_template_switches_tasks_on(task: dict[str, Any]) -> None:
    assert parse(samples.box(spec={"taskTemplate": task})).task_template == task
    assert parse(samples.box(spec={"taskTemplate": None})).task_template is None


@pytest.mark.parametrize(("value", "expected"), [(True, True), (False, False), (None, None), ("true", None)])
def test_pause_is_true_false_or_no_intent(value: Any, expected: bool | None) -> None:
    assert parse(samples.box(spec={"pause": value})).pause is expected


# -- priority ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "annotation", "expected"),
    [(5, "9", 5), (None, "9", 9), (None, "-100", -100), (None, "+7", 7), (None, None, 0), (0, "9", 0)],
)
def test_priority_is_the_field_else_the_annotation(field: int | None, annotation: str | None, expected: int) -> None:
    noted = {} if annotation is None else {names.PRIORITY: annotation}
    spec = parse(samples.box(spec={"priority": field}, annotations=noted))
    assert spec.priority == expected and spec.problems == ()


@pytest.mark.parametrize("annotation", ["101", "-101", "high", "", "1.5", "9" * 5000, "٣", "--1", "+"])
def test_a_senseless_priority_annotation_is_ignored_with_a_warning(annotation: str) -> None:
    obj = samples.box(annotations={names.PRIORITY: annotation})
    assert parse(obj).priority == 0
    assert reasons(obj, "warning") == ["InvalidPriority"] and reasons(obj) == []


# -- the record ----------------------------------------------------------------------------------------------


def test_record_release_and_endpoints_are_read_together() -> None:
    spec = parse(
        samples.box(
            record={"pods": ["p1", "p2"], "poolRef": "warm", "seq": 2},
            release=["p2"],
            released=[],
            endpoints=["10.0.0.1", ""],
        )
    )
    assert spec.record is not None and spec.record.pods == ("p1", "p2")
    assert (spec.release, spec.released, spec.endpoints) == (("p2",), (), ("10.0.0.1", ""))


@pytest.mark.parametrize("key", [names.ALLOC_STATUS, names.ALLOC_RELEASE, names.ALLOC_RELEASED])
def test_one_unreadable_annotation_makes_the_whole_record_unreadable(key: str) -> None:
    obj = samples.box(record={"pods": ["p1"]}, release=["p1"])
    obj["metadata"]["annotations"][key] = "{garbage"
    spec = parse(obj)
    assert spec.record_error is not None and key in spec.record_error.field
    assert spec.record is None and spec.release == () and spec.released == ()


def test_only_true_conditions_are_found() -> None:
    stored = [
        {"type": "PodFailed", "status": "True", "reason": "X"},
        {"type": "Ready", "status": "False"},
        "junk",
    ]
    spec = parse(samples.box(status={"conditions": stored, "phase": "Failed", "observedGeneration": 3}))
    failed = spec.condition("PodFailed")
    assert failed is not None and failed["reason"] == "X"
    assert spec.condition("Ready") is None and spec.condition("Paused") is None
    assert (spec.phase, spec.observed, spec.pause_observed) == ("Failed", 3, 0)


FIELDS = (
    "replicas",
    "poolRef",
    "template",
    "shardPatches",
    "expireTime",
    "taskTemplate",
    "shardTaskPatches",
    "taskResourcePolicyWhenCompleted",
    "pause",
    "lostPodPolicy",
    "allocationPolicy",
    "allocationTimeoutSeconds",
    "priority",
)


@settings(max_examples=200, deadline=None)
@given(st.fixed_dictionaries({}, optional={name: samples.JSON for name in FIELDS}), samples.JSON)
def test_no_object_whatever_makes_parse_raise(spec: dict[str, Any], annotation: Any) -> None:
    meta = {"name": "b", "namespace": "n", "annotations": {names.ALLOC_STATUS: annotation}}
    parsed = parse({"metadata": meta, "spec": spec, "status": annotation})
    assert parsed.replicas >= 0 and abs(parsed.priority) <= 100
