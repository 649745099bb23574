"""What the pages for operators name exists: metrics, values, commands."""

from __future__ import annotations

import re

import pytest

from osb.cli.main import app
from osb.obs.table import TABLE
from tests.doubles.chart import ROOT, default_values

PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text() for name in ("operations", "migration")}


@pytest.mark.parametrize("page", PAGES)
def test_every_metric_that_a_page_names_is_served(page: str) -> None:
    named = set(re.findall(r"\bopensandbox_[a-z_]+", PAGES[page]))
    assert named <= {metric.name for metric in TABLE}


@pytest.mark.parametrize("page", PAGES)
def test_every_value_that_a_page_names_is_in_the_chart(page: str) -> None:
    values = default_values()
    quoted = re.findall(r"`([a-z][A-Za-z]+(?:\.[A-Za-z]+)+)(?:: [a-z]+)?`", PAGES[page])
    named = [text for text in quoted if text.split(".")[0] in values and text != "values.yaml"]
    assert named
    for path in named:
        node = values
        for part in path.split("."):
            assert part in node, path
            node = node[part]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_a_page_names_exists(page: str) -> None:
    made = app()
    known = {c.name for c in made.registered_commands} | {g.name for g in made.registered_groups}
    assert set(re.findall(r"osbctl ([a-z]+)", PAGES[page])) <= known
