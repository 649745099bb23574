"""The words in which the field tables of our three kinds are written; each makes one piece of OpenAPI schema.

The tables themselves: `crd_fields_pool`, `crd_fields_box`, `crd_fields_snapshot`. Every field has a
description, which `kubectl explain` and the reference page of the docs show. Defaults of added fields stand
in the text, not in the schema, so that objects read back as they were written (spec/additions.md 1.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
VALIDATIONS = "x-kubernetes-validations"
INT_OR_STRING = "x-kubernetes-int-or-string"


def text(about: str, *, enum: Sequence[str] = (), default: str = "", longest: int = 0, form: str = "") -> Schema:
    """A string; `form` is an OpenAPI format such as date-time."""
    schema: Schema = {"type": "string", "description": about}
    if enum:
        schema["enum"] = list(enum)
    if default:
        schema["default"] = default
    if longest:
        schema["maxLength"] = longest
    if form:
        schema["format"] = form
    return schema


def time(about: str) -> Schema:
    return text(about, form="date-time")


def number(
    about: str, *, low: int | None = None, high: int | None = None, default: int | None = None, bits: int = 32
) -> Schema:
    schema: Schema = {"type": "integer", "format": f"int{bits}", "description": about}
    for name, value in (("minimum", low), ("maximum", high), ("default", default)):
        if value is not None:
            schema[name] = value
    return schema


def flag(about: str) -> Schema:
    """true, false or null: null takes the intent back."""
    return {"type": "boolean", "nullable": True, "description": about}


def free(about: str) -> Schema:
    """Anything, kept as it is: no type, unknown fields preserved."""
    return {"description": about, PRESERVE: True}


def int_or_text(about: str) -> Schema:
    return {
        "description": about,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        INT_OR_STRING: True,
    }


def group(about: str, fields: Mapping[str, Schema], *, required: Sequence[str] = ()) -> Schema:
    schema: Schema = {"type": "object", "description": about, "properties": dict(fields)}
    if required:
        schema["required"] = list(required)
    return schema


def mapping(about: str, values: Schema) -> Schema:
    return {"type": "object", "description": about, "additionalProperties": values}


def listing(about: str, items: Schema, *, key: str = "", most: int = 0) -> Schema:
    """A list of `items`; with `key` a map by that member, so that two writers do not overwrite each other."""
    schema: Schema = {"type": "array", "description": about, "items": items}
    if key:
        schema["x-kubernetes-list-type"] = "map"
        schema["x-kubernetes-list-map-keys"] = [key]
    if most:
        schema["maxItems"] = most
    return schema


def conditions(about: str, *, types: Sequence[str], statuses: Sequence[str], generation: bool = False) -> Schema:
    """A condition list by type; without `types` any type is accepted."""
    fields = {
        "type": text("What the condition is about.", enum=types),
        "status": text("Whether it holds.", enum=statuses),
        "reason": text("One word for programs: why it holds."),
        "message": text("One sentence for people: what was found, and what happens next."),
        "lastTransitionTime": time("When the status last changed; reason and message may have changed since."),
    }
    if generation:
        fields["observedGeneration"] = number(
            "The generation of the spec that this condition was computed from.", bits=64
        )
    item = group("One aspect of the object's state.", fields, required=("type", "status"))
    return listing(about, item, key="type")


def column(name: str, kind: str, path: str, *, wide: bool = False) -> Schema:
    """A column of `kubectl get`; `wide` shows it only with -o wide."""
    schema: Schema = {"name": name, "type": kind, "jsonPath": path}
    if wide:
        schema["priority"] = 1
    return schema


def rule(expression: str, message: str) -> Schema:
    """One CEL rule, for servers that forgive unchanged fields (1.30 and newer)."""
    return {"rule": expression, "message": message}
