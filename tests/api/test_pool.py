"""Reading a Pool: bad input gets its documented fallback and a problem, and never an exception."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osb.api import names, restart
from osb.api.intorstring import DEFAULT_UNAVAILABLE, IntOrPercent
from osb.api.pool import parse
from tests.api import samples


def capacity(*numbers: Any) -> dict[str, Any]:
    return {"capacitySpec": dict(zip(("bufferMin", "bufferMax", "poolMin", "poolMax"), numbers, strict=True))}


def reasons(obj: dict[str, Any], level: str = "invalid") -> list[str]:
    return [problem.reason for problem in parse(obj).problems if problem.level == level]


def test_a_sound_pool_has_no_problems_and_keeps_its_numbers() -> None:
    spec = parse(samples.pool())
    assert spec.problems == ()
    assert (spec.buffer_min, spec.buffer_max, spec.pool_min, spec.pool_max) == (1, 4, 0, 10)
    assert (spec.member, spec.uid, spec.version, spec.generation) == ("boxes/warm", "pool-uid", "7", 2)
    assert spec.created == datetime(2026, 1, 31, 8, tzinfo=UTC)
    assert spec.deleting is None and spec.creatable and spec.evicts and not spec.hold
    assert (spec.recycle, spec.placement) == ("Delete", "Packed")
    assert spec.scale_unavailable == spec.update_unavailable == DEFAULT_UNAVAILABLE


def test_a_crossed_buffer_band_is_read_the_other_way_round() -> None:
    obj = samples.pool(spec=capacity(5, 2, 0, 10))
    assert (parse(obj).buffer_min, parse(obj).buffer_max) == (2, 5)
    assert reasons(obj) == ["BufferRangeInvalid"]
    assert parse(obj).problems[0].field == "spec.capacitySpec.bufferMin"


def test_pool_max_wins_over_pool_min() -> None:
    obj = samples.pool(spec=capacity(0, 0, 9, 3))
    assert (parse(obj).pool_min, parse(obj).pool_max) == (3, 3)
    assert reasons(obj) == ["PoolRangeInvalid"]


@pytest.mark.parametrize("value", [-1, "3", 2.5, True, 2**31], ids=repr)
def test_a_capacity_number_past_the_schema_counts_as_zero(value: Any) -> None:
    obj = samples.pool(spec=capacity(0, 0, 0, value))
    assert parse(obj).pool_max == 0
    assert reasons(obj) == ["InvalidNumber"]


def test_pool_max_zero_is_allowed() -> None:
    obj = samples.pool(spec=capacity(0, 0, 0, 0))
    assert parse(obj).problems == () and parse(obj).pool_max == 0


@pytest.mark.parametrize(
    ("value", "base", "resolved"),
    [
        ("25%", 10, 3),
        ("25%", 4, 1),
        ("50%", 10, 5),
        ("10%", 9, 1),
        ("33%", 10, 4),
        ("25%", 0, 1),
        ("150%", 4, 6),
        (3, 100, 3),
        ("5", 100, 5),
    ],
)
def test_max_unavailable_resolves_rounded_up_and_at_least_one(value: Any, base: int, resolved: int) -> None:
    spec = parse(samples.pool(spec={"scaleStrategy": {"maxUnavailable": value}}))
    assert spec.scale_unavailable.resolve(base) == resolved
    assert spec.problems == ()


@pytest.mark.parametrize("value", [0, "0", "0%", -3, "-10%", "12.5%", "", "abc", 2.5, True, "5 %", "٣"], ids=repr)
def test_a_senseless_max_unavailable_is_reported_and_25_percent_is_in_force(value: Any) -> None:
    obj = samples.pool(spec={"updateStrategy": {"maxUnavailable": value}})
    assert parse(obj).update_unavailable == IntOrPercent(25, percent=True)
    assert reasons(obj) == ["InvalidMaxUnavailable"]
    assert parse(obj).problems[0].field == "spec.updateStrategy.maxUnavailable"


@pytest.mark.parametrize(
    ("strategy", "kind", "expected"),
    [
        (None, "Delete", []),
        ({}, "Delete", []),
        ({"type": "Noop"}, "Noop", []),
        ({"type": "Restart"}, "Restart", []),
        ({"type": "Recreate"}, "Delete", ["UnknownRecycleType"]),
        ("Restart", "Delete", ["InvalidType"]),
    ],
)
def test_recycle_type_falls_back_to_delete(strategy: Any, kind: str, expected: list[str]) -> None:
    obj = samples.pool(spec={"recycleStrategy": strategy})
    assert parse(obj).recycle == kind
    assert reasons(obj) == expected


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
def test_restart_without_restart_policy_always_is_delete(policy: str) -> None:
    template = {"spec": {"restartPolicy": policy, "containers": [{"name": "main"}]}}
    obj = samples.pool(spec={"recycleStrategy": {"type": "Restart"}, "template": template})
    assert parse(obj).recycle == "Delete"
    assert reasons(obj) == ["RestartNeedsAlways"]


@pytest.mark.parametrize("template", [None, "text"])
def test_without_a_template_pods_are_served_but_none_is_created(template: Any) -> None:
    spec = parse(samples.pool(spec={"template": template}))
    assert not spec.creatable and spec.template is None
    assert "TemplateMissing" in [problem.reason for problem in spec.invalid]


UNUSABLE = [
    ({"spec": {"containers": "x"}}, "spec.template.spec.containers: must be a list of objects, not 'x'"),
    ({"spec": {"containers": {"a": 1}}}, "spec.template.spec.containers: must be a list of objects, not {'a': 1}"),
    ({"spec": {"containers": ["x"]}}, "spec.template.spec.containers[0]: must be an object, not 'x'"),
    ({"spec": {"containers": [5]}}, "spec.template.spec.containers[0]: must be an object, not 5"),
    ({"spec": 5}, "spec.template.spec: must be an object, not 5"),
    ({"spec": {"volumes": "x"}}, "spec.template.spec.volumes: must be a list of objects, not 'x'"),
    ({"metadata": "x"}, "spec.template.metadata: must be an object, not 'x'"),
    ({"metadata": {"labels": "x"}}, "spec.template.metadata.labels: must be an object, not 'x'"),
    ({"metadata": {"labels": ["a"]}}, "spec.template.metadata.labels: must be an object, not ['a']"),
    ({"metadata": {"labels": {"a/b": 1}}}, "spec.template.metadata.labels[a/b]: must be a text, not 1"),
    ({"metadata": {"annotations": [1]}}, "spec.template.metadata.annotations: must be an object, not [1]"),
]


@pytest.mark.parametrize(("part", "told"), UNUSABLE, ids=[told for _, told in UNUSABLE])
def test_a_template_with_a_wrong_type_is_like_none_and_named_where_it_is_wrong(part: Any, told: str) -> None:
    good = {"spec": {"containers": [{"name": "main", "image": "img:1"}]}}
    spec = parse(samples.pool(spec={"template": {**good, **part}}))
    assert not spec.creatable and spec.template is None
    assert [(str(problem), problem.reason) for problem in spec.invalid] == [(told, "TemplateInvalid")]


def test_the_template_stays_raw() -> None:
    template = {"spec": {"containers": [{"name": "a", "unknownToUs": {"x": [1]}}], "futureField": True}}
    assert parse(samples.pool(spec={"template": template})).template == template


@pytest.mark.parametrize(("length", "fits"), [(63, True), (64, False)])
def test_a_name_longer_than_a_label_value_cannot_make_pods(length: int, fits: bool) -> None:
    spec = parse(samples.pool("p" * length))
    assert spec.creatable is fits
    assert [problem.reason for problem in spec.invalid] == ([] if fits else ["NameTooLong"])


def test_an_unknown_eviction_handler_evicts_nothing_and_only_warns() -> None:
    obj = samples.pool(labels={names.LABEL_EVICTION_HANDLER: "defualt"})
    assert not parse(obj).evicts and parse(obj).invalid == ()
    assert reasons(obj, "warning") == ["UnknownEvictionHandler"]


@pytest.mark.parametrize(("value", "held"), [("true", True), ("drill", True), ("false", False), ("", False)])
def test_the_hold_switch(value: str, held: bool) -> None:
    assert parse(samples.pool(annotations={names.HOLD: value})).hold is held


# -- restart-config ------------------------------------------------------------------------------------------


def with_restart(config: Any) -> dict[str, Any]:
    text = config if isinstance(config, str) else orjson.dumps(config).decode()
    return samples.pool(annotations={names.RESTART_CONFIG: text})


def test_a_restart_config_is_read_member_by_member() -> None:
    config = parse(
        with_restart(
            {
                "blacklist": ["side"],
                "retryInterval": "1m30s",
                "maxRetries": 5,
                "restartCommand": ["/bin/reset"],
            }
        )
    ).restart_config
    assert config == restart.RestartConfig(
        blacklist=("side",), retry_interval=90.0, max_retries=5, command=("/bin/reset",)
    )


@pytest.mark.parametrize(
    "config", ["", "null", {}, {"retryInterval": "", "restartCommand": []}], ids=lambda value: repr(value)
)
def test_an_empty_restart_config_is_the_default(config: Any) -> None:
    spec = parse(with_restart(config))
    assert spec.restart_config == restart.DEFAULT_RESTART and spec.problems == ()


@pytest.mark.parametrize(
    "config",
    [
        "{not json",
        [1],
        {"maxRetries": "3"},
        {"maxRetries": 0},
        {"maxRetries": True},
        {"retryInterval": "-5s"},
        {"retryInterval": "0s"},
        {"retryInterval": "soon"},
        {"retryInterval": 30},
        {"retryInterval": "8761h"},
        {"retryInterval": "9" * 400 + "h"},
        {"blacklist": "main"},
        {"blacklist": [1]},
        {"blacklist": ["main"]},
        {"restartCommand": "kill 1"},
        {"maxRetries": 9, "retryInterval": "1s", "restartCommand": "x"},
    ],
    ids=repr,
)
def test_one_bad_member_puts_all_defaults_in_force_with_a_warning(config: Any) -> None:
    spec = parse(with_restart(config))
    assert spec.restart_config == restart.DEFAULT_RESTART
    assert [(problem.reason, problem.level) for problem in spec.problems] == [("InvalidRestartConfig", "warning")]


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("1h", 3600), ("1.5s", 1.5), ("2m", 120), ("1h1m1s", 3661)]
)
def test_durations(text: str, seconds: float) -> None:
    assert restart.duration(text) == pytest.approx(seconds)


# -- sizing and fairness -------------------------------------------------------------------------------------


def schedule(**fields: Any) -> dict[str, Any]:
    return {"name": "day", "start": "0 8 * * 1-5", "durationMinutes": 600, "idle": 20, **fields}


def test_fairness_needs_a_tenant_label() -> None:
    assert parse(samples.pool(spec={"fairness": {"weights": {"blue": 3}}})).fairness is None
    fairness = parse(samples.pool(spec={"fairness": {"tenantLabel": "team", "weights": {"blue": 3}}})).fairness
    assert fairness is not None
    assert (fairness.label, fairness.weight("blue"), fairness.weight("red")) == ("team", 3, 1)


def test_demand_has_defaults_and_bounds() -> None:
    demand = parse(samples.pool(spec={"sizing": {"demand": {}}})).sizing.demand
    assert demand is not None and (demand.window, demand.headroom) == (300, 20)
    obj = samples.pool(spec={"sizing": {"demand": {"windowSeconds": 5}}})
    assert reasons(obj) == ["InvalidNumber"]
    assert parse(samples.pool()).sizing.demand is None


def test_a_schedule_is_active_from_its_start_for_its_duration() -> None:
    [period] = parse(samples.pool(spec={"sizing": {"schedules": [schedule()]}})).sizing.schedules
    monday = datetime(2026, 2, 2, 8, tzinfo=UTC)
    assert period.active_until(monday) == monday + timedelta(hours=10)
    assert period.active_until(monday + timedelta(hours=9, minutes=59)) is not None
    assert period.active_until(monday + timedelta(hours=10)) is None
    assert period.active_until(monday - timedelta(seconds=1)) is None
    assert period.active_until(datetime(2026, 2, 1, 9, tzinfo=UTC)) is None, "Sunday"


def test_a_schedule_follows_its_time_zone() -> None:
    item = schedule(timeZone="Asia/Tokyo", start="30 8 * * *", durationMinutes=60)
    [period] = parse(samples.pool(spec={"sizing": {"schedules": [item]}})).sizing.schedules
    assert period.active_until(datetime(2026, 2, 1, 23, 45, tzinfo=UTC)) == datetime(2026, 2, 2, 0, 30, tzinfo=UTC)
    assert period.active_until(datetime(2026, 2, 1, 8, 45, tzinfo=UTC)) is None


def test_a_schedule_longer_than_a_day_reaches_over_midnight() -> None:
    item = schedule(start="0 18 * * fri", durationMinutes=60 * 60)
    [period] = parse(samples.pool(spec={"sizing": {"schedules": [item]}})).sizing.schedules
    sunday = datetime(2026, 2, 1, 20, tzinfo=UTC)
    assert period.active_until(sunday) == datetime(2026, 2, 2, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    "bad",
    [
        "text",
        schedule(start="8:00"),
        schedule(start="60 * * * *"),
        schedule(start="0 8 * * 5-1"),
        schedule(start="*/0 * * * *"),
        schedule(start=None),
        schedule(timeZone="Mars/Olympus"),
        schedule(timeZone=1),
        schedule(durationMinutes=0),
        schedule(durationMinutes=None),
        schedule(idle=-1),
    ],
    ids=repr,
)
def test_an_invalid_schedule_is_off_and_the_others_stay(bad: Any) -> None:
    spec = parse(samples.pool(spec={"sizing": {"schedules": [bad, schedule(name="good")]}}))
    assert [period.name for period in spec.sizing.schedules] == ["good"]
    assert len(spec.invalid) == 1 and "schedules[0]" in spec.invalid[0].field


def test_at_most_16_schedules_count() -> None:
    spec = parse(samples.pool(spec={"sizing": {"schedules": [schedule()] * 17}}))
    assert len(spec.sizing.schedules) == 16
    assert [problem.reason for problem in spec.invalid] == ["InvalidSchedule"]


# -- anything at all -----------------------------------------------------------------------------------------

FIELDS = (
    "template",
    "capacitySpec",
    "scaleStrategy",
    "updateStrategy",
    "recycleStrategy",
    "placement",
    "fairness",
    "sizing",
)


@settings(max_examples=200, deadline=None)
@given(st.fixed_dictionaries({}, optional={name: samples.JSON for name in FIELDS}))
def test_no_spec_whatever_makes_parse_raise(spec: dict[str, Any]) -> None:
    parsed = parse({"metadata": {"name": "p", "namespace": "n"}, "spec": spec})
    assert parsed.buffer_min <= parsed.buffer_max and parsed.pool_min <= parsed.pool_max
