"""The revision of a pod template, and taking over the one that the reference controller computed.

The revision is a hash of canonical JSON of the raw template, so neither a library upgrade nor key order nor
explicit nulls roll a pool (spec/pool.md 8.1). The reference hashes its own encoding of a typed object, so its
values differ: `adopted` keeps them in force until the template really changes (spec/operations.md 13).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import orjson

from osb.api import names
from osb.api.reading import text

LENGTH = 16  # hex characters


def canonical(value: Any) -> bytes:
    """Sorted keys, no nulls, no whitespace. List order counts."""
    return orjson.dumps(_without_nulls(value), option=orjson.OPT_SORT_KEYS)


def revision(template: Mapping[str, Any] | None) -> str:
    """16 lower-case hex digits; a missing template hashes the text `null`, as the reference does."""
    return hashlib.sha256(canonical(template)).hexdigest()[:LENGTH]


def adopted(
    template: Mapping[str, Any] | None,
    *,
    annotation: str | None,
    status: Mapping[str, Any],
    generation: int,
    idle: Collection[str] = (),
    idle_match: bool = False,
) -> str:
    """The revision in force: an adopted one while our hash of the template is the one it was adopted for.

    It is adopted from a status of the same generation; or, later, when every idle pod carries that revision
    (`idle`: their labels) and was found equal to the template (`idle_match`). In doubt the own hash: then
    idle pods roll.
    """
    ours = revision(template)
    kept = parse_adopted(annotation)
    if kept is not None and kept[0] == ours:
        return kept[1]
    theirs = text(status, "revision")
    if kept is not None or not theirs or theirs == ours:
        return ours
    if status.get("observedGeneration") == generation:
        return theirs
    return theirs if idle_match and idle and set(idle) == {theirs} else ours


def parse_adopted(annotation: str | None) -> tuple[str, str] | None:
    """(our hash, adopted revision) of the Pool's `adopted-revision` annotation; None when absent or unreadable."""
    if not annotation:
        return None
    try:
        data = orjson.loads(annotation)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(data, dict) or not text(data, "template") or not text(data, "revision"):
        return None
    return data["template"], data["revision"]


def format_adopted(template: Mapping[str, Any] | None, revision_in_force: str) -> str:
    """The annotation to write when `adopted` took over a foreign revision."""
    return orjson.dumps({"template": revision(template), "revision": revision_in_force}).decode()


def matches(template: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Whether a pod could have been made from the template: everything the template says is found in the pod.

    What the API server and admission add (defaults, tokens, tolerations) is ignored; list elements with a
    name are found by it, others by position.
    """
    meta = template.get("metadata") or {}
    found = pod.get("metadata") or {}
    return (
        _within(meta.get("labels") or {}, found.get("labels") or {}, skip=(names.LABEL_POOL_REVISION,))
        and _within(meta.get("annotations") or {}, found.get("annotations") or {})
        and _within(template.get("spec") or {}, pod.get("spec") or {})
    )


def _within(wanted: Any, actual: Any, *, skip: tuple[str, ...] = ()) -> bool:
    if wanted is None or wanted == {} or wanted == []:
        return True
    if isinstance(wanted, dict):
        return isinstance(actual, dict) and all(
            _within(value, actual.get(key)) for key, value in wanted.items() if key not in skip
        )
    if isinstance(wanted, list):
        return isinstance(actual, list) and all(
            _within(item, _partner(item, actual, position)) for position, item in enumerate(wanted)
        )
    return bool(wanted == actual)


def _partner(item: Any, actual: list[Any], position: int) -> Any:
    if isinstance(item, dict) and "name" in item:
        return next((x for x in actual if isinstance(x, dict) and x.get("name") == item["name"]), None)
    return actual[position] if position < len(actual) else None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
