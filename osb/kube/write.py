"""Writes: create, patch, replace, delete. Sent once; the answer is the object as stored.

Act on identity: `delete` takes the UID (and the version, where the decision depends on content) as preconditions.
A merge patch replaces lists whole, so a patch of finalizers, owners or conditions must carry the resourceVersion
it was computed from (spec/pitfalls.md 31); one without is a programming error here, not a lost finalizer later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import orjson

from osb.kube.read import decoded, described
from osb.kube.resources import resource
from osb.kube.transport import Call, Transport

WRITE_TIMEOUT = 10.0

Content = Literal["merge", "strategic", "json"]
Body = Mapping[str, Any] | list[Any]

_CONTENT = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
_META_LISTS = ("finalizers", "ownerReferences")


class Writes:
    """The writing half of `Kube`."""

    transport: Transport

    def create(
        self, kind: str, namespace: str | None, body: Mapping[str, Any], *, timeout: float = WRITE_TIMEOUT
    ) -> dict[str, Any]:
        """POST. Raises AlreadyExists, Refused, ...; after Unavailable nobody knows: read it by its name.

        A body that does not say what it is gets apiVersion and kind: the server refuses custom objects without.
        """
        name, row = _name_of(body), resource(kind)
        call = Call(
            method="POST",
            path=row.path(namespace),
            verb="create",
            kind=kind,
            what=f"create {kind} {described(namespace, name)}" if name else f"create {kind}",
            body=orjson.dumps({"apiVersion": row.api_version, "kind": row.kind, **body}),
            timeout=timeout,
        )
        return decoded(self.transport.write(call), call.what)

    def patch(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        body: Body,
        *,
        sub: str = "",
        content: Content = "merge",
        timeout: float = WRITE_TIMEOUT,
    ) -> dict[str, Any]:
        """PATCH with an explicit media type. `sub="status"` goes to the status subresource.

        Raises Conflict when `metadata.resourceVersion` in the body is not the current one.
        """
        if (content == "json") != isinstance(body, list):
            raise TypeError(f"a {content} patch cannot be sent as {type(body).__name__}")
        if isinstance(body, Mapping):
            _require_version(body)
        call = Call(
            method="PATCH",
            path=resource(kind).path(namespace, name, sub),
            verb="patch_status" if sub == "status" else "patch",
            kind=kind,
            what=f"patch {kind} {described(namespace, name)}{'/' + sub if sub else ''}",
            body=orjson.dumps(body),
            content=_CONTENT[content],
            timeout=timeout,
        )
        return decoded(self.transport.write(call), call.what)

    def replace(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        body: Body,
        *,
        sub: str = "",
        timeout: float = WRITE_TIMEOUT,
    ) -> dict[str, Any]:
        """PUT of the whole object; Conflict when its resourceVersion is old."""
        call = Call(
            method="PUT",
            path=resource(kind).path(namespace, name, sub),
            verb="replace",
            kind=kind,
            what=f"replace {kind} {described(namespace, name)}",
            body=orjson.dumps(body),
            timeout=timeout,
        )
        return decoded(self.transport.write(call), call.what)

    def delete(
        self,
        kind: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        version: str | None = None,
        grace: int | None = None,
        propagation: str | None = None,
    ) -> dict[str, Any]:
        """DELETE. Raises NotFound, or Conflict when a precondition (UID, version) does not hold.

        Answers the object with its deletionTimestamp, or a Status when it is gone at once.
        """
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        checks = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
        if checks:
            options["preconditions"] = checks
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if propagation:
            options["propagationPolicy"] = propagation
        call = Call(
            method="DELETE",
            path=resource(kind).path(namespace, name),
            verb="delete",
            kind=kind,
            what=f"delete {kind} {described(namespace, name)}",
            body=orjson.dumps(options),
            timeout=WRITE_TIMEOUT,
        )
        return decoded(self.transport.write(call), call.what)


def _require_version(body: Mapping[str, Any]) -> None:
    meta = body.get("metadata") or {}
    if meta.get("resourceVersion"):
        return
    lists = [f"metadata.{name}" for name in _META_LISTS if name in meta]
    if "conditions" in (body.get("status") or {}):
        lists.append("status.conditions")
    if lists:
        raise ValueError(f"a patch of {', '.join(lists)} needs metadata.resourceVersion: it replaces the list whole")


def _name_of(body: Body) -> str:
    meta = body.get("metadata", {}) if isinstance(body, Mapping) else {}
    return str(meta.get("name") or meta.get("generateName") or "")


__all__ = ["Body", "Content", "Writes"]
