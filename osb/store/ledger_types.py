"""What goes into the ledger's scripts and what comes out of them: proofs, grants, moves, and the text of an entry.

Next: `osb.store.ledger` carries these to the scripts. `LedgerEntry` itself lives in `osb.facts.ledger`,
because decisions read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from osb.facts.ledger import (
    CONF,
    DIRTY,
    DOOM,
    FREE,
    HELD,
    NEW,
    REL,
    RESV,
    STATES,
    LedgerEntry,
)

GONE: Final = "-"  # as a target: no entry afterwards; as a source: no entry before

_TARGETS: Final[Mapping[str, str]] = {
    "settle": HELD,  # the record names the pod
    "release": REL,  # given back; pins the policy
    "repin": REL,  # being given back, but by a stricter policy
    "doom": DOOM,
    "lost": GONE,
    "gone": GONE,
    "born": FREE,  # a pod whose name was intended was seen with our owner UID
    "conf": DIRTY,  # no record claims it any more
    "orphan": DIRTY,  # a pod of ours that has no entry
}
_CHOICES: Final = {"cancel": (FREE, DIRTY), "recycled": (FREE,)}
MOVES: Final = frozenset(_TARGETS) | frozenset(_CHOICES)


@dataclass(frozen=True, slots=True)
class Proof:
    """What every script of a pass shows: it runs `member` (`ns/pool`) under `token`, for the Pool of `pool_uid`.

    `epoch` may name the ledger that the pass has read; another one then counts as not ready.
    """

    member: str
    token: str
    pool_uid: str
    epoch: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """One pod for one slot of one sandbox."""

    pod: str
    pod_uid: str
    box_uid: str
    box: str
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One change of state. `from_state` and the UIDs are what the pass believes; else the entry stays as it is.

    `to` must be given for `cancel`: `free` only after a definite refusal of the reservation's only request,
    else `dirty`. `policy` is pinned by `release` and `repin`.
    """

    what: str
    pod: str
    pod_uid: str
    from_state: str
    box_uid: str = ""
    to: str = ""
    policy: str = ""

    @property
    def target(self) -> str:
        """The state it ends in. Raises ValueError when `what` is unknown or leaves `to` open."""
        if (fixed := _TARGETS.get(self.what)) is not None:
            return fixed
        choices = _CHOICES.get(self.what, ())
        if self.to in choices:
            return self.to
        if len(choices) == 1 and not self.to:
            return choices[0]
        raise ValueError(f"ledger move {self.what!r} cannot end in {self.to!r}; known: {sorted(MOVES)}")


@dataclass(frozen=True, slots=True)
class Taken:
    """Answer to `allocate`. When not `ok` nothing was changed: `pods` were not free for it, `slots` have a pod."""

    ok: bool
    pods: tuple[str, ...] = ()
    slots: tuple[tuple[str, int], ...] = ()  # (sandbox UID, slot)
    seqs: Mapping[str, int] = field(default_factory=dict)  # pod -> sequence number


@dataclass(frozen=True, slots=True)
class LedgerMeta:
    """The ledger's head. `boot_now` is the Redis process that answered; `state` is ready, building, lost or ""."""

    uid: str = ""
    epoch: str = ""
    boot: str = ""
    state: str = ""
    seq: int = 0
    boot_now: str = ""

    @property
    def ready(self) -> bool:
        """May it be served from, if its UID is the Pool's?"""
        return self.state == "ready" and self.boot == self.boot_now


@dataclass(frozen=True, slots=True)
class Former:
    """What a rebuild finds: the head and the entries of the last ready ledger, all empty after a loss.

    Only the boot differs (`uid` and `epoch` are right) after a restart of Redis with its data; whether that
    may be trusted is the rebuild's decision (spec/protocols.md 5, Unknown history).
    """

    uid: str
    epoch: str
    boot: str
    seq: int
    entries: Mapping[str, LedgerEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LedgerState:
    """One consistent look: head, entries (only if asked for), unfinished pods with ms since when, counts."""

    meta: LedgerMeta
    counts: Mapping[str, int]
    todo: Mapping[str, int]
    entries: Mapping[str, LedgerEntry] = field(default_factory=dict)


def text(entry: LedgerEntry) -> str:
    """The stored form of an entry: state|podUID|sandboxUID|sandbox|slot|seq|op|policy.

    Raises ValueError for an unknown state, or a member that contains `|`.
    """
    if entry.state not in STATES:
        raise ValueError(f"{entry.state!r} is not a ledger state")
    parts = (entry.pod_uid, entry.box_uid, entry.box, str(entry.slot), str(entry.seq), entry.op, entry.policy)
    if any("|" in part for part in parts):
        raise ValueError(f"a ledger entry cannot contain '|': {entry}")
    return "|".join((entry.state, *parts))


def parse(raw: bytes) -> LedgerEntry:
    """The entry of a text that a script wrote."""
    state, pod_uid, box_uid, box, slot, seq, op, policy = raw.decode().split("|")
    return LedgerEntry(
        state=state,
        pod_uid=pod_uid,
        box_uid=box_uid,
        box=box,
        slot=int(slot),
        seq=int(seq),
        op=op,
        policy=policy,
    )


__all__ = [
    "CONF",
    "DIRTY",
    "DOOM",
    "FREE",
    "GONE",
    "HELD",
    "MOVES",
    "NEW",
    "REL",
    "RESV",
    "STATES",
    "Former",
    "Grant",
    "LedgerEntry",
    "LedgerMeta",
    "LedgerState",
    "Move",
    "Proof",
    "Taken",
    "parse",
    "text",
]
