"""CRD schemas: defaulting, pruning and validation of custom objects, as a structural schema asks for.

`conform` changes a freshly decoded object in place and returns what is wrong with it as causes for a 422.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Any

from osb.sim.patches import clone

Obj = dict[str, Any]
Cause = tuple[str, str, str]  # field path, reason, message

_KEEP = "x-kubernetes-preserve-unknown-fields"
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "object": (dict,),
    "array": (list,),
}  # fmt: skip
_TYPE_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object", list: "array"}


def conform(schema: Obj | None, obj: Obj, *, unique: bool = True) -> list[Cause]:
    """Prune, default, validate. apiVersion, kind and metadata are never pruned.

    `unique` False lets duplicates in keyed lists pass, as the real server (1.20) does on the status path.
    """
    if not schema:
        return []
    envelope: Obj = {key: obj.pop(key) for key in ("apiVersion", "kind", "metadata") if key in obj}
    causes: list[Cause] = []
    _prune(schema, obj)
    _default(schema, obj)
    _check(schema, {**envelope, **obj} if schema.get("required") else obj, "", causes)
    rest = dict(obj)
    obj.clear()
    obj.update(envelope)
    obj.update(rest)
    _check_name(schema, obj, causes)
    return causes if unique else [cause for cause in causes if cause[1] != "FieldValueDuplicate"]


def _check_name(schema: Obj, obj: Obj, causes: list[Cause]) -> None:
    """Only metadata.name may carry rules in a CRD schema."""
    rules = schema.get("properties", {}).get("metadata", {}).get("properties", {}).get("name")
    name = obj.get("metadata", {}).get("name")
    if rules and name:
        _check(rules, name, "metadata.name", causes)


def _default(schema: Obj, value: Any) -> None:
    if isinstance(value, dict):
        for key, sub in (schema.get("properties") or {}).items():
            if "default" in sub and key not in value:
                value[key] = clone(sub["default"])
            if key in value:
                _default(sub, value[key])
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            for item in value.values():
                _default(extra, item)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            _default(schema["items"], item)


def _prune(schema: Obj, value: Any) -> None:
    if isinstance(value, dict):
        if schema.get("x-kubernetes-embedded-resource"):
            return
        known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        keep = schema.get(_KEEP)
        for key in list(value):
            if key in known:
                _drop_null(known[key], value, key)
                if key in value:
                    _prune(known[key], value[key])
            elif isinstance(extra, dict):
                _prune(extra, value[key])
            elif not keep and not extra:
                del value[key]
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            _prune(schema["items"], item)


def _drop_null(schema: Obj, holder: Obj, key: str) -> None:
    """A null for a field that is not nullable counts as absent."""
    if holder[key] is None and not schema.get("nullable"):
        del holder[key]


def _check(schema: Obj, value: Any, path: str, causes: list[Cause]) -> None:
    if value is None:
        if not schema.get("nullable") and (schema.get("type") or schema.get("x-kubernetes-int-or-string")):
            causes.append(_wrong_type(path, schema.get("type", "integer or string"), "null"))
        return
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            causes.append(_wrong_type(path, "integer or string", _name_of(value)))
        return
    wanted = schema.get("type")
    if wanted and not _is_type(value, wanted):
        causes.append(_wrong_type(path, wanted, _name_of(value)))
        return
    if "enum" in schema and value not in schema["enum"]:
        listed = ", ".join(f'"{item}"' for item in schema["enum"])
        causes.append((path, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}'))
    if isinstance(value, dict):
        _check_object(schema, value, path, causes)
    elif isinstance(value, list):
        _check_list(schema, value, path, causes)
    elif isinstance(value, str):
        _check_text(schema, value, path, causes)
    elif not isinstance(value, bool):
        _check_number(schema, value, path, causes)


def _check_object(schema: Obj, value: Obj, path: str, causes: list[Cause]) -> None:
    for key in schema.get("required") or ():
        if key not in value:
            causes.append((_join(path, key), "FieldValueRequired", "Required value"))
    known, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, item in value.items():
        if key in known:
            if path or key != "metadata":
                _check(known[key], item, _join(path, key), causes)
        elif isinstance(extra, dict):
            _check(extra, item, _join(path, key), causes)
    limit = schema.get("maxProperties")
    if limit is not None and len(value) > limit:
        causes.append(_invalid(path, value, f"must have at most {limit} items"))


def _check_list(schema: Obj, value: list[Any], path: str, causes: list[Cause]) -> None:
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            _check(items, item, f"{path}[{index}]", causes)
    if (limit := schema.get("maxItems")) is not None and len(value) > limit:
        causes.append((path, "FieldValueTooMany", f"Too many: {len(value)}: must have at most {limit} items"))
    if (limit := schema.get("minItems")) is not None and len(value) < limit:
        causes.append(_invalid(path, len(value), f"{path} in body should have at least {limit} items"))
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys and schema.get("x-kubernetes-list-type") == "map":
        _check_keys(value, keys, path, causes)


def _check_keys(value: list[Any], keys: list[str], path: str, causes: list[Cause]) -> None:
    seen: set[tuple[Any, ...]] = set()
    for index, item in enumerate(value):
        mark = tuple(item.get(key) for key in keys) if isinstance(item, dict) else (index,)
        if mark in seen:
            causes.append((f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {mark}"))
        seen.add(mark)


def _check_text(schema: Obj, value: str, path: str, causes: list[Cause]) -> None:
    if (limit := schema.get("maxLength")) is not None and len(value) > limit:
        causes.append(
            (
                path,
                "FieldValueInvalid",
                f'Invalid value: "{value}": {path} in body should be at most {limit} chars long',
            )
        )
    if (limit := schema.get("minLength")) is not None and len(value) < limit:
        causes.append(_invalid(path, value, f"{path} in body should be at least {limit} chars long"))
    if (pattern := schema.get("pattern")) and not _pattern(pattern).search(value):
        causes.append(_invalid(path, value, f"{path} in body should match '{pattern}'"))
    if schema.get("format") == "date-time" and not _is_time(value):
        causes.append(_invalid(path, value, f"{path} in body must be of type date-time: {value!r}"))


def _check_number(schema: Obj, value: float, path: str, causes: list[Cause]) -> None:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and value < low:
        causes.append(_invalid(path, value, f"{path} in body should be greater than or equal to {low}"))
    if high is not None and value > high:
        causes.append(_invalid(path, value, f"{path} in body should be less than or equal to {high}"))


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def _is_time(text: str) -> bool:
    if len(text) < 20 or text[10] not in "Tt":
        return False
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _is_type(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer":
        return isinstance(value, int | float) and value == value // 1 and not _beyond(value)
    return isinstance(value, _TYPES.get(wanted, (object,)))


def _beyond(value: float) -> bool:
    """No int64. The server (1.20) reads such a number as a fraction, and checks no narrower format (int32)."""
    return not -(2**63) <= value < 2**63


def _name_of(value: Any) -> str:
    if isinstance(value, int) and _beyond(value):
        return "number"
    return _TYPE_NAMES.get(type(value), "null")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _wrong_type(path: str, wanted: str, got: str) -> Cause:
    return _invalid(path, got, f'{path} in body must be of type {wanted}: "{got}"')


def _invalid(path: str, value: Any, message: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else value
    return (path, "FieldValueInvalid", f"Invalid value: {shown}: {message}")
