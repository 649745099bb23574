"""/openapi/v2 for the custom kinds: JSON, and the protobuf that kubectl asks for.

kubectl needs it for `explain` and for client-side validation. The protobuf is written by hand from the public
OpenAPI v2 message definitions: a few fields of a few messages.
"""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from osb.sim.kinds import Registry, Resource

Obj = dict[str, Any]

_INFO: Obj = {"title": "Kubernetes", "version": "v1.20.2"}


def answer(registry: Registry, request: web.BaseRequest) -> web.Response:
    definitions = {model_name(res): model(res) for res in registry.all() if res.custom}
    definitions[_META] = {"type": "object", "description": "Standard object metadata."}
    if "protobuf" in request.headers.get("Accept", ""):
        return web.Response(body=_document(definitions), content_type="application/octet-stream")
    document = {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": definitions}
    return web.Response(body=orjson.dumps(document), content_type="application/json")


_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def model_name(res: Resource) -> str:
    """Reversed group, version, kind: io.opensandbox.sandbox.v1alpha1.Pool."""
    return ".".join([*reversed(res.group.split(".")), res.version, res.kind])


def model(res: Resource) -> Obj:
    """The CRD's schema with metadata and the extension by which kubectl finds it."""
    schema: Obj = {**(res.schema or {"type": "object"})}
    properties = dict(schema.get("properties") or {})
    properties["metadata"] = {"$ref": f"#/definitions/{_META}", "description": "Standard object metadata."}
    properties.setdefault("apiVersion", {"type": "string"})
    properties.setdefault("kind", {"type": "string"})
    schema["properties"] = properties
    schema["x-kubernetes-group-version-kind"] = [{"group": res.group, "kind": res.kind, "version": res.version}]
    return schema


# -- protobuf ------------------------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(field: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def _flag(field: int, value: bool) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _named(name: str, value: bytes) -> bytes:
    return _bytes(1, name) + _bytes(2, value)


def _document(definitions: dict[str, Obj]) -> bytes:
    info = _bytes(1, _INFO["title"]) + _bytes(2, _INFO["version"])
    listed = b"".join(_bytes(1, _named(name, _schema(schema))) for name, schema in definitions.items())
    return _bytes(1, "2.0") + _bytes(2, info) + _bytes(8, b"") + _bytes(9, listed)


def _schema(schema: Obj) -> bytes:
    """Type, description, properties, items: what explain and kubectl's validation read.

    Free-form parts stay untyped.
    """
    if ref := schema.get("$ref"):
        return _bytes(1, ref)
    free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    parts = [_bytes(field, schema[key]) for field, key in ((2, "format"), (4, "description")) if schema.get(key)]
    parts += [_bytes(19, name) for name in schema.get("required") or ()]
    if isinstance(schema.get("additionalProperties"), dict):
        parts.append(_bytes(21, _bytes(1, _schema(schema["additionalProperties"]))))
    if schema.get("type") and not free:
        parts.append(_bytes(22, _bytes(1, schema["type"])))
    if isinstance(schema.get("items"), dict):
        parts.append(_bytes(23, _bytes(1, _schema(schema["items"]))))
    if schema.get("properties") and not free:
        listed = b"".join(_bytes(1, _named(name, _schema(sub))) for name, sub in schema["properties"].items())
        parts.append(_bytes(25, listed))
    if kinds := schema.get("x-kubernetes-group-version-kind"):
        text = "".join(f"- group: {k['group']}\n  kind: {k['kind']}\n  version: {k['version']}\n" for k in kinds)
        parts.append(_bytes(31, _named("x-kubernetes-group-version-kind", _bytes(2, text))))
    return b"".join(parts)
