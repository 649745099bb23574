"""Create and delete pods so that a lost answer, a repeat or a stranger's pod does no harm.

Names are chosen by us before the POST, so the same POST can be repeated (spec/pitfalls.md 18); deletes carry the UID
(and the version where the decision depended on content). Next: the ledger move and the mirror, by `execute`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osb.apply.hand import Hand
from osb.errors import AlreadyExists, Conflict, NotFound

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Created:
    """The outcome of one create.

    `pod`: the object as stored, ours by owner UID; None when the name belongs to somebody else.
    `read`: an earlier POST of ours had made it, and this is how it looks by now.
    """

    name: str
    pod: Obj | None
    read: bool = False


def owner_uid(pod: Mapping[str, Any]) -> str:
    """UID of the controller owner, "" when there is none."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid") or "")
    return ""


def create_pod(hand: Hand, namespace: str, name: str, body: Mapping[str, Any], *, owner: str) -> Created:
    """POST, or find that an earlier POST of ours has landed. Raises Refused, Throttled, Unavailable, ..."""
    hand.step("create")
    try:
        return Created(name, hand.kube.create("pod", namespace, body))
    except AlreadyExists:
        pod = hand.kube.get("pod", namespace, name)
        return Created(name, pod if owner_uid(pod) == owner else None, read=True)


def delete_pod(hand: Hand, namespace: str, name: str, *, uid: str, version: str = "", grace: int | None = None) -> bool:
    """DELETE with preconditions. True: it is gone for good. False: it is terminating, or not the pod meant."""
    hand.step("delete")
    try:
        answer = hand.kube.delete("pod", namespace, name, uid=uid or None, version=version or None, grace=grace)
    except NotFound:
        return True
    except Conflict:
        return _another(hand, namespace, name, uid)
    meta = answer.get("metadata") or {}
    return (
        answer.get("kind") == "Status"
        or not meta.get("deletionTimestamp")
        or meta.get("deletionGracePeriodSeconds") == 0
    )


def _another(hand: Hand, namespace: str, name: str, uid: str) -> bool:
    """What a failed precondition means: True: the pod is gone. False: it is terminating.

    It is gone when the name is free or belongs to another UID. Raises Conflict when the pod is there
    and has changed.
    """
    pod = live_pod(hand, namespace, name, uid=uid)
    if pod is None:
        return True
    if pod["metadata"].get("deletionTimestamp"):
        return False
    raise Conflict(f"pod {namespace}/{name} changed since the decision to delete it")


def live_pod(hand: Hand, namespace: str, name: str, *, uid: str = "") -> Obj | None:
    """The live pod of that UID, or None (gone, or another one under the name)."""
    try:
        pod = hand.kube.get("pod", namespace, name)
    except NotFound:
        return None
    return pod if not uid or pod["metadata"]["uid"] == uid else None
