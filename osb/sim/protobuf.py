"""Bodies in Kubernetes' protobuf, which kubectl sends for built-in kinds: read, never written (answers are JSON).

In: the bytes of a request. Out: the object as JSON would have it, or a `Refusal`. The envelope is `k8s\\0` and a
message of kind, version and the object's own bytes; the fields are those of the published .proto files, for the kinds
that kubectl's own commands make. A field that is not in a table is passed over, as protobuf wants it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from osb.sim import refusals

Obj = dict[str, Any]
Table = Mapping[int, "Field"]

CONTENT = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\0"
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class Field(NamedTuple):
    """One field of a message. `map`: string keys to values of this type."""

    name: str
    type: Table | Literal["text", "bytes", "number", "truth", "time"] = "text"
    shape: Literal["one", "list", "map"] = "one"


def decode(raw: bytes) -> Obj:
    """The object in an envelope. 400 for bytes that are none, 415 for a kind without a table."""
    try:
        envelope = _envelope(raw)
        kind = str(envelope.get("typeMeta", {}).get("kind") or "")
        if kind not in KINDS:
            raise refusals.unsupported_protobuf(kind)
        inner = base64.b64decode(envelope.get("raw", ""))
        return {**envelope["typeMeta"], **_message(inner, KINDS[kind])}
    except (ValueError, OverflowError, OSError) as error:
        raise refusals.bad_request(f"error decoding the body: {error}") from error


def _envelope(raw: bytes) -> Obj:
    if not raw.startswith(_MAGIC):
        raise ValueError("protobuf of Kubernetes starts with k8s and a zero byte")
    return _message(raw[len(_MAGIC) :], _UNKNOWN)


def _message(raw: bytes, table: Table) -> Obj:
    """Empty texts and messages are left out: the sender writes fields that are not set as such."""
    found: Obj = {}
    for number, value in _fields(raw):
        field = table.get(number)
        if field is None:
            continue
        if field.shape == "map":
            key, item = _pair(_bytes(value), field)
            found.setdefault(field.name, {})[key] = item
        elif field.shape == "list":
            found.setdefault(field.name, []).append(_value(value, field))
        elif (one := _value(value, field)) not in ("", {}):
            found[field.name] = one
    return found


def _pair(raw: bytes, field: Field) -> tuple[str, Any]:
    """An entry of a map: key is field 1, value field 2; what is missing is empty."""
    parts = dict(_fields(raw))
    return _bytes(parts.get(1, b"")).decode(), _value(parts.get(2, b""), field)


def _value(value: int | bytes, field: Field) -> Any:
    if field.type in ("number", "truth"):
        number = _number(value)
        return bool(number) if field.type == "truth" else number
    raw = _bytes(value)
    if field.type == "text":
        return raw.decode()
    if field.type == "bytes":
        return base64.b64encode(raw).decode()
    if field.type == "time":
        seconds = _number(dict(_fields(raw)).get(1, 0))
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""
    assert not isinstance(field.type, str)
    return _message(raw, field.type)


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("a field has another type than expected")
    return value - (1 << 64) if value >> 63 else value  # int64 in two's complement


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a field has another type than expected")
    return value


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) in the order of the message."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(raw, at)
            yield number, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
        if wire == _LENGTH:
            size, at = _varint(raw, at)
        elif not size:
            raise ValueError(f"wire type {wire} is not known")
        if at + size > len(raw):
            raise ValueError("the message is cut off")
        yield number, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(raw):
            raise ValueError("the message is cut off")
        byte = raw[at]
        value, at = value | (byte & 0x7F) << shift, at + 1
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise ValueError("a number is longer than 64 bits")


# -- which field is what ---------------------------------------------------------------------------------------


def _texts(*names: str) -> dict[int, Field]:
    """Fields 1, 2, ... that are all text."""
    return {number: Field(name) for number, name in enumerate(names, 1)}


_UNKNOWN: Table = {1: Field("typeMeta", _texts("apiVersion", "kind")), 2: Field("raw", "bytes")}

_OWNER: Table = {
    1: Field("kind"), 3: Field("name"), 4: Field("uid"), 5: Field("apiVersion"), 6: Field("controller", "truth"),
    7: Field("blockOwnerDeletion", "truth"),
}  # fmt: skip
_META: Table = {
    **_texts("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"),
    7: Field("generation", "number"), 8: Field("creationTimestamp", "time"), 9: Field("deletionTimestamp", "time"),
    10: Field("deletionGracePeriodSeconds", "number"), 11: Field("labels", shape="map"),
    12: Field("annotations", shape="map"), 13: Field("ownerReferences", _OWNER, "list"),
    14: Field("finalizers", shape="list"),
}  # fmt: skip
_REFERENCE: Table = _texts("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_BOUND: Table = _texts("kind", "apiVersion", "name", "uid")

_DELETE_OPTIONS: Table = {
    1: Field("gracePeriodSeconds", "number"), 2: Field("preconditions", _texts("uid", "resourceVersion")),
    3: Field("orphanDependents", "truth"), 4: Field("propagationPolicy"), 5: Field("dryRun", shape="list"),
}  # fmt: skip
_RULE: Table = {
    number: Field(name, shape="list")
    for number, name in enumerate(("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"), 1)
}
_SUBJECT: Table = _texts("kind", "apiGroup", "name", "namespace")


def _with_meta(*fields: Field) -> dict[int, Field]:
    """Field 1 is the metadata, the others follow."""
    return {1: Field("metadata", _META), **dict(enumerate(fields, 2))}


_BINDING = _with_meta(Field("subjects", _SUBJECT, "list"), Field("roleRef", _texts("apiGroup", "kind", "name")))

KINDS: dict[str, Table] = {
    "Namespace": _with_meta(
        Field("spec", {1: Field("finalizers", shape="list")}), Field("status", {1: Field("phase")})
    ),
    "ConfigMap": _with_meta(
        Field("data", shape="map"), Field("binaryData", "bytes", "map"), Field("immutable", "truth")
    ),
    "Secret": _with_meta(
        Field("data", "bytes", "map"), Field("type"), Field("stringData", shape="map"), Field("immutable", "truth")
    ),
    "ServiceAccount": _with_meta(
        Field("secrets", _REFERENCE, "list"), Field("imagePullSecrets", _texts("name"), "list"),
        Field("automountServiceAccountToken", "truth"),
    ),
    "TokenRequest": _with_meta(Field("spec", {
        1: Field("audiences", shape="list"), 3: Field("boundObjectRef", _BOUND),
        4: Field("expirationSeconds", "number"),
    })),
    "Role": _with_meta(Field("rules", _RULE, "list")),
    "ClusterRole": _with_meta(Field("rules", _RULE, "list")),
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "SelfSubjectAccessReview": _with_meta(Field("spec", {
        1: Field("resourceAttributes",
                 _texts("namespace", "verb", "group", "version", "resource", "subresource", "name")),
        2: Field("nonResourceAttributes", _texts("path", "verb")),
    })),
    "SelfSubjectRulesReview": _with_meta(Field("spec", _texts("namespace"))),
    "Eviction": _with_meta(Field("deleteOptions", _DELETE_OPTIONS)),
    "DeleteOptions": _DELETE_OPTIONS,
}  # fmt: skip
