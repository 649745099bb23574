"""docs/using.md names every code, annotation, label, finalizer, condition and script that there is, and no other."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from osb.api import names
from osb.api.restart import RestartConfig
from osb.decide.assign_profiles import PREDICATES
from osb.decide.poolstatus import HELD
from osb.sim.script import PREFIX, Script

TEXT = (Path(__file__).parents[2] / "docs" / "using.md").read_text()
OURS = re.compile(r"[a-z.-]*(?:sandbox\.opensandbox\.io|pool\.opensandbox\.io)/[a-z0-9-]+")


def _rows(head: str) -> list[str]:
    """First cells of the table with that head."""
    lines = TEXT[TEXT.index(f"| {head} |") :].splitlines()[2:]
    end = next(i for i, line in enumerate(lines) if not line.startswith("|"))
    return [name for line in lines[:end] for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])]


def _full(cells: list[str]) -> set[str]:
    return {cell.replace("…", names.GROUP) for cell in cells}


def _keys(*prefixes: str) -> set[str]:
    """The keys in `names` whose constants begin with one of these prefixes."""
    found = {name: value for name, value in vars(names).items() if isinstance(value, str) and OURS.fullmatch(value)}
    return {value for name, value in found.items() if name.startswith(prefixes)}


def test_every_annotation_label_and_finalizer_is_in_its_table() -> None:
    labels, finalizers = _keys("LABEL_"), _keys("FINALIZER_")
    assert _full(_rows("Annotation | On")) == _keys("") - labels - finalizers - {names.API_VERSION}
    assert _full(_rows("Label | On")) == labels
    assert _full(_rows("Finalizer | On")) == finalizers


def test_every_key_in_the_text_exists() -> None:
    assert set(OURS.findall(TEXT)) <= _keys("")


def test_every_code_and_condition_is_in_its_table() -> None:
    assert tuple(_rows("Code | Means")) == names.WAIT_CODES
    assert set(_rows("Condition of a BatchSandbox")) == set(names.BOX_CONDITIONS)
    assert set(_rows("Condition of a Pool")) == {*names.POOL_CONDITIONS, HELD}
    assert set(_rows("Phase | Means")) == set(names.BOX_PHASES)


def test_every_predicate_and_member_of_the_restart_config_is_in_its_table() -> None:
    assert tuple(_rows("Predicate")) == PREDICATES
    assert len(_rows("Member | Default")) == len(fields(RestartConfig))


def test_every_script_of_the_fake_kubelet_is_in_its_table() -> None:
    known = {PREFIX + field.name.replace("_", "-") for field in fields(Script)}
    assert set(_rows("Annotation | The pod")) == known
