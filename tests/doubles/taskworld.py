"""One sandbox with tasks on a simulated API server and a real Redis, with executors in memory and a clock to turn.

`TaskWorld` makes sandboxes, pods and ledger entries; `run` is one pass of the tasks' key. Executors are real task
tables with pretended processes, one per address; each can be silenced.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from osb.api import names
from osb.api.key import Key
from osb.apply.tasks import Check, Order, read_answer
from osb.config import Settings
from osb.decide.tasknode import Answer, Node
from osb.executor import wire
from osb.executor.fake import Fakes
from osb.executor.table import Refused, Table
from osb.executor.task import Folder
from osb.facts.adds import Add
from osb.facts.ledger import HELD, LedgerEntry
from osb.kube.client import Kube
from osb.reconcile import tasks
from osb.reconcile.contract import Outcome
from osb.store.client import Store
from osb.store.forward import Forwarder
from osb.store.ledger_types import Proof

Obj = dict[str, Any]

TEMPLATE: Obj = {"spec": {"process": {"command": ["serve"]}}}
_count = itertools.count(1)


class Clock:
    def __init__(self) -> None:
        self.now = datetime.now(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self.now

    def seconds(self) -> float:
        return self.now.timestamp()

    def turn(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Bench:
    """Executors by address, as `osb.apply.tasks.Executors`.

    `silent`: addresses that do not answer.
    `broken`: addresses that answer 500.
    `log`: mutating calls that arrived.
    `before`: runs before each order is checked.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.tables: dict[str, Table] = {}
        self.silent: set[str] = set()
        self.broken: set[str] = set()
        self.log: list[tuple[str, list[str]]] = []
        self.asked: list[str] = []
        self.refused: list[str] = []
        self.before: Callable[[], None] = lambda: None

    def at(self, ip: str) -> Table:
        if ip not in self.tables:
            self.tables[ip] = Table(Folder(None), Fakes(self._clock.seconds), clock=self._clock.seconds)
        return self.tables[ip]

    def runs(self, ip: str) -> list[str]:
        return [item["name"] for item in self.at(ip).listed()]

    def ask(self, addresses: Mapping[int, str], *, budget: float) -> dict[int, Answer]:
        self.asked += addresses.values()
        return {at: self._answer(ip, lambda ip=ip: self.at(ip).listed()) for at, ip in addresses.items()}  # type: ignore[misc]

    def send(self, orders: Sequence[Order], *, check: Check, budget: float) -> dict[int, Answer]:
        found = {}
        for order in orders:
            self.before()
            objection = check(order)
            if objection:
                self.refused.append(objection)
                found[order.index] = Answer(ok=False, heard=False, error=objection)
                continue
            wanted = [dict(order.task)] if order.task is not None else []
            self.log.append((order.ip, [item["name"] for item in wanted]))
            found[order.index] = self._answer(order.ip, lambda ip=order.ip, w=wanted: self.at(ip).sync(w))  # type: ignore[misc]
        return found

    def _answer(self, ip: str, call: Callable[[], list[Obj]]) -> Answer:
        if ip in self.silent:
            return Answer(ok=False, heard=False, error=f"cannot connect to {ip}")
        if ip in self.broken:
            return Answer(ok=False, heard=True, error="status=500")
        try:
            return read_answer(wire.dump(call()), where=ip)
        except Refused as refused:
            return Answer(ok=False, heard=True, error=str(refused))


@dataclass
class Told:
    """Keeps the events that would be sent."""

    events: list[tuple[str, str]] = field(default_factory=list)

    def emit(self, obj: Obj, type: str, reason: str, message: str, *, component: str = "") -> None:
        self.events.append((reason, message))

    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.events]


class TaskHand:
    """The `Hand` of one pass."""

    def __init__(self, world: TaskWorld, step: Callable[[str], None]) -> None:
        self.key = world.key
        self.token = "t"
        self.store, self.kube, self.forward = world.store, world.kube, Forwarder(world.store)
        self.events, self.settings, self.writers = world.told, world.settings, world.writers
        self.claimers, self.meanwhile = world.writers, None
        self.step, self.now = step, world.clock

    def check(self) -> None:
        return


class TaskWorld:
    def __init__(
        self, store: Store, kube: Kube, *, replicas: int = 1, pooled: bool = True, net: str = "10.1", **spec: Any
    ) -> None:
        self.net = net
        self.store, self.kube, self.pooled = store, kube, pooled
        self.clock, self.told = Clock(), Told()
        self._token = ""
        self.bench = Bench(self.clock)
        self.settings = Settings()
        self.writers = ThreadPoolExecutor(4)
        self.ns = f"ns{next(_count)}"
        self.key = Key("tasks", self.ns, "b")
        self.executors: Any = self.bench
        kube.create("namespace", None, {"metadata": {"name": self.ns}})
        self.pool_uid = self._make_pool()
        self.box = self._make_box(replicas, spec)
        for slot in range(replicas):
            self.pod(slot)
        if pooled:
            self.record([f"p{slot}" for slot in range(replicas)])
        self.sync()

    # -- the cluster -------------------------------------------------------------------------------------------

    def _make_pool(self) -> str:
        capacity = {"bufferMin": 0, "bufferMax": 0, "poolMin": 0, "poolMax": 9}
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "Pool",
            "metadata": {"name": "warm"},
            "spec": {"template": {"spec": {"containers": []}}, "capacitySpec": capacity},
        }
        return str(self.kube.create("pool", self.ns, body)["metadata"]["uid"])

    def _make_box(self, replicas: int, spec: Obj) -> Obj:
        source: Obj = {"poolRef": "warm"} if self.pooled else {"template": {"spec": {"containers": []}}}
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "BatchSandbox",
            "metadata": {"name": "b", "namespace": self.ns, "finalizers": ["other/keep", names.FINALIZER_TASKS]},
            "spec": {"replicas": replicas, "taskTemplate": TEMPLATE, **source, **spec},
        }
        return self.kube.create("batchsandbox", self.ns, body)

    def ip(self, slot: int) -> str:
        return f"{self.net}.{slot // 250}.{slot % 250 + 1}"

    def name(self, slot: int) -> str:
        return f"p{slot}" if self.pooled else f"b-{slot}"

    def pod(self, slot: int, *, name: str = "", ip: str = "", **status: Any) -> Obj:
        """A Running pod of the slot, in the API and in the mirror."""
        owner = ("Pool", "warm", self.pool_uid) if self.pooled else ("BatchSandbox", "b", self.box["metadata"]["uid"])
        labels = (
            {names.LABEL_POOL_NAME: "warm"}
            if self.pooled
            else {names.LABEL_BOX_NAME: "b", names.LABEL_POD_INDEX: str(slot)}
        )
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name or self.name(slot),
                "namespace": self.ns,
                "labels": labels,
                "ownerReferences": [
                    {
                        "apiVersion": names.API_VERSION,
                        "kind": owner[0],
                        "name": owner[1],
                        "uid": owner[2],
                        "controller": True,
                    }
                ],
            },
            "spec": {"containers": [{"name": "main", "image": "img"}], "terminationGracePeriodSeconds": 0},
        }
        made = self.kube.create("pod", self.ns, body)
        full = {"phase": "Running", "podIP": ip or self.ip(slot), **status}
        return self.kube.patch("pod", self.ns, made["metadata"]["name"], {"status": full}, sub="status")

    def record(self, pods: list[str]) -> None:
        """Write the record and make the ledger agree."""
        raw = {pod: self.kube.get("pod", self.ns, pod) for pod in pods}
        uids = [raw[pod]["metadata"]["uid"] for pod in pods]
        text = {"pods": pods, "poolRef": "warm", "poolUID": self.pool_uid, "uids": [uid[:8] for uid in uids], "seq": 1}
        self.annotate(**{names.ALLOC_STATUS: orjson.dumps(text).decode()})
        box_uid = self.box["metadata"]["uid"]
        self.ledger(
            {
                pod: LedgerEntry(state=HELD, pod_uid=uid, box_uid=box_uid, box="b", slot=slot)
                for slot, (pod, uid) in enumerate(zip(pods, uids, strict=True))
            }
        )

    def ledger(self, entries: dict[str, LedgerEntry]) -> None:
        """Exactly these entries."""
        proof, epoch = self.rebuild()
        self.store.ledger(self.ns, "warm").commit(proof, epoch, entries)

    def rebuild(self) -> tuple[Proof, str]:
        """Begin a rebuild of the ledger: it is not ready until it is committed."""
        pool = Key("pool", self.ns, "warm")
        token = f"token-{next(_count)}"
        self.store.queue.add([Add(key=pool, reason="test")])
        self.store.queue.end(pool, self._token, "done")
        assert self.store.queue.begin(pool, token).state == "run"
        self._token = token
        proof = Proof(pool.member, token, self.pool_uid)
        self.store.ledger(self.ns, "warm").begin_rebuild(proof, token)
        return proof, token

    def annotate(self, **annotations: str) -> None:
        self.patch({"metadata": {"annotations": annotations}})

    def patch(self, body: Obj, *, sub: str = "") -> None:
        self.box = self.kube.patch("batchsandbox", self.ns, "b", body, sub=sub)

    def phase(self, phase: str) -> None:
        counts = dict.fromkeys(
            (
                "allocated",
                "ready",
                "replicas",
                "taskFailed",
                "taskPending",
                "taskRunning",
                "taskSucceed",
                "taskUnknown",
            ),
            0,
        )
        self.patch({"status": {**counts, "phase": phase}}, sub="status")
        self.sync()

    def delete(self) -> None:
        self.kube.delete("batchsandbox", self.ns, "b", uid=self.box["metadata"]["uid"])
        self.sync()

    def remove_pod(self, slot: int) -> None:
        self.kube.delete("pod", self.ns, self.name(slot), grace=0)

    def sync(self) -> None:
        """Bring the mirror up to date, as the watchers do."""
        forward = Forwarder(self.store)
        forward.relist("batchsandbox", self.kube.list("batchsandbox", self.ns))
        forward.relist("poolpod", self.kube.list("pod", self.ns, labels=names.LABEL_POOL_NAME))
        forward.relist("boxpod", self.kube.list("pod", self.ns, labels=names.LABEL_BOX_NAME))

    # -- looking -----------------------------------------------------------------------------------------------

    def live(self) -> Obj | None:
        from osb.errors import NotFound

        try:
            return self.kube.get("batchsandbox", self.ns, "b")
        except NotFound:
            return None

    def annotation(self, key: str) -> Any:
        obj = self.live()
        assert obj is not None
        text = (obj["metadata"].get("annotations") or {}).get(key)
        return orjson.loads(text) if text else None

    def finalizers(self) -> list[str]:
        obj = self.live()
        return list(obj["metadata"].get("finalizers") or []) if obj else []

    def nodes(self) -> dict[int, Node]:
        return self.store.tasks.get_all(self.box["metadata"]["uid"], Node)

    def woken(self) -> bool:
        """Was the sandbox's own key asked for since the last look?"""
        key, token = Key("batchsandbox", self.ns, "b"), f"look-{next(_count)}"
        asked = self.store.queue.begin(key, token).state == "run"
        self.store.queue.end(key, token, "done", progress=True)
        return asked

    # -- running -----------------------------------------------------------------------------------------------

    def run(self, *, turn: float = 3, step: Callable[[str], None] = lambda name: None) -> Outcome:
        """Turn the clock, then one pass."""
        self.clock.turn(turn)
        hand: Any = TaskHand(self, step)
        return tasks.reconcile(hand, self.key, executors=self.executors)

    def close(self) -> None:
        self.writers.shutdown()
