"""A small cluster in memory: objects with versions, writes that may land late or never, and what must not happen.

Every API write may succeed, lose its answer, or land later or never. The world raises `Violation` the
moment an invariant of spec/protocols.md 5 falls. Next: `ledger_worker`, the passes that write here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from osb.store.client import Store
from osb.store.ledger import Ledger

UID = "pool-uid"


class Violation(AssertionError):
    """An invariant of spec/protocols.md 5 does not hold."""


class Unclear(Exception):
    """No answer arrived."""


@dataclass
class Box:
    name: str
    uid: str
    version: int
    replicas: int = 1
    record: dict[int, tuple[str, str]] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    give_back: set[str] = field(default_factory=set)
    finalizer: bool = False
    deleting: bool = False

    def claims(self) -> set[tuple[str, str]]:
        return {pod for pod in self.record.values() if pod[0] not in self.released}

    def keeps(self, pod: str) -> bool:
        """The user holds this pod and did not give it back."""
        return not self.deleting and any(
            name == pod and slot < self.replicas and pod not in self.released | self.give_back
            for slot, (name, _) in self.record.items()
        )


@dataclass
class Pod:
    name: str
    uid: str
    version: int
    shown_to: str = ""  # UID of the last sandbox that saw it and after which it was not recycled


class World:
    """The API server's side: objects, versions, writes in flight, and what must never happen."""

    def __init__(self, store: Store, *, ledger: Ledger | None = None, broken: frozenset[str] = frozenset()) -> None:
        self.store = store
        self.ledger = ledger or store.ledger("ns", "warm")
        self.broken = broken
        self.boxes: dict[str, Box] = {}
        self.pods: dict[str, Pod] = {}
        self.flight: list[Callable[[], bool]] = []
        self.forged: set[str] = set()
        self.outcome = "ok"
        self._count = 0

    def next(self) -> int:
        self._count += 1
        return self._count

    # -- what users and nodes do -----------------------------------------------------------------------

    def user_creates(self, name: str, replicas: int = 1) -> None:
        if name not in self.boxes:
            self.boxes[name] = Box(name, f"{name}-{self.next()}", self.next(), replicas)

    def user_deletes(self, name: str, *, force: bool = False) -> None:
        if box := self.boxes.get(name):
            box.deleting, box.version = True, self.next()
            box.finalizer = box.finalizer and not force
            self._settle_deletion(box)

    def user_gives_back(self, name: str) -> None:
        if box := self.boxes.get(name):
            box.give_back |= {pod for pod, _ in box.record.values()}
            box.version = self.next()

    def user_scales(self, name: str, replicas: int) -> None:
        self.boxes[name].replicas, self.boxes[name].version = replicas, self.next()

    def user_forges(self, name: str, pod: str) -> None:
        """Writes a pod into a record by hand."""
        box = self.boxes[name]
        box.record[0] = (pod, self.pods[pod].uid)
        box.finalizer, box.version = True, self.next()
        self.forged.add(box.uid)

    def user_edits(self, name: str) -> None:
        if box := self.boxes.get(name):
            box.version = self.next()

    def pod_appears(self) -> str:
        name = f"p{self.next()}"
        self.pods[name] = Pod(name, f"u{self.next()}", self.next())
        return name

    def pod_dies(self, name: str) -> None:
        self.pods.pop(name, None)

    def _settle_deletion(self, box: Box) -> None:
        if box.deleting and not box.finalizer:
            self.boxes.pop(box.name, None)

    # -- writes ----------------------------------------------------------------------------------------

    def call(self, write: Callable[[], bool]) -> bool:
        """True: done; False: definitely refused. `outcome` says what the network does to the next call."""
        outcome, self.outcome = self.outcome, "ok"
        if outcome == "late":
            self.flight.append(write)
            raise Unclear
        done = write()
        if outcome == "lost":
            raise Unclear
        return done

    def land(self, index: int = 0) -> None:
        self.flight.pop(index)()
        self.check()

    def _current(self, name: str, version: int) -> Box | None:
        box = self.boxes.get(name)
        if box is None or (box.version != version and "patches without version" not in self.broken):
            return None
        return box

    def claim(self, name: str, version: int, pods: dict[int, tuple[str, str]]) -> bool:
        box = self._current(name, version)
        if box is None:
            return False
        for pod, uid in pods.values():
            live = self.pods.get(pod)
            if live is None or live.uid != uid:
                continue
            if live.shown_to not in ("", box.uid):
                raise Violation(f"L2: {pod} goes to {box.uid}, was {live.shown_to}'s and not recycled")
            live.shown_to = box.uid
        box.record |= pods
        box.finalizer, box.version = True, self.next()
        return True

    def acknowledge(self, name: str, version: int, pod: str) -> bool:
        box = self._current(name, version)
        if box is None:
            return False
        live = self.pods.get(pod)
        if live is not None and live.shown_to:
            raise Violation(f"L6: {pod} acknowledged before it was recycled")
        box.released.add(pod)
        box.version = self.next()
        if {p for p, _ in box.record.values()} <= box.released and box.deleting:
            box.finalizer = False
        self._settle_deletion(box)
        return True

    def strip(self, name: str, version: int) -> bool:
        box = self._current(name, version)
        if box is None:
            return False
        box.finalizer, box.version = False, self.next()
        self._settle_deletion(box)
        return True

    def touch(self, name: str) -> bool:
        if box := self.boxes.get(name):
            box.version = self.next()
        return name in self.boxes

    def _hits(self, pod: str, what: str) -> None:
        for box in self.boxes.values():
            if box.keeps(pod) and pod in self.pods and (pod, self.pods[pod].uid) in box.claims():
                raise Violation(f"L4: {what} hits {pod}, which {box.uid} holds")

    def scrub(self, pod: str, version: int) -> bool:
        live = self.pods.get(pod)
        if live is None or live.version != version:
            return False
        self._hits(pod, "recycling")
        live.shown_to = ""
        if "adoption without a write" not in self.broken:
            live.version = self.next()
        return True

    def delete(self, pod: str, uid: str, version: int) -> bool:
        live = self.pods.get(pod)
        if live is None:
            return True
        if live.uid != uid or (live.version != version and "delete without version" not in self.broken):
            return False
        self._hits(pod, "a delete")
        del self.pods[pod]
        return True

    def post(self, pod: str) -> bool:
        if pod not in self.pods:
            self.pods[pod] = Pod(pod, f"u{self.next()}", self.next())
        return True

    def check(self) -> None:
        """L1 and L3 now."""
        owner: dict[tuple[str, str], str] = {}
        for box in self.boxes.values():
            for claim in box.claims():
                if box.uid in self.forged:
                    continue
                if claim in owner:
                    raise Violation(f"L1: {claim} is in the records of {owner[claim]} and {box.uid}")
                owner[claim] = box.uid
        seen = self.ledger.state(entries=True)
        if not seen.meta.ready:
            return
        for (pod, uid), box_uid in owner.items():
            entry = seen.entries.get(pod)
            alive = pod in self.pods and self.pods[pod].uid == uid
            if alive and entry is not None and entry.state == "free":
                raise Violation(f"L3: {pod} is free, and {box_uid} has it")


def wants(world: World, box: Box) -> list[int]:
    """Slots to fill: from the sandbox's content and from pods that are dead, and from nothing else."""
    if box.deleting:
        return []

    def settled(slot: int) -> bool:
        if slot not in box.record:
            return False
        pod, uid = box.record[slot]
        return pod in box.released or (pod in world.pods and world.pods[pod].uid == uid)

    return [slot for slot in range(box.replicas) if not settled(slot)]
