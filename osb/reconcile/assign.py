"""Choose a pool for a sandbox with poolRef `*` and write it (spec/pool.md 12). Next: the pool's own line."""

from __future__ import annotations

from dataclasses import dataclass

from osb.facts.boxview import Waiting
from osb.reconcile.gather import Obj
from osb.reconcile.world import Pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """`assigned`: poolRef was written. Else `waiting` says why no pool fits, and `again` when to try once more."""

    assigned: bool = False
    summary: str = ""
    waiting: Waiting | None = None
    again: float = 30.0


def choose(p: Pass, raw: Obj) -> Chosen:
    raise NotImplementedError
