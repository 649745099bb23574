"""Assign profiles: what is read, what is refused, and that a mistake changes nothing."""

from __future__ import annotations

import orjson
import pytest

from osb.decide.assign_profiles import BUILT_IN, LEAST, MOST, Profile, Table, parse_profiles

GOOD = Table({"default": Profile(name="default", predicates=("image",))})


def text(*profiles: object) -> str:
    return orjson.dumps(list(profiles)).decode()


def test_a_full_profile_is_read() -> None:
    table = parse_profiles(
        text(
            {
                "name": "gpu",
                "plugins": {
                    "predicate": ["image", "labelselector"],
                    "score": [{"name": "resbalance", "weight": 7}],
                },
                "pluginConf": [
                    {"name": "resbalance", "args": {"strategy": "MostAllocated"}},
                    {"name": "labelselector", "args": {"keys": ["team"]}},
                ],
            }
        ),
        Table(),
    )
    assert table.problems == ()
    assert table.find("gpu") == Profile(
        name="gpu",
        predicates=("image", "labelselector"),
        scores=(("resbalance", 7),),
        label_keys=("team",),
        strategy=MOST,
    )


def test_an_unknown_name_means_the_built_in_default_and_an_own_default_replaces_it() -> None:
    assert Table().find("nobody") == BUILT_IN
    assert GOOD.find("").predicates == ("image",)


@pytest.mark.parametrize("gone", [None, "", "   "])
def test_a_deleted_or_empty_config_map_ends_its_profiles(gone: str | None) -> None:
    assert parse_profiles(gone, GOOD) == Table()


def test_an_empty_list_means_the_default() -> None:
    assert parse_profiles("[]", GOOD) == Table()


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ("{", "profiles"),
        ('{"name":"x"}', "profiles"),
        (text("x"), "profiles[0]"),
        (text({"name": ""}), "profiles[0].name"),
        (text({"name": "x", "plugins": {"predicate": ["imgae"]}}), "profiles[0].plugins.predicate"),
        (text({"name": "x", "plugins": {"score": [{"name": "y"}]}}), "profiles[0].plugins.score[0].name"),
        (
            text({"name": "x", "plugins": {"score": [{"name": "resbalance", "weight": -1}]}}),
            "profiles[0].plugins.score[0].weight",
        ),
        (
            text({"name": "x", "pluginConf": [{"name": "resbalance", "args": {"strategy": "Some"}}]}),
            "profiles[0].pluginConf[resbalance].args.strategy",
        ),
        (
            text({"name": "x", "pluginConf": [{"name": "labelselector", "args": {"keys": 5}}]}),
            "profiles[0].pluginConf[labelselector].args.keys",
        ),
        (text({"name": "x"}, {"name": "x"}), "profiles[1].name"),
    ],
)
def test_any_mistake_keeps_the_last_good_table_and_names_the_field(bad: str, field: str) -> None:
    table = parse_profiles(bad, GOOD)
    assert table.profiles == GOOD.profiles
    assert table.problems[0].startswith(f"{field}:")


def test_one_key_may_be_plain_text() -> None:
    one = {"name": "x", "pluginConf": [{"name": "labelselector", "args": {"keys": "team"}}]}
    assert parse_profiles(text(one), Table()).find("x").label_keys == ("team",)


def test_a_missing_strategy_is_least_allocated() -> None:
    assert parse_profiles(text({"name": "x"}), Table()).find("x").strategy == LEAST
