"""The CustomResourceDefinitions, made from the field tables; and what a served one lacks.

One source for every shipped file: manifests, chart and `osbctl crds` all print `crds()`, so they cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from osb.api import crd_fields_box, crd_fields_pool, crd_fields_snapshot, names
from osb.api.crd_fields import PRESERVE, VALIDATIONS, Schema

_TABLES: Mapping[str, ModuleType] = {
    names.KIND_BOX: crd_fields_box,
    names.KIND_POOL: crd_fields_pool,
    names.KIND_SNAPSHOT: crd_fields_snapshot,
}
_SHORT: Mapping[str, list[str]] = {names.KIND_BOX: ["bsbx"], names.KIND_SNAPSHOT: ["sbxsnap"]}

_API_VERSION = {"type": "string", "description": "Version of the schema of this object: group/version."}
_KIND = {"type": "string", "description": "Kind of this object."}


def crds(cel: bool = False) -> list[Schema]:
    """The three definitions, ready to apply; fresh copies.

    `cel` adds x-kubernetes-validations, for servers from 1.30 on, which forgive unchanged fields of stored
    objects. Never by default: an older kubectl refuses to apply such a definition (spec/additions.md 1.2).
    """
    return [crd(kind, cel=cel) for kind in _TABLES]


def crd(kind: str, *, cel: bool = False) -> Schema:
    """The definition of one kind. Raises KeyError for a kind that is not ours."""
    table, plural = _TABLES[kind], names.PLURALS[kind]
    spoken: Schema = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    if kind in _SHORT:
        spoken["shortNames"] = list(_SHORT[kind])
    version: Schema = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema(kind, cel=cel)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": deepcopy(list(table.COLUMNS)),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{names.GROUP}"},
        "spec": {"group": names.GROUP, "names": spoken, "scope": "Namespaced", "versions": [version]},
    }


def schema(kind: str, *, cel: bool = False) -> Schema:
    """The OpenAPI schema of one kind; a fresh copy."""
    table = _TABLES[kind]
    spec = deepcopy(table.SPEC)
    if cel:
        _add_rules(kind, spec)
    metadata: Schema = {"type": "object"}
    if kind == names.KIND_POOL:
        metadata["properties"] = {"name": deepcopy(crd_fields_pool.NAME)}
    return {
        "type": "object",
        "description": table.ABOUT,
        "properties": {
            "apiVersion": dict(_API_VERSION),
            "kind": dict(_KIND),
            "metadata": metadata,
            "spec": spec,
            "status": deepcopy(table.STATUS),
        },
    }


def _add_rules(kind: str, spec: Schema) -> None:
    """A rule can only look at typed fields, so the template gets the little type that the rules need."""
    if "template" in spec["properties"]:
        spec["properties"]["template"] |= {
            "type": "object",
            "nullable": True,
            "properties": {
                "spec": {
                    "type": "object",
                    PRESERVE: True,
                    "properties": {"restartPolicy": {"type": "string"}},
                }
            },
        }
    for path, rule in _TABLES[kind].RULES:
        target = spec
        for name in path:
            target = target["properties"][name]
        target.setdefault(VALIDATIONS, []).append(dict(rule))


# -- what a served definition lacks --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lacking:
    """Fields (`spec.priority`) and condition types that a served definition does not know.

    The API server drops unknown fields, and refuses a whole status that has an unknown condition type.
    """

    fields: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()


def lacking(kind: str, served: Mapping[str, Any]) -> Lacking:
    """Compare a served CustomResourceDefinition with ours. An unreadable one lacks everything."""
    theirs = _served_schema(served)
    missing = tuple(path for path, _ in fields(kind) if not _knows(theirs, path.split(".")))
    return Lacking(missing, _unknown_conditions(kind, theirs))


def fields(kind: str) -> Iterator[tuple[str, Schema]]:
    """(path, schema) of every field below spec and status, parents first, for the docs. `[]` marks elements."""
    ours = schema(kind)["properties"]
    for part in ("spec", "status"):
        yield from _walk(part, ours[part])


def _walk(path: str, node: Schema) -> Iterator[tuple[str, Schema]]:
    for name, child in node.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from _walk(f"{path}.{name}", child)
    if node.get("items", {}).get("properties"):
        yield from _walk(f"{path}[]", node["items"])


def _served_schema(served: Mapping[str, Any]) -> Mapping[str, Any]:
    for version in (served.get("spec") or {}).get("versions") or ():
        if version.get("name") == names.VERSION:
            found: Mapping[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            return found
    return {}


def _knows(node: Mapping[str, Any], path: list[str]) -> bool:
    for step in path:
        name = step.removesuffix("[]")
        child = (node.get("properties") or {}).get(name)
        if child is None:
            return bool(node.get(PRESERVE))
        node = child.get("items") or {} if step.endswith("[]") else child
    return True


def _unknown_conditions(kind: str, theirs: Mapping[str, Any]) -> tuple[str, ...]:
    def accepted(node: Mapping[str, Any]) -> list[str] | None:
        for step in ("properties", "status", "properties", "conditions", "items", "properties", "type"):
            node = node.get(step) or {}
        return node.get("enum")

    ours, found = accepted(schema(kind)), accepted(theirs)
    return tuple(name for name in ours or () if found is not None and name not in found)
