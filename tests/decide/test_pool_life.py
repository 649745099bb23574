"""Whole lives of a pool in simulated time: plan after plan on a modelled cluster, until nothing more is planned."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osb.api import names
from osb.api.batchsandbox import BoxSpec
from osb.api.pool import PoolSpec, parse
from osb.api.record import Record
from osb.decide.allocate import grants
from osb.decide.plan import CreatePod, Doom, Move, PatchObject, PatchPod, Plan, Recycle, Remember, Settle
from osb.decide.pool import plan
from osb.facts.ledger import LedgerEntry
from osb.facts.pod import PodFact
from osb.facts.poolview import Memory, PoolView, ServeView, WaitingBox

START = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def pool(band: str, **spec: Any) -> PoolSpec:
    (low, high), (least, most) = (part.split("/") for part in band.split())
    numbers = {"bufferMin": int(low), "bufferMax": int(high), "poolMin": int(least), "poolMax": int(most)}
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    metadata = {"namespace": "ns", "name": "warm", "uid": "pool-uid", "generation": 1}
    return parse({"metadata": metadata, "spec": {"template": template, "capacitySpec": numbers, **spec}})


@dataclass
class Cluster:
    """What apply, kubelet and users would do, one second per turn. Pods are Ready after `lead` seconds and gone
    `grace` seconds after their DELETE."""

    pool: PoolSpec
    lead: int = 3
    grace: int = 2
    revision: str = "r1"
    now: datetime = START
    pods: dict[str, PodFact] = field(default_factory=dict)
    entries: dict[str, LedgerEntry] = field(default_factory=dict)
    boxes: dict[str, BoxSpec] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    created: int = 0
    dooms: list[str] = field(default_factory=list)
    most: int = 0
    served: dict[str, list[str]] = field(default_factory=dict)
    _names: Any = field(default_factory=lambda: (f"p{i}" for i in itertools.count()))
    _uids: Any = field(default_factory=itertools.count)

    @property
    def ms(self) -> int:
        return int(self.now.timestamp() * 1000)

    def add(self, name: str, replicas: int) -> None:
        self.boxes[f"uid-{name}"] = BoxSpec(
            namespace="ns", name=name, uid=f"uid-{name}", version="1", replicas=replicas,
            created=self.now, pool_ref="warm", finalizers=(names.FINALIZER_POOL,),
        )  # fmt: skip

    def delete(self, name: str) -> None:
        uid = f"uid-{name}"
        self.boxes[uid] = replace(self.boxes[uid], deleting=self.now)

    def wants(self, box: BoxSpec) -> tuple[int, ...]:
        taken = {e.slot for e in self.entries.values() if e.box_uid == box.uid}
        return () if box.deleting else tuple(i for i in range(box.replicas) if i not in taken)

    def waiting(self) -> list[WaitingBox]:
        found = [WaitingBox(box=b, slots=self.wants(b)) for b in self.boxes.values()]
        return [w for w in found if w.slots]

    def serve(self) -> None:
        free = [p for p in self.pods.values() if self.entries[p.name].state == "free" and p.offerable]
        dealt = grants(
            ServeView(now=self.now, pool=self.pool, revision=self.revision, available=free, waiting=self.waiting())
        )
        for grant in dealt.grants:
            for slot, name, _ in grant.pods:
                self.entries[name] = replace(
                    self.entries[name], state="held", box=f"ns/{grant.box}", box_uid=grant.uid, slot=slot
                )
                self.served.setdefault(name, []).append(grant.box)
            self._record(grant.uid)

    def _record(self, uid: str) -> None:
        mine = sorted((e.slot, n) for n, e in self.entries.items() if e.box_uid == uid)
        pods = tuple(n for _, n in mine)
        uids = tuple(self.pods[n].uid[:8] for n in pods)
        record = Record(pods=pods, uids=uids, pool_ref="warm", pool_uid="pool-uid")
        self.boxes[uid] = replace(self.boxes[uid], record=record)

    def decide(self) -> Plan:
        return plan(
            PoolView(
                now=self.now, pool=self.pool, revision=self.revision, pods=dict(self.pods), entries=dict(self.entries),
                names=self._names, boxes=dict(self.boxes), waiting=self.waiting(), memory=self.memory,
            )
        )  # fmt: skip

    def apply(self, made: Plan) -> int:
        for action in made.actions:
            match action:
                case CreatePod(name):
                    self._create(name)
                case Doom(name):
                    assert self.entries[name].state in ("free", "doom"), "only idle pods are removed"
                    self.dooms.append(action.why)
                    self.entries[name] = replace(self.entries[name], state="doom")
                    self._kill(name)
                case Move("release", name):
                    self.entries[name] = replace(self.entries[name], state="rel", policy=action.policy)
                case Move("orphan", name):
                    self.entries[name] = LedgerEntry(state="dirty", pod_uid=action.uid)
                case Move("gone" | "lost", name):
                    self.entries.pop(name)
                case Recycle(name):
                    self._recycle(action, name)
                case Remember(values):
                    self.memory = replace(self.memory, **values)
                case PatchObject("batchsandbox") | PatchPod() | Settle():
                    raise AssertionError(f"unexpected here: {action}")
        return len([a for a in made.actions if isinstance(a, CreatePod | Doom | Move | Recycle)])

    def _create(self, name: str) -> None:
        uid = f"u{next(self._uids):07}"
        self.created += 1
        self.pods[name] = PodFact(
            "ns", name, uid, "1", "Pool", "warm", "pool-uid", phase="Pending", created=self.ms,
            last_transition=self.ms, revision=self.revision,
        )  # fmt: skip
        self.entries[name] = LedgerEntry(state="free", pod_uid=uid)

    def _kill(self, name: str) -> None:
        if not self.pods[name].deleting:
            self.pods[name] = msgspec.structs.replace(self.pods[name], deleting=self.ms)

    def _recycle(self, action: Recycle, name: str) -> None:
        if action.step == "delete":
            self._kill(name)
        elif action.step == "gone":
            self.entries.pop(name)
        elif action.step == "free":
            self.entries[name] = LedgerEntry(state="free", pod_uid=action.uid)

    def turn(self) -> int:
        self.serve()
        wrote = self.apply(self.decide())
        held = {e.box_uid for e in self.entries.values() if e.box_uid}
        self.boxes = {u: b for u, b in self.boxes.items() if not b.deleting or u in held}
        self.most = max(self.most, len(self.pods))
        self.now += timedelta(seconds=1)
        for name, pod in list(self.pods.items()):
            if pod.deleting and self.ms - pod.deleting >= self.grace * 1000:
                del self.pods[name]
            elif not pod.ready and self.ms - pod.created >= self.lead * 1000:
                self.pods[name] = msgspec.structs.replace(
                    pod, ready=True, phase="Running", ready_since=self.ms, scheduled=pod.created
                )
        return wrote

    def run(self, seconds: int) -> int:
        """Turns made before the pool came to rest."""
        quiet = 0
        for turn in range(seconds):
            busy = self.turn() or any(p.deleting or not p.ready for p in self.pods.values())
            quiet = 0 if busy else quiet + 1
            if quiet == 3:
                return turn
        raise AssertionError(f"still busy after {seconds} turns: {[type(a) for a in self.decide().actions]}")

    @property
    def ready_idle(self) -> int:
        return sum(p.ready and self.entries[p.name].state == "free" for p in self.pods.values())


def test_pods_that_need_ninety_seconds_are_created_once_and_none_is_removed_in_ten_minutes() -> None:
    cluster = Cluster(pool("5/10 0/200", scaleStrategy={"maxUnavailable": "100%"}), lead=90)
    for second in range(600):
        if second == 20:
            for i in range(30):
                cluster.add(f"s{i}", 1)
        cluster.turn()
    assert 35 <= cluster.created <= 35 * 1.15
    assert cluster.dooms == []
    assert sum(e.state == "held" for e in cluster.entries.values()) == 30


def test_a_batch_larger_than_the_stock_is_served_and_the_buffer_refilled() -> None:
    cluster = Cluster(pool("5/10 0/50"))
    cluster.run(100)
    cluster.add("big", 20)
    cluster.run(200)
    assert sum(e.box == "ns/big" for e in cluster.entries.values()) == 20
    assert 5 <= cluster.ready_idle <= 10


@pytest.mark.parametrize("policy", ["Delete", "Noop"])
def test_a_deleted_sandbox_gives_everything_back_and_is_gone(policy: str) -> None:
    cluster = Cluster(pool("2/4 0/20", recycleStrategy={"type": policy}))
    cluster.add("s", 3)
    cluster.run(100)
    cluster.delete("s")
    cluster.run(200)
    assert cluster.boxes == {}
    assert 2 <= cluster.ready_idle <= 4
    reused = [name for name, boxes in cluster.served.items() if name in cluster.pods]
    assert bool(reused) is (policy == "Noop")


def test_a_template_change_rolls_idle_pods_within_the_budget_and_never_a_held_one() -> None:
    cluster = Cluster(pool("8/8 0/20", updateStrategy={"maxUnavailable": "25%"}))
    cluster.add("s", 2)
    cluster.run(200)
    held = {n for n, e in cluster.entries.items() if e.state == "held"}
    cluster.revision = "r2"
    least = 99
    for _ in range(200):
        cluster.turn()
        least = min(least, cluster.ready_idle)
    assert held <= set(cluster.pods)
    assert {p.revision for p in cluster.pods.values() if p.name not in held} == {"r2"}
    assert least >= 8 - 3  # a quarter of ten pods, rounded up
    assert set(cluster.dooms) == {"rolling update"}


def test_an_old_pool_of_dead_pods_is_replaced_without_help() -> None:
    cluster = Cluster(pool("2/4 0/4"))
    cluster.run(60)
    for name in cluster.pods:
        cluster.pods[name] = msgspec.structs.replace(cluster.pods[name], phase="Failed", ready=False)
    cluster.run(100)
    assert cluster.ready_idle >= 2
    assert cluster.most <= 4


@settings(max_examples=60, deadline=None)
@given(
    low=st.integers(0, 6),
    width=st.integers(0, 6),
    least=st.integers(0, 6),
    spare=st.integers(0, 15),
    percent=st.sampled_from(["1", "25%", "100%"]),
    policy=st.sampled_from(["Delete", "Noop"]),
    boxes=st.lists(st.integers(1, 5), max_size=5),
    lead=st.integers(0, 8),
    gone=st.integers(0, 5),
)
def test_every_pool_comes_to_rest_below_its_maximum(  # type: ignore[no-untyped-def]
    low, width, least, spare, percent, policy, boxes, lead, gone
) -> None:
    spec = pool(
        f"{low}/{low + width} {least}/{least + spare}",
        scaleStrategy={"maxUnavailable": percent},
        recycleStrategy={"type": policy},
    )
    cluster = Cluster(spec, lead=lead)
    for i, replicas in enumerate(boxes):
        cluster.add(f"s{i}", replicas)
    cluster.run(400)
    for i in range(min(gone, len(boxes))):
        cluster.delete(f"s{i}")
    cluster.run(400)
    held = sum(e.state == "held" for e in cluster.entries.values())
    assert cluster.most <= least + spare
    assert all(b.deleting is None for b in cluster.boxes.values())
    room = least + spare - held
    assert cluster.ready_idle >= min(low, room)
    assert cluster.ready_idle <= max(low + width, least - held)
