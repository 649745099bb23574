"""`PoolWork`: what the writers of one pool's plan share: the ledger as this pass knows it, and what was done.

Next: `osb.apply.poolmoves`, `poolidle`, `poolcreates` and `poolreturns` each carry out one kind of action on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from osb.apply.hand import Hand
from osb.apply.release import Recycled
from osb.errors import ApiError, Conflict
from osb.facts.ledger import DIRTY, REL, LedgerEntry
from osb.facts.poolview import PoolView
from osb.store.ledger_types import Move, Proof

Obj = dict[str, Any]
RETRY_SECONDS = 1.0
RECYCLING = (REL, DIRTY)
RELEASED = "released"  # how `Applied.counts` calls pods that are recycled and nobody's any more
ADOPT = "adopt"  # pinned by a rebuild on a pod that only needs to be touched (osb.reconcile.rebuild)


@dataclass(slots=True)
class Applied:
    """What was done, by word; `names`: the pods concerned; `again`: seconds until a repeat is needed."""

    counts: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    failed: list[ApiError] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    again: float | None = None

    @property
    def writes(self) -> int:
        return sum(self.counts.values())

    def count(self, word: str, pods: Sequence[str]) -> None:
        if pods:
            self.counts[word] = self.counts.get(word, 0) + len(pods)
            self.names += pods

    def retry(self, seconds: float = RETRY_SECONDS) -> None:
        self.again = seconds if self.again is None else min(self.again, seconds)


@dataclass(slots=True)
class PoolWork:
    """One plan being carried out.

    `raws`: raw sandboxes by UID, as stored now.
    `recycled`: pods whose recycling is complete.
    `entries`: the ledger as moved by this pass.
    `errors`: pod -> why its recycling failed.
    """

    hand: Hand
    proof: Proof
    view: PoolView
    raws: dict[str, Obj]
    pool: Obj
    done: Applied = field(default_factory=Applied)
    recycled: list[Recycled] = field(default_factory=list)
    entries: dict[str, LedgerEntry] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.entries = dict(self.view.entries)

    def move(self, moves: Sequence[Move]) -> list[bool]:
        if not moves:
            return []
        self.hand.step("ledger-move")
        ledger = self.hand.store.ledger(self.hand.key.namespace, self.hand.key.name)
        results = ledger.move(self.proof, moves)
        for move, ok in zip(moves, results, strict=True):
            if ok:
                self._noted(move)
            else:
                self.done.retry(0.1)
        return results

    def _noted(self, move: Move) -> None:
        old = self.entries.pop(move.pod, None)
        if move.target != "-":
            base = old or LedgerEntry(state=move.target, pod_uid=move.pod_uid)
            self.entries[move.pod] = LedgerEntry(
                state=move.target, pod_uid=move.pod_uid, box_uid=base.box_uid, box=base.box, slot=base.slot,
                seq=base.seq, policy=move.policy or base.policy,
            )  # fmt: skip

    def box_uid(self, pod: str) -> str:
        entry = self.entries.get(pod)
        return entry.box_uid if entry is not None else ""

    def stored(self, uid: str, raw: Obj, *, base: str = "") -> None:
        """`base`: the version that was patched, when it was read afresh: then somebody else's change may be in it."""
        known = self.raws.get(uid)
        decided = not base or (known is not None and known["metadata"]["resourceVersion"] == base)
        self.raws[uid] = raw
        self.hand.forward.put("batchsandbox", [raw], own=self.hand.key, versioned=decided)

    def tell(self, type_: Any, reason: str, message: str) -> None:
        self.hand.events.emit(self.pool, type_, reason, message)

    def failed(self, error: ApiError) -> None:
        self.done.failed.append(error)
        self.done.retry(error.retry_after or (0.1 if isinstance(error, Conflict) else RETRY_SECONDS))
