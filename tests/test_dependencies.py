"""docs/dependencies.md names every direct dependency with its reason, and no other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~!; ]", text, maxsplit=1)[0] for text in requirements}


def test_each_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = _names(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted |= _names(extra)
    rows = [line.split("|") for line in (ROOT / "docs" / "dependencies.md").read_text().splitlines()]
    cells = [[cell.strip() for cell in row[1:-1]] for row in rows if len(row) > 3]
    told = {row[0]: row[-1] for row in cells if row[0] != "name" and not row[0].startswith("-")}
    assert set(told) == wanted
    assert all(len(reason) > 10 for reason in told.values())
