"""What all rows of the routing table share: the context of a change, and looks at raw objects that parse nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osb.api.key import Key

Obj = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the table needs beside the two objects.

    `holders`: members (`ns/name`) of the sandboxes whose record names this pod.
    `ledger_agrees`: what the record holds (named and not acknowledged) is exactly what the ledger attributes
      to that sandbox.
    `endpoints_agree`: the endpoints, where they changed, are those of the sandbox's pods.
    `star`: members of the namespace's sandboxes that still wait for automatic assignment.
    """

    holders: tuple[str, ...] = ()
    ledger_agrees: bool = False
    endpoints_agree: bool = True
    star: tuple[str, ...] = ()


def key_of(kind: str, obj: Obj) -> Key:
    head = obj["metadata"]
    return Key(kind, head.get("namespace") or "", head["name"])


def sub(obj: Obj, member: str) -> Mapping[str, Any]:
    value = obj.get(member)
    return value if isinstance(value, dict) else {}


def meta(obj: Obj, member: str) -> Mapping[str, Any]:
    value = obj["metadata"].get(member)
    return value if isinstance(value, dict) else {}


def controller(obj: Obj) -> tuple[str, str]:
    """(kind, name) of the controller owner, or two empty texts."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner.get("kind") or "", owner.get("name") or ""
    return "", ""


def replaced(old: Obj | None, new: Obj | None) -> bool:
    return old is not None and new is not None and old["metadata"].get("uid") != new["metadata"].get("uid")


def generation_changed(old: Obj, new: Obj) -> bool:
    before, after = old["metadata"].get("generation"), new["metadata"].get("generation")
    return before != after or (after is None and old.get("spec") != new.get("spec"))


def deleting_now(old: Obj | None, new: Obj) -> bool:
    """True when the deletion is news: the object we knew was not being deleted yet."""
    if not new["metadata"].get("deletionTimestamp"):
        return False
    return old is None or replaced(old, new) or not old["metadata"].get("deletionTimestamp")
