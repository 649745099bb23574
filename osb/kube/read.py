"""Reads: one object, and lists in pages that all show the same moment.

A list is only worth something as a whole: pages of different versions, or a continue token that expired
midway, raise Gone, and the caller starts over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson

from osb.errors import Gone, Unavailable
from osb.kube.resources import resource
from osb.kube.transport import Call, Transport

PAGE = 500
GET_TIMEOUT = 10.0
LIST_TIMEOUT = 30.0


Items = list[dict[str, Any]]  # `list` itself is a method's name below


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list. `version` is the list's resourceVersion, the same on every page."""

    items: Items
    version: str


class Reads:
    """The reading half of `Kube`."""

    transport: Transport

    def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any]:
        """The live object. Raises NotFound when there is none."""
        call = Call(
            method="GET",
            path=resource(kind).path(namespace, name),
            verb="get",
            kind=kind,
            what=f"get {kind} {described(namespace, name)}",
            timeout=GET_TIMEOUT,
        )
        return decoded(self.transport.read(call), call.what)

    def list(
        self,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = PAGE,
    ) -> Iterator[Page]:
        """A consistent list, page by page. Raises Gone when its moment is lost midway."""
        row = resource(kind)
        what = f"list {kind} {described(namespace, '')}"
        version = token = ""
        while True:
            query = {"limit": str(limit)}
            query |= {key: value for key, value in _selectors(labels, fields, token).items() if value}
            call = Call(
                method="GET",
                path=f"{row.path(namespace)}?{urlencode(query)}",
                verb="list",
                kind=kind,
                what=what,
                timeout=LIST_TIMEOUT,
            )
            answer = decoded(self.transport.read(call), what)
            meta = answer.get("metadata") or {}
            shown = str(meta.get("resourceVersion") or "")
            if version and shown != version:
                raise Gone(f"{what}: pages of two versions, {version} and {shown}; list again", status=410)
            version = shown
            token = meta.get("continue") or ""
            yield Page(_named(answer.get("items") or [], row.api_version, row.kind), version)
            if not token:
                return

    def all(self, kind: str, namespace: str | None = None, *, labels: str = "", fields: str = "") -> tuple[Items, str]:
        """All objects and the list's version; one fresh start when the list is lost midway."""
        for attempt in (1, 2):
            items: Items = []
            version = ""
            try:
                for page in self.list(kind, namespace, labels=labels, fields=fields):
                    items += page.items
                    version = page.version
                return items, version
            except Gone:
                if attempt == 2:
                    raise
        raise AssertionError("unreachable: the second attempt returns or raises")


def described(namespace: str | None, name: str) -> str:
    """An object for a message: "ns/name", "name" when cluster-wide, "ns/*" for a list."""
    return "/".join(part for part in (namespace or "", name or "*") if part)


def decoded(body: bytes, what: str) -> dict[str, Any]:
    """The JSON object of an answer. Half an answer is no answer: Unavailable."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unavailable(f"{what}: the answer is not JSON: {error}") from error
    if not isinstance(answer, dict):
        raise Unavailable(f"{what}: the answer is not a JSON object")
    return answer


def _selectors(labels: str, fields: str, token: str) -> dict[str, str]:
    return {"labelSelector": labels, "fieldSelector": fields, "continue": token}


def _named(items: list[dict[str, Any]], api_version: str, kind: str) -> list[dict[str, Any]]:
    """List items of built-in kinds come without kind and apiVersion; gets and events have them."""
    for item in items:
        item.setdefault("apiVersion", api_version)
        item.setdefault("kind", kind)
    return items
