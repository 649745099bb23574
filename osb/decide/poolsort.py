"""Every pod of a pool in exactly one place, and the ledger moves that facts call for.

In: `PoolView`. Out: `Sorted`. One walk over pods and ledger entries; `osb.decide.pool` builds the plan from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from osb.api.times import to_ms
from osb.decide.evict import must_leave
from osb.decide.plan import Move
from osb.facts import ledger
from osb.facts.ledger import LedgerEntry
from osb.facts.pod import PodFact
from osb.facts.poolview import PoolView

NONE = "-"  # a move from "no entry"


@dataclass(slots=True)
class Sorted:
    """Where each pod belongs.

    `held`: live pods that sandboxes have, get or give back.
    `idle`: free, live, of known history.
    `evicting`: names of idle pods with a cause to leave -> that cause.
    `ended`: free and terminal.
    `tainted`: free by the ledger but labelled suspect.
    `recycling`: entries in state `rel` with their pods (None: the pod is gone).
    `dirty`: entries in state `dirty` with their pods: unknown history.
    `doomed`: to be deleted, still there.
    `unseen`: names of creates that are not observed yet.
    `late`: names of creates that were not observed in time.
    `moves`: what facts make of entries.
    `terminating`: number of pods with a deletion timestamp.
    `suspect`: number of pods of unknown history.
    `stranded`: number of ended pods that sandboxes had.
    """

    held: list[PodFact] = field(default_factory=list)
    idle: list[PodFact] = field(default_factory=list)
    evicting: dict[str, str] = field(default_factory=dict)
    ended: list[PodFact] = field(default_factory=list)
    tainted: list[PodFact] = field(default_factory=list)
    recycling: list[tuple[str, LedgerEntry, PodFact | None]] = field(default_factory=list)
    dirty: list[tuple[LedgerEntry, PodFact]] = field(default_factory=list)
    doomed: list[PodFact] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    terminating: int = 0
    suspect: int = 0
    stranded: int = 0


def sort(view: PoolView) -> Sorted:
    """Sort all pods and entries. Absence proves nothing while the mirror is not fresh."""
    out = Sorted()
    for name, pod in view.pods.items():
        out.terminating += bool(pod.deleting)
        entry = view.entries.get(name)
        if entry is None:
            _without_entry(out, pod)
        elif entry.pod_uid and entry.pod_uid != pod.uid:
            out.moves.append(move("gone", name, entry, why="another pod has its name"))
            out.suspect += not pod.deleting
        else:
            _PLACES[entry.state](out, pod, entry)
    if view.mirror_fresh:
        now_ms = to_ms(view.now)
        for name, entry in view.entries.items():
            if name not in view.pods:
                _absent(out, name, entry, view=view, now_ms=now_ms)
    else:
        out.unseen = [n for n, e in view.entries.items() if e.state == ledger.NEW and n not in view.pods]
    leaving = must_leave(out.idle, view.nodes, evicts=view.pool.evicts)
    out.evicting = leaving
    return out


def move(what: str, name: str, entry: LedgerEntry, *, why: str, live: bool = False, policy: str = "") -> Move:
    """A ledger move away from exactly this entry."""
    return Move(what, name, entry.pod_uid, entry.state, box_uid=entry.box_uid, policy=policy, live=live, why=why)


def _without_entry(out: Sorted, pod: PodFact) -> None:
    """Made late or by somebody else: never handed out before it was recycled."""
    if pod.deleting:
        return
    out.suspect += 1
    out.moves.append(Move("orphan", pod.name, pod.uid, NONE, why="a pod without a ledger entry"))


def _new(out: Sorted, pod: PodFact, entry: LedgerEntry) -> None:
    out.moves.append(Move("born", pod.name, pod.uid, entry.state, why="the created pod was seen"))
    _free(out, pod, entry)


def _free(out: Sorted, pod: PodFact, entry: LedgerEntry) -> None:
    if pod.deleting:
        return
    if pod.terminal:
        out.ended.append(pod)
    elif pod.suspect:
        out.tainted.append(pod)
    else:
        out.idle.append(pod)


def _reserved(out: Sorted, pod: PodFact, entry: LedgerEntry) -> None:
    if pod.live:
        out.held.append(pod)
    elif not pod.deleting:
        out.stranded += 1


def _held(out: Sorted, pod: PodFact, entry: LedgerEntry) -> None:
    if pod.live:
        out.held.append(pod)
        return
    out.stranded += not pod.deleting
    why = f"the pod ended {pod.phase}" if pod.terminal else "the pod is being deleted by somebody else"
    out.moves.append(move("lost", pod.name, entry, live=True, why=why))


def _rel(out: Sorted, pod: PodFact, entry: LedgerEntry) -> None:
    if pod.live:
        out.held.append(pod)
    elif not pod.deleting:
        out.stranded += 1
    out.recycling.append((pod.name, entry, pod))


def _dirty(out: Sorted, pod: PodFact, entry: LedgerEntry) -> None:
    out.suspect += not pod.deleting
    out.dirty.append((entry, pod))


def _doom(out: Sorted, pod: PodFact, entry: LedgerEntry) -> None:
    out.doomed.append(pod)


_PLACES = {
    ledger.NEW: _new,
    ledger.FREE: _free,
    ledger.RESV: _reserved,
    ledger.HELD: _held,
    ledger.REL: _rel,
    ledger.DIRTY: _dirty,
    ledger.DOOM: _doom,
    ledger.CONF: _reserved,
}


def _absent(out: Sorted, name: str, entry: LedgerEntry, *, view: PoolView, now_ms: int) -> None:
    """An entry whose pod is not there. What a sandbox has is given up only after a live read says so."""
    if entry.state == ledger.NEW:
        age = (now_ms - view.since.get(name, now_ms)) / 1000
        if age >= view.expectation_timeout:
            text = f"its create was not seen for {age:.0f} s"
            out.moves.append(move("gone", name, entry, live=True, why=text))
            out.late.append(name)
        else:
            out.unseen.append(name)
    elif entry.state == ledger.REL:
        out.recycling.append((name, entry, None))
    elif entry.state == ledger.HELD:
        out.moves.append(move("lost", name, entry, live=True, why="the pod is gone"))
    elif entry.state == ledger.CONF:
        out.moves.append(move("gone", name, entry, live=True, why="the pod is gone"))
    elif entry.state != ledger.RESV:  # a reservation is settled, never judged from here
        out.moves.append(move("gone", name, entry, why="the pod is gone"))


def taken_slots(entries: Mapping[str, LedgerEntry]) -> dict[str, set[int]]:
    """Sandbox UID -> slots that the ledger has promised, gave, or is taking back."""
    found: dict[str, set[int]] = {}
    for entry in entries.values():
        if entry.box_uid and entry.state in ledger.TAKEN:
            found.setdefault(entry.box_uid, set()).add(entry.slot)
    return found
