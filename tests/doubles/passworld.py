"""Whole passes in one thread: a simulated API server, a real Redis, the mirror brought up to date by hand.

`run` is one pass of a key as a worker makes it, lease included; what it raises reaches the test. `sync` does what the
watchers do. Pods become ready only when a test says so. Nothing moves between two calls, so a test can put an edit, a
fault or a loss exactly where it hurts.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from osb.api import names
from osb.api.key import BATCHSANDBOX, POOL, Key
from osb.config import Settings
from osb.errors import NotFound
from osb.facts.adds import Add
from osb.facts.ledger import LedgerEntry
from osb.kube.client import Kube
from osb.obs.deadline import Deadline, Watchdog
from osb.reconcile.contract import Outcome
from osb.reconcile.handle import RECIPES
from osb.reconcile.world import Pass, World, no_step
from osb.store.client import Store
from osb.store.forward import Forwarder
from osb.store.lease import LeaseKeeper
from tests.doubles.taskworld import Told

Obj = dict[str, Any]
_count = itertools.count(1)


def _template() -> Obj:
    return {"spec": {"containers": [{"name": "main", "image": "img"}], "terminationGracePeriodSeconds": 0}}


class Passes:
    """One namespace."""

    def __init__(self, store: Store, kube: Kube, **settings: Any) -> None:
        self.store, self.kube = store, kube
        self.ns = f"passes{next(_count)}"
        self.told = Told()
        self.turned = 0.0
        self.settings = Settings(no_lease=True, **settings)
        self.world = World(
            settings=self.settings, store=store, kube=kube, forward=Forwarder(store),
            events=self.told,  # type: ignore[arg-type]  # keeps what would be sent
            keeper=LeaseKeeper(store.queue), writers=ThreadPoolExecutor(8), watchdog=Watchdog(lambda _: None),
            now=lambda: datetime.now(UTC) + timedelta(seconds=self.turned),
        )  # fmt: skip
        kube.create("namespace", None, {"metadata": {"name": self.ns}})

    def close(self) -> None:
        self.world.keeper.close()
        self.world.writers.shutdown()

    # -- users and kubelets ---------------------------------------------------------------------------------------

    def pool(self, name: str = "warm", *size: int, meta: Obj | None = None, **spec: Any) -> Obj:
        """`size`: bufferMin, bufferMax, poolMin, poolMax (default 0 0 0 9)."""
        low, high, floor, top = size or (0, 0, 0, 9)
        body = {
            "template": _template(),
            "capacitySpec": {"bufferMin": low, "bufferMax": high, "poolMin": floor, "poolMax": top},
            "scaleStrategy": {"maxUnavailable": "100%"}, **spec,
        }  # fmt: skip
        return self.kube.create("pool", self.ns, {"metadata": {"name": name, **(meta or {})}, "spec": body})

    def box(self, name: str = "b", *, meta: Obj | None = None, **spec: Any) -> Obj:
        body = {"replicas": 1, "poolRef": "warm", **spec}
        body = {k: v for k, v in body.items() if v is not None}
        return self.kube.create("batchsandbox", self.ns, {"metadata": {"name": name, **(meta or {})}, "spec": body})

    def own(self, name: str = "b", **spec: Any) -> Obj:
        """A sandbox with pods of its own."""
        return self.box(name, **{"poolRef": None, "template": _template(), **spec})

    def ready(self, *pods: str) -> None:
        """These pods, or all that have no address yet, run and are ready."""
        for raw in self.pods():
            name = raw["metadata"]["name"]
            if (name in pods or not pods) and not (raw.get("status") or {}).get("podIP"):
                ip = f"10.9.{next(_count) % 250}.{next(_count) % 250}"
                since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                main = {"name": "main", "ready": True, "restartCount": 0, "image": "img", "imageID": "",
                        "containerID": f"sim://{name}/1", "state": {"running": {"startedAt": since}}}  # fmt: skip
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
                status = {"phase": "Running", "podIP": ip, "conditions": [ready], "containerStatuses": [main]}
                meta = {"resourceVersion": raw["metadata"]["resourceVersion"]}
                self.kube.patch("pod", self.ns, name, {"metadata": meta, "status": status}, sub="status")
        self.sync()

    def stranger(self, name: str) -> Obj:
        """A pod of nobody's."""
        return self.kube.create("pod", self.ns, {"metadata": {"name": name}, **_template()})

    def annotate(self, kind: str, name: str, **annotations: Any) -> Obj:
        """Keys are the last part of our annotations, `_` for `-`; values become JSON, None removes."""
        found = {
            f"{names.GROUP}/{key.replace('_', '-')}": None if value is None else orjson.dumps(value).decode()
            for key, value in annotations.items()
        }
        return self.patch(kind, name, {"metadata": {"annotations": found}})

    def patch(self, kind: str, name: str, body: Obj, *, sub: str = "") -> Obj:
        return self.kube.patch(kind, self.ns, name, body, sub=sub)

    def delete(self, kind: str, name: str, **options: Any) -> None:
        self.kube.delete(kind, self.ns, name, **options)

    # -- the controller -------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Bring the mirror up to date, as the watchers do."""
        forward = self.world.forward
        for kind in ("pool", "batchsandbox", "snapshot", "job"):
            forward.relist(kind, self.kube.list(kind, self.ns))
        forward.relist("poolpod", self.kube.list("pod", self.ns, labels=names.LABEL_POOL_NAME))
        forward.relist("boxpod", self.kube.list("pod", self.ns, labels=names.LABEL_BOX_NAME))
        forward.relist("node", self.kube.list("node", fields="spec.unschedulable=true"))

    def run(
        self, kind: str, name: str, *, step: Callable[[str], None] = no_step, deep: bool = True, turn: float = 0.0
    ) -> Outcome:
        """One pass. Its key is given back whatever happens."""
        self.turned += turn
        key, token = Key(kind, self.ns, name), uuid.uuid4().hex
        self.store.queue.forget(key)
        self.store.queue.add([Add(key=key, reason="test")])
        assert self.store.queue.begin(key, token).state == "run"
        self.world.step = step
        one = Pass(world=self.world, key=key, token=token, deep=deep, deadline=Deadline(), reason="test")
        try:
            return RECIPES[kind](one)
        finally:
            self.world.step = no_step
            self.store.queue.end(key, token, "done", progress=True)

    def pool_pass(self, name: str = "warm", *, times: int = 1, **options: Any) -> Outcome:
        """Passes of a pool, the mirror being fresh before each."""
        for _ in range(times):
            self.sync()
            outcome = self.run(POOL, name, **options)
        self.sync()
        return outcome

    def box_pass(self, name: str = "b", **options: Any) -> Outcome:
        self.sync()
        outcome = self.run(BATCHSANDBOX, name, **options)
        self.sync()
        return outcome

    def warm(self, name: str = "warm", count: int = 1, **spec: Any) -> list[str]:
        """A pool with that many ready idle pods; their names."""
        self.pool(name, count, count, 0, 9, **spec)
        self.pool_pass(name)
        self.ready()
        self.pool_pass(name)
        return [pod["metadata"]["name"] for pod in self.pods(name)]

    # -- looking --------------------------------------------------------------------------------------------------

    def get(self, kind: str, name: str) -> Obj:
        return self.kube.get(kind, self.ns, name)

    def there(self, kind: str, name: str) -> bool:
        try:
            self.kube.get(kind, self.ns, name)
        except NotFound:
            return False
        return True

    def pods(self, pool: str = "") -> list[Obj]:
        raws, _ = self.kube.all("pod", self.ns, labels=f"{names.LABEL_POOL_NAME}={pool}" if pool else "")
        return raws

    def entries(self, pool: str = "warm") -> dict[str, LedgerEntry]:
        return dict(self.store.ledger(self.ns, pool).state(entries=True).entries)

    def note(self, key: str, name: str = "b") -> Any:
        text = (self.get("batchsandbox", name)["metadata"].get("annotations") or {}).get(key)
        return orjson.loads(text) if text else None

    def record(self, name: str = "b") -> list[str]:
        return list((self.note(names.ALLOC_STATUS, name) or {}).get("pods", []))

    def finalizers(self, kind: str, name: str) -> list[str]:
        return list(self.get(kind, name)["metadata"].get("finalizers") or [])

    def condition(self, kind: str, name: str, wanted: str) -> Obj | None:
        found = (self.get(kind, name).get("status") or {}).get("conditions") or []
        return next((c for c in found if c["type"] == wanted and c["status"] == "True"), None)
