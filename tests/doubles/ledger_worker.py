"""Passes that follow spec/protocols.md 5 step by step, over a real ledger and the cluster of `ledger_world`.

Every pass is a generator that yields before each step, so that a test may stop, kill or freeze a worker between
any two steps. `World.broken` names rules that the passes then break, to show that the checks notice.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator
from copy import deepcopy

from osb.api.key import Key
from osb.errors import Fenced, LedgerNotReady
from osb.facts.adds import Add
from osb.facts.ledger import LedgerEntry
from osb.store.ledger_types import Grant, Move, Proof
from tests.doubles.ledger_world import UID, Box, Pod, Unclear, World, wants

POOL = Key("pool", "ns", "warm")
Steps = Iterator[str]


class Worker:
    """One pass of one worker. `go` runs it to its end or to the next yield of a label."""

    def __init__(self, world: World, *, doom: bool = False, create: int = 0) -> None:
        self.world, self.ledger = world, world.ledger
        self.proof = Proof(POOL.member, "", UID)
        self.doom, self.create = doom, create
        self.steps: Steps = self._pass()
        self.done = False

    def step(self) -> str:
        """One step; the label of the next one, "" at the end."""
        try:
            return next(self.steps)
        except (StopIteration, Fenced, LedgerNotReady):
            self.done = True
            return ""
        finally:
            self.world.check()

    def go(self, until: str = "") -> str:
        """Step until the next step is called `until`, or to the end."""
        while label := self.step():
            if until and label == until:
                return label
        return ""

    def _pass(self) -> Steps:
        yield "take"
        self.world.store.queue.forget(POOL)
        self.world.store.queue.add([Add(key=POOL)])
        self.proof = Proof(POOL.member, uuid.uuid4().hex, UID)
        self.world.store.queue.begin(POOL, self.proof.token)
        yield "look"
        meta = self.ledger.meta()
        if not meta.ready or meta.uid != UID:
            yield from self._rebuild()
        handlers = {"resv": self._settle, "rel": self._return, "dirty": self._clean, "doom": self._bury}
        handlers |= {"new": self._bear, "held": self._give_up, "free": self._count_out}
        for pod, entry in sorted(self.ledger.entries().items()):
            if entry.state in handlers:
                yield from handlers[entry.state](pod, entry)
        yield from self._orphans()
        yield from self._serve()
        yield from self._finalizers()
        yield from self._resize()

    def _move(self, what: str, pod: str, entry: LedgerEntry, *, to: str = "", uid: str = "") -> bool:
        move = Move(
            what=what,
            pod=pod,
            pod_uid=uid or entry.pod_uid,
            from_state=entry.state,
            box_uid=entry.box_uid,
            to=to,
            policy="Restart" if what == "release" else "",
        )
        return self.ledger.move(self.proof, [move])[0]

    def _proved(self, pod: str, entry: LedgerEntry, label: str) -> bool:
        if label in self.world.broken:
            return True
        return self.ledger.prove(self.proof, pod, pod_uid=entry.pod_uid, state=entry.state, box_uid=entry.box_uid)

    def _alive(self, pod: str, uid: str) -> bool:
        """A pod of another UID under the name is not this pod."""
        return pod in self.world.pods and self.world.pods[pod].uid == uid

    def _live(self, entry: LedgerEntry) -> Box | None:
        box = self.world.boxes.get(entry.box)
        return deepcopy(box) if box is not None and box.uid == entry.box_uid else None

    # -- serving ---------------------------------------------------------------------------------------

    def _serve(self) -> Steps:
        yield "view"
        view = [deepcopy(box) for _, box in sorted(self.world.boxes.items())]
        yield "stock"
        entries = self.ledger.entries()
        free = [pod for pod, e in sorted(entries.items()) if e.state == "free"]
        stock = [pod for pod in free if self._alive(pod, entries[pod].pod_uid)]
        for box in view:
            slots = wants(self.world, box)
            pods, stock = stock[: len(slots)], stock[len(slots) :]
            if not pods:
                continue
            grants = [
                Grant(pod, entries[pod].pod_uid, box.uid, box.name, slot)
                for pod, slot in zip(pods, slots, strict=False)
            ]
            yield "allocate"
            if self.ledger.allocate(self.proof, uuid.uuid4().hex, grants).ok:
                held = self.ledger.holders(pods)
                yield from self._send(box.name, box.version, held, first=True)

    def _send(self, name: str, version: int, held: dict[str, LedgerEntry], *, first: bool) -> Steps:
        pods = {entry.slot: (pod, entry.pod_uid) for pod, entry in held.items()}
        yield "claim"
        try:
            done = self.world.call(lambda: self.world.claim(name, version, pods))
        except Unclear:
            if "timeout frees the pod" in self.world.broken:
                for pod, entry in held.items():
                    self._move("cancel", pod, entry, to="free")
            return
        yield "answer"
        for pod, entry in held.items():
            box = self._live(entry)
            if done or (box is not None and box.record.get(entry.slot) == (pod, entry.pod_uid)):
                yield "settle"
                self._move("settle", pod, entry)
            else:
                yield "cancel"
                clean = first or "a second refusal is clean" in self.world.broken
                self._move("cancel", pod, entry, to="free" if clean else "dirty")

    def _settle(self, pod: str, entry: LedgerEntry) -> Steps:
        if not self._alive(pod, entry.pod_uid):
            self._move("gone", pod, entry)
            return
        yield "read"
        box = self._live(entry)
        if box is not None and (pod, entry.pod_uid) in box.claims():
            yield "settle"
            self._move("settle", pod, entry)
        elif "not in the record frees the pod" in self.world.broken:
            self._move("cancel", pod, entry, to="free")
        elif box is not None and entry.slot in wants(self.world, box):
            yield "prove"
            if self._proved(pod, entry, "resend without prove"):
                yield from self._send(entry.box, box.version, {pod: entry}, first=False)
        else:
            yield "cancel"
            clean = "settled by another worker as clean" in self.world.broken
            self._move("cancel", pod, entry, to="free" if clean else "dirty")

    # -- giving back -----------------------------------------------------------------------------------

    def _give_up(self, pod: str, entry: LedgerEntry) -> Steps:
        yield "read"
        box = self._live(entry)
        if not self._alive(pod, entry.pod_uid):
            self._move("lost", pod, entry)
        elif box is None or not box.keeps(pod) or box.record.get(entry.slot) != (pod, entry.pod_uid):
            yield "release"
            self._move("release", pod, entry)
            entry = self.ledger.holders([pod])[pod]
            yield from self._return(pod, entry)

    def _return(self, pod: str, entry: LedgerEntry) -> Steps:
        early = "record before recycle" in self.world.broken
        if not early:
            recycled = yield from self._recycle(pod, entry)
            if not recycled:
                return
        yield "read"
        box = self._live(entry)
        yield "prove"
        if not self._proved(pod, entry, "release without prove"):
            return
        if box is None or (pod, entry.pod_uid) not in box.claims():
            yield "free"
            self._move("recycled", pod, entry)
            return
        if "ledger before record" in self.world.broken:
            self._move("recycled", pod, entry)
        yield "acknowledge"
        try:
            if self.world.call(lambda: self.world.acknowledge(box.name, box.version, pod)):
                yield "free"
                self._move("recycled", pod, entry)
        except Unclear:
            return

    def _recycle(self, pod: str, entry: LedgerEntry) -> Generator[str, None, bool]:
        if not self._alive(pod, entry.pod_uid):
            self._move("gone", pod, entry)
            return False
        version = self.world.pods[pod].version
        yield "prove"
        if not self._proved(pod, entry, "recycle without prove"):
            return False
        yield "scrub"
        try:
            return self.world.call(lambda: self.world.scrub(pod, version))
        except Unclear:
            return False

    def _clean(self, pod: str, entry: LedgerEntry) -> Steps:
        recycled = yield from self._recycle(pod, entry)
        if recycled:
            yield "free"
            self._move("recycled", pod, entry)

    def _count_out(self, pod: str, entry: LedgerEntry) -> Steps:
        yield "read"
        if not self._alive(pod, entry.pod_uid):
            self._move("gone", pod, entry)

    def _finalizers(self) -> Steps:
        for name in sorted(self.world.boxes):
            yield "read"
            box = deepcopy(self.world.boxes.get(name))
            if box is None or not (box.deleting and box.finalizer):
                continue
            held = self.ledger.holders([pod for pod, _ in box.record.values()])
            if any(entry.box_uid == box.uid for entry in held.values()):
                continue
            self.ledger.prove(self.proof)
            yield "strip"
            version = box.version
            try:
                self.world.call(lambda name=name, version=version: self.world.strip(name, version))
            except Unclear:
                continue

    # -- the number of pods ----------------------------------------------------------------------------

    def _orphans(self) -> Steps:
        for pod, live in sorted(self.world.pods.items()):
            if pod not in self.ledger.holders([pod]):
                yield "orphan"
                to = "dirty" if "orphan freed without recycling" not in self.world.broken else "free"
                orphan = LedgerEntry(state="-" if to == "dirty" else "new")
                if to == "free":
                    self.ledger.intend(self.proof, 99, [pod])
                self._move("orphan" if to == "dirty" else "born", pod, orphan, uid=live.uid)

    def _resize(self) -> Steps:
        if self.create:
            names = [f"n{self.world.next()}" for _ in range(self.create)]
            yield "intend"
            if self.ledger.intend(self.proof, 6, names):
                for pod in names:
                    yield from self._bear(pod, LedgerEntry(state="new"))
        if self.doom:
            for pod, entry in sorted(self.ledger.entries().items()):
                if entry.state == "free" and self._alive(pod, entry.pod_uid):
                    yield from self._remove(pod, entry, self.world.pods[pod].version)
                    return

    def _remove(self, pod: str, entry: LedgerEntry, version: int) -> Steps:
        if "delete without doom" not in self.world.broken:
            yield "doom"
            if not self._move("doom", pod, entry):
                return
        yield "delete"
        try:
            if self.world.call(lambda: self.world.delete(pod, entry.pod_uid, version)):
                yield "gone"
                self._move("gone", pod, LedgerEntry(state="doom", pod_uid=entry.pod_uid))
        except Unclear:
            return

    def _bury(self, pod: str, entry: LedgerEntry) -> Steps:
        yield "read"
        if not self._alive(pod, entry.pod_uid):
            self._move("gone", pod, entry)
            return
        version = self.world.pods[pod].version
        yield "delete"
        try:
            if self.world.call(lambda: self.world.delete(pod, entry.pod_uid, version)):
                yield "gone"
                self._move("gone", pod, entry)
        except Unclear:
            return

    def _bear(self, pod: str, entry: LedgerEntry) -> Steps:
        yield "post"
        try:
            self.world.call(lambda: self.world.post(pod))
        except Unclear:
            return
        yield "born"
        live = self.world.pods.get(pod)
        if live is not None:
            self._move("born", pod, entry, uid=live.uid)

    # -- rebuild ---------------------------------------------------------------------------------------

    def _rebuild(self) -> Steps:
        epoch = uuid.uuid4().hex
        yield "rebuild"
        former = self.ledger.begin_rebuild(self.proof, epoch)
        yield "list pods"
        pods = deepcopy(self.world.pods)
        yield "list boxes"
        boxes = deepcopy(self.world.boxes)
        for name, box in sorted(boxes.items()):
            if wants(self.world, box) and "no touch" not in self.world.broken:
                yield "touch"
                while True:
                    try:
                        self.world.call(lambda name=name: self.world.touch(name))
                        break
                    except Unclear:
                        yield "touch"
                if name in self.world.boxes:
                    boxes[name] = deepcopy(self.world.boxes[name])
        entries = {}
        for pod, live in pods.items():
            claimants = [
                (slot, box)
                for box in boxes.values()
                for slot, claim in box.record.items()
                if claim == (pod, live.uid) and pod not in box.released
            ]
            entries[pod] = self._judged(claimants, live, former.entries.get(pod))
        yield "commit"
        self.ledger.commit(self.proof, epoch, entries)

    def _judged(self, claimants: list[tuple[int, Box]], pod: Pod, old: LedgerEntry | None) -> LedgerEntry:
        if len(claimants) > 1 and "last claim wins" not in self.world.broken:
            return LedgerEntry(state="conf", pod_uid=pod.uid)
        if claimants:
            slot, box = claimants[-1]
            return LedgerEntry(
                state="held", pod_uid=pod.uid, box_uid=box.uid, box=box.name, slot=slot, seq=self.world.next()
            )
        if old is not None and old.state == "doom" and old.pod_uid == pod.uid:
            return old
        clean = "unclaimed is clean" in self.world.broken
        return LedgerEntry(state="free" if clean else "dirty", pod_uid=pod.uid)
