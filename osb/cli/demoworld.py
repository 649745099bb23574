"""The stage of the demo: a live cluster and a live Redis behind the few calls that the story makes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from osb.api import names, record
from osb.api.key import KINDS
from osb.cli import output as out
from osb.cli.explain import entry_text
from osb.cli.get import COLUMNS
from osb.config import Settings
from osb.errors import ApiError, Gone, NotFound, StoreDown
from osb.kube.client import connect
from osb.local.demoview import Snapshot
from osb.store.client import connect as connect_store

NAMESPACE = "default"
REDRAW_SECONDS = 0.5

Obj = dict[str, Any]


class DemoWorld:
    """Implements `osb.local.demo.Stage`. `on_tick` is called while the story waits."""

    def __init__(self, settings: Settings, *, on_tick: Callable[[], None]) -> None:
        self.kube = connect(settings, pool=6)
        self.store = connect_store(settings.redis_url, name="demo")
        self.show: Callable[[Snapshot], None] = lambda now: None
        self._on_tick = on_tick
        self._created: dict[str, float] = {}
        self._served: dict[str, float] = {}
        self._drawn = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="demo-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self.kube.close()
        self.store.close()

    # -- what the story calls ------------------------------------------------------------------------------

    def create(self, kind: str, body: Obj) -> None:
        if kind == "batchsandbox":
            self._created[body["metadata"]["name"]] = time.monotonic()
        self.kube.create(kind, NAMESPACE, body)

    def patch(self, kind: str, name: str, body: Obj) -> None:
        self.kube.patch(kind, NAMESPACE, name, body)

    def delete(self, kind: str, name: str) -> None:
        self.kube.delete(kind, NAMESPACE, name, grace=0)

    def get(self, kind: str, name: str) -> Obj | None:
        with contextlib.suppress(NotFound):
            return self.kube.get(kind, NAMESPACE, name)
        return None

    def served_ms(self, name: str) -> float | None:
        return self._served.get(name)

    def decisions(self, since_ms: int, boxes: Sequence[str]) -> list[str]:
        about = {"", *(f"{NAMESPACE}/{box}" for box in boxes)}
        entries = [
            e for e in self.store.journal.read(limit=200) if e["at_ms"] >= since_ms and e.get("box", "") in about
        ]
        return [entry_text(entry) for entry in reversed(entries)]

    def events(self, name: str) -> list[str]:
        items, _ = self.kube.all("event", NAMESPACE, fields=f"involvedObject.name={name}")
        items.sort(key=lambda item: (item.get("firstTimestamp") or "", item["metadata"]["resourceVersion"]))
        return [f"{item.get('reason')}: {item.get('message')}" for item in items]

    def now_ms(self) -> int:
        return self.store.queue.now_ms()

    def tick(self) -> None:
        self._on_tick()
        if time.monotonic() - self._drawn > REDRAW_SECONDS:
            self._drawn = time.monotonic()
            with contextlib.suppress(ApiError, StoreDown):  # the table waits, the story tells
                self.show(self.snapshot())

    # -- endpoints, as a client sees them ------------------------------------------------------------------

    def _follow(self) -> None:
        """Note when a sandbox's endpoints are complete, by a watch: the clock of the measurement."""
        version = ""
        while not self._over.is_set():
            try:
                if not version:
                    items, version = self.kube.all("batchsandbox", NAMESPACE)
                    for item in items:
                        self._note(item)
                for batch in self.kube.watch("batchsandbox", NAMESPACE, version=version, stop=self._over):
                    for event in batch:
                        version = event.obj["metadata"]["resourceVersion"]
                        self._note(event.obj)
            except Gone:
                version = ""
            except ApiError:
                self._over.wait(0.2)

    def _note(self, obj: Obj) -> None:
        meta = obj["metadata"]
        name, text = meta.get("name", ""), (meta.get("annotations") or {}).get(names.ENDPOINTS)
        addresses = record.parse_endpoints(text) or ()
        full = len([a for a in addresses if a]) >= int((obj.get("spec") or {}).get("replicas") or 0)
        if full and addresses and name in self._created and name not in self._served:
            self._served[name] = (time.monotonic() - self._created[name]) * 1000

    # -- the table -----------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        pools, _ = self.kube.all("pool", NAMESPACE)
        boxes, _ = self.kube.all("batchsandbox", NAMESPACE)
        return Snapshot(
            pools=[self._pool(pool) for pool in pools],
            sandboxes=[self._box(box) for box in sorted(boxes, key=lambda b: b["metadata"]["creationTimestamp"])],
            queues=[row for kind in KINDS if (row := self._queue(kind))],
        )

    def _pool(self, pool: Obj) -> list[object]:
        total, allocated, available, pending, waiting, *_, state = COLUMNS["pool"][1](
            pool.get("spec") or {}, pool.get("status") or {}
        )
        return [pool["metadata"]["name"], total, allocated, available, pending, waiting, state]

    def _box(self, box: Obj) -> list[object]:
        _, wants, _, ready, phase, waits = COLUMNS["batchsandbox"][1](box.get("spec") or {}, box.get("status") or {})
        ms = self._served.get(box["metadata"]["name"])
        return [box["metadata"]["name"], wants, ready, phase, "" if ms is None else f"{ms:,.0f}", str(waits)[:60]]

    def _queue(self, kind: str) -> list[object]:
        stats = self.store.queue.stats(kind)
        return [kind, stats.dirty_now, stats.dirty_later, stats.running, stats.due,
                out.span(max(stats.oldest_ms_now, stats.oldest_ms_later) / 1000)]  # fmt: skip
