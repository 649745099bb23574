"""`LedgerEntry`: one line of a pool's ledger as decisions see it; `osb.store.ledger` has its text form.

States, and who may hold the pod in each (spec/protocols.md 4):

=====  ===========================================================================================
new    the name is chosen, its POST may be in flight
free   clean, may be handed out
resv   promised to a slot, the claim patch may be in flight
held   the sandbox's record names it
rel    given back, being recycled; `policy` is pinned
dirty  nobody's, history unknown: recycled before anybody gets it
doom   will be deleted and can never become anything else
conf   two records claim it
=====  ===========================================================================================

A pod without an entry is unknown, never free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

NEW = "new"
FREE = "free"
RESV = "resv"
HELD = "held"
REL = "rel"
DIRTY = "dirty"
DOOM = "doom"
CONF = "conf"

STATES = (NEW, FREE, RESV, HELD, REL, DIRTY, DOOM, CONF)
TAKEN = frozenset({RESV, HELD, REL, CONF})  # a sandbox has it, will have it, or is giving it back
UNFINISHED = frozenset({NEW, RESV, REL, DIRTY, DOOM, CONF})  # what `todo` lists


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """`slot` is -1 and the box fields are empty while nobody has the pod; `seq` is the ledger's own."""

    state: str
    pod_uid: str = ""
    box_uid: str = ""
    box: str = ""
    slot: int = -1
    seq: int = 0
    op: str = ""
    policy: str = ""


NO_ENTRIES: Mapping[str, LedgerEntry] = MappingProxyType({})
"""The ledger of a pool without entries (not a default of a dataclass field: it has no hash)."""
