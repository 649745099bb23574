"""The definitions in the chart are those in the code, and an upgrade of the chart updates them."""

from __future__ import annotations

import importlib.util

import pytest
import yaml

from osb.api.crds import crds
from tests.doubles.chart import ROOT, at, objects


def _texts() -> dict[object, str]:
    found = importlib.util.spec_from_file_location("chart_crds", ROOT / "charts" / "crds.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    made: dict[object, str] = module.texts()
    return made


def test_the_files_are_byte_for_byte_what_the_code_says() -> None:
    expected = _texts()
    assert len(expected) == 6
    for path, text in expected.items():
        assert path.read_text() == text, f"{path}: run `python charts/crds.py`"  # type: ignore[attr-defined]  # a Path


@pytest.mark.parametrize(("version", "cel"), [("1.20.2", False), ("1.29.9", False), ("1.30.0", True), ("1.37.0", True)])
def test_they_are_rendered_unchanged_with_rules_only_for_servers_that_forgive_old_objects(
    version: str, cel: bool
) -> None:
    found = {o["metadata"]["name"]: o for o in objects(at(version)) if o["kind"] == "CustomResourceDefinition"}
    for wanted in crds(cel=cel):
        made = found.pop(wanted["metadata"]["name"])
        assert made["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert made == wanted
    assert found == {}


def test_annotations_are_added_and_keeping_is_a_choice() -> None:
    values = {"crds": {"keep": False, "annotations": {"a": "b"}}}
    assert [o["metadata"]["annotations"] for o in _definitions(values)] == [{"a": "b"}] * 3
    assert ["annotations" in o["metadata"] for o in _definitions({"crds": {"keep": False}})] == [False] * 3
    assert _definitions({"crds": {"install": False}}) == []


def _definitions(values: dict[str, object]) -> list[dict[str, dict[str, object]]]:
    return [o for o in objects(values) if o["kind"] == "CustomResourceDefinition"]


def test_the_pool_s_strategies_and_counters_are_in_the_chart() -> None:
    text = next(yaml.safe_dump(o) for o in _definitions({}) if o["metadata"]["name"] == "pools.sandbox.opensandbox.io")
    for field in ("scaleStrategy", "updateStrategy", "recycleStrategy", "updated", "AVAILABLE", "UPDATED"):
        assert field in text
