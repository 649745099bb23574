"""The allocation record: what the `alloc-*` annotations of a sandbox say, and derived names.

The plain form `{"pods":[...]}` and the extended one are read; the extended one is written (spec/additions.md
3). Annotations can be edited by any user of the namespace: a name in a record counts only as far as ledger
and owner agree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from osb.api import names
from osb.errors import RecordUnreadable

MAX_RECORD_BYTES = 64 * 1024
POD_PREFIX = 57  # of the pool's name, at most, in the names of its pods
_HEAD_BYTES = 1024  # everything that does not grow with the slots
_SLOT_BYTES = 6 + 3 + 11 + 5  # the rest of a pod's name, its quotes, the UID, the slot among the open or failed ones
UID_PREFIX = 8  # characters of a pod UID that a record keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One name per slot; the index is the slot and the task index. Empty members mean: not known, or none."""

    pods: tuple[str, ...] = ()
    pool_ref: str = ""
    generation: int = 0
    pool_uid: str = ""
    uids: tuple[str, ...] = ()  # first 8 characters of each pod's UID
    seq: int = 0  # +1 at every write; a lost answer is recognised by it
    open: tuple[int, ...] = ()  # slots whose pod is lost and awaits a substitute
    failed: tuple[int, ...] = ()  # slots given up
    losses: int = 0
    detaching: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)  # members of others, kept

    def uid_of(self, slot: int) -> str:
        """The recorded UID prefix of a slot's pod, "" when the record does not say."""
        return self.uids[slot] if slot < len(self.uids) else ""


@dataclass(frozen=True, slots=True)
class Release:
    """Pods the sandbox gives back, and those of them to recycle by deletion whatever the pool's type."""

    pods: tuple[str, ...] = ()
    force: tuple[str, ...] = ()


_MEMBERS = frozenset(
    ("pods", "poolRef", "generation", "poolUID", "uids", "seq", "open", "failed", "losses", "detaching")
)


def parse(text: str | None) -> Record | None:
    """The record of an `alloc-status` annotation; None when absent, empty or `null`.

    Raises RecordUnreadable for anything that is not the documented shape, in any member: a record is believed
    whole or not at all.
    """
    where = names.ALLOC_STATUS
    data = _object(text, where)
    if data is None:
        return None
    return Record(
        pods=_texts(data, "pods", where),
        pool_ref=_text(data, "poolRef", where),
        generation=_number(data, "generation", where),
        pool_uid=_text(data, "poolUID", where),
        uids=_texts(data, "uids", where),
        seq=_number(data, "seq", where),
        open=_slots(data, "open", where),
        failed=_slots(data, "failed", where),
        losses=_number(data, "losses", where),
        detaching=_flag(data, "detaching", where),
        extra={key: value for key, value in data.items() if key not in _MEMBERS},
    )


def format(record: Record) -> str:
    """Compact JSON in the documented member order."""
    data: dict[str, Any] = {"pods": record.pods}
    if record.pool_ref:
        data["poolRef"] = record.pool_ref
    if record.generation:
        data["generation"] = record.generation
    if record.pool_uid:
        data["poolUID"] = record.pool_uid
    data["uids"] = record.uids
    data["seq"] = record.seq
    for member in ("open", "failed", "losses", "detaching"):
        if value := getattr(record, member):
            data[member] = value
    return _compact({**data, **record.extra})


def capacity(pool: str) -> int:
    """Slots of a sandbox whose record stays within 64 KiB with pods named after `pool`, whatever happens to them.

    Whoever grants looks at it first: writing what is there already must never be refused, for it may be a release.
    """
    return (MAX_RECORD_BYTES - _HEAD_BYTES) // (min(len(pool), POD_PREFIX) + _SLOT_BYTES)


def parse_release(text: str | None) -> Release:
    """An `alloc-release` annotation, duplicates removed. Raises RecordUnreadable."""
    data = _object(text, names.ALLOC_RELEASE) or {}
    return Release(_once(_texts(data, "pods", names.ALLOC_RELEASE)), _once(_texts(data, "force", names.ALLOC_RELEASE)))


def format_release(release: Release) -> str:
    """Compact JSON with sorted names; `force` only when there is any."""
    data: dict[str, Any] = {"pods": sorted(set(release.pods))}
    if release.force:
        data["force"] = sorted(set(release.force))
    return _compact(data)


def parse_names(text: str | None, *, where: str = names.ALLOC_RELEASED) -> tuple[str, ...]:
    """The `pods` of an annotation, in order, duplicates removed. Raises RecordUnreadable."""
    return _once(_texts(_object(text, where) or {}, "pods", where))


def format_names(pods: Iterable[str]) -> str:
    """`{"pods":[...]}`, in the given order, without repeats."""
    return _compact({"pods": _once(tuple(pods))})


def parse_endpoints(text: str | None) -> tuple[str, ...] | None:
    """The published addresses by slot, None when absent or not a list of texts."""
    if not text:
        return None
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
        return None
    return tuple(data)


def format_endpoints(addresses: Iterable[str]) -> str:
    """A compact JSON array, one address per slot, "" for a slot without one."""
    return _compact(list(addresses))


def derived(name: str, limit: int, suffix: str = "") -> str:
    """`name + suffix` within `limit` characters: cut and marked with a hash of the whole name when too long.

    Deterministic, so that look-ups find it again (spec/additions.md 1.3). The full name belongs into the
    annotation `full-name` of the object that carries a derived one.
    """
    room = limit - len(suffix)
    if len(name) <= room:
        return name + suffix
    head = re.sub(r"[^A-Za-z0-9]+$", "", name[: room - 11])
    return f"{head}-{hashlib.sha256(name.encode()).hexdigest()[:10]}{suffix}"


# -- reading one member ------------------------------------------------------------------------------------


def _object(text: str | None, where: str) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RecordUnreadable(_path(where), f"is not JSON ({error}); restore or delete it") from error
    if data is None or isinstance(data, dict):
        return data
    raise RecordUnreadable(_path(where), 'must be a JSON object such as {"pods":["p1"]}')


def _texts(data: dict[str, Any], member: str, where: str) -> tuple[str, ...]:
    value = data.get(member)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise RecordUnreadable(_path(where), f"{member} must be a list of texts")
    return tuple(value)


def _slots(data: dict[str, Any], member: str, where: str) -> tuple[int, ...]:
    value = data.get(member)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        raise RecordUnreadable(_path(where), f"{member} must be a list of slot numbers")
    return tuple(sorted(set(value)))


def _text(data: dict[str, Any], member: str, where: str) -> str:
    value = data.get(member)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RecordUnreadable(_path(where), f"{member} must be a text")
    return value


def _number(data: dict[str, Any], member: str, where: str) -> int:
    value = data.get(member)
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise RecordUnreadable(_path(where), f"{member} must be a whole number")
    return value


def _flag(data: dict[str, Any], member: str, where: str) -> bool:
    value = data.get(member)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise RecordUnreadable(_path(where), f"{member} must be true or false")
    return value


def _path(annotation: str) -> str:
    return f"metadata.annotations[{annotation}]"


def _once(items: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


def _compact(data: object) -> str:
    return orjson.dumps(data).decode()
