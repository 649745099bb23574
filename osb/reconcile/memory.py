"""What a pool's passes remember between them (back-offs, failures in a row), in Redis; defaults when lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from osb.api.pool import PoolSpec
from osb.facts.poolview import Memory
from osb.reconcile.world import Pass

_MEMBERS = frozenset(field.name for field in fields(Memory))


def recall(p: Pass, pool: PoolSpec) -> Memory:
    """The pool's memory; members of another release are left out."""
    known = {name: value for name, value in p.store.memories.recall(pool.uid).items() if name in _MEMBERS}
    return Memory(**known)


def remember(p: Pass, uid: str, values: Mapping[str, Any]) -> None:
    if values:
        p.store.memories.keep(uid, values)
