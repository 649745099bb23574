"""Everything a cluster's watch streams said, in order, and waiting for what they will say.

The order within one kind is the order of writes. Tests wait with `until`: woken by events, never by the clock alone.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from osb.errors import ApiError, Gone
from osb.kube.client import Kube

Obj = dict[str, Any]
T = TypeVar("T")

KINDS = ("pool", "batchsandbox", "pod", "event", "snapshot", "job")


@dataclass(frozen=True, slots=True)
class Seen:
    """One event. `type` is ADDED, MODIFIED or DELETED; `at` a time.time() of the arrival here."""

    kind: str
    type: str
    obj: Obj
    at: float = field(default_factory=time.time)

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def version(self) -> int:
        return int(self.obj["metadata"]["resourceVersion"])


class Recorder:
    """One thread a kind from `start` to `close`."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.changed = threading.Condition()
        self.events: dict[str, list[Seen]] = defaultdict(list)
        self._live: dict[tuple[str, str], dict[str, Obj]] = defaultdict(dict)
        self._stop = threading.Event()
        self._listed = {kind: threading.Event() for kind in KINDS}
        self._threads = [
            threading.Thread(target=self._follow, args=(kind,), name=f"record-{kind}", daemon=True) for kind in KINDS
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        for kind, listed in self._listed.items():
            assert listed.wait(20), f"{kind} could not be listed"

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(5)

    def live(self, namespace: str, kind: str) -> Mapping[str, Obj]:
        """The objects there are, by name, as far as heard. Do not change them."""
        return self._live[namespace, kind]

    def forget(self, namespace: str) -> None:
        with self.changed:
            self.events.pop(namespace, None)
            for kind in KINDS:
                self._live.pop((namespace, kind), None)

    def until(self, what: str, check: Callable[[], T], *, seconds: float) -> T:
        """The first true answer of `check`, asked again after every event. Fails the test after `seconds`."""
        end = time.monotonic() + seconds
        with self.changed:
            while not (found := check()):
                left = end - time.monotonic()
                assert left > 0, f"never happened within {seconds:g} s: {what}"
                self.changed.wait(min(left, 0.5))
            return found

    def _follow(self, kind: str) -> None:
        version = ""
        while not self._stop.is_set():
            try:
                if not version:
                    items, version = self.kube.all(kind)
                    self._listed_anew(kind, items)
                    self._listed[kind].set()
                for batch in self.kube.watch(kind, version=version, stop=self._stop):
                    version = batch[-1].version or version
                    self._note([Seen(kind, e.type, e.obj) for e in batch if e.type != "BOOKMARK"])
            except Gone:
                version = ""
            except ApiError:
                self._stop.wait(0.1)

    def _note(self, batch: list[Seen]) -> None:
        with self.changed:
            for one in batch:
                namespace = one.obj["metadata"].get("namespace", "")
                self.events[namespace].append(one)
                if one.type == "DELETED":
                    self._live[namespace, one.kind].pop(one.name, None)
                else:
                    self._live[namespace, one.kind][one.name] = one.obj
            self.changed.notify_all()

    def _listed_anew(self, kind: str, items: list[Obj]) -> None:
        """After a lost place in the stream: what changed meanwhile shows as one event."""
        there = {(o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in items}
        known = {(ns, name): o for (ns, k), objs in self._live.items() if k == kind for name, o in objs.items()}
        self._note([Seen(kind, "DELETED", o) for key, o in known.items() if key not in there])
        self._note([Seen(kind, "MODIFIED", o) for key, o in there.items() if _moved(known.get(key), o)])


def _moved(old: Obj | None, new: Obj) -> bool:
    return old is None or old["metadata"]["resourceVersion"] != new["metadata"]["resourceVersion"]
