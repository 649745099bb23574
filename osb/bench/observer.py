"""A client's eyes: one watch of the sandboxes, remembering when each became what, and who was seen to hold which pod.

Times are monotonic nanoseconds of the moment when the bytes were decoded here. Versions count the writes: every
MODIFIED event of an object is one API write to it, whoever made it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from osb.api import names
from osb.errors import ApiError, Gone
from osb.kube.client import Kube

Obj = dict[str, Any]


@dataclass(slots=True)
class Seen:
    """One sandbox as the watch showed it.

    `delivered`, `status`: first time with all endpoints, first time with all pods ready.
    `writes`: those before its deletion.
    """

    uid: str
    added: int = 0
    delivered: int = 0
    status: int = 0
    writes: int = 0
    deleted: int = 0
    pods: tuple[str, ...] = ()


@dataclass(slots=True)
class Observer:
    """`start`, then wait for sandboxes by name; `twice` lists pods seen in two records at the same time."""

    kube: Kube
    namespace: str
    changed: threading.Condition = field(default_factory=threading.Condition)
    seen: dict[str, Seen] = field(default_factory=dict)
    holder: dict[str, str] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)
    stop: threading.Event = field(default_factory=threading.Event)
    version: str = ""

    def start(self) -> None:
        _, self.version = self.kube.all("batchsandbox", self.namespace)
        threading.Thread(target=self._run, name="observer", daemon=True).start()

    def close(self) -> None:
        self.stop.set()

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                for batch in self.kube.watch("batchsandbox", self.namespace, version=self.version, stop=self.stop):
                    now = time.monotonic_ns()
                    with self.changed:
                        for event in batch:
                            self.version = event.version or self.version
                            if event.type != "BOOKMARK":
                                self._note(event.type, event.obj, now)
                        self.changed.notify_all()
            except Gone:
                _, self.version = self.kube.all("batchsandbox", self.namespace)
            except ApiError:
                self.stop.wait(0.1)

    def _note(self, what: str, obj: Obj, now: int) -> None:
        meta = obj["metadata"]
        one = self.seen.get(meta["name"])
        if one is None or one.uid != meta["uid"]:
            one = self.seen[meta["name"]] = Seen(meta["uid"], added=now)
        if what == "DELETED":
            one.deleted = now
            self._let_go(meta["uid"], ())
            return
        if what == "MODIFIED" and not meta.get("deletionTimestamp"):
            one.writes += 1
        notes = meta.get("annotations") or {}
        want = int(obj["spec"].get("replicas", 1))
        if not one.delivered and len(_list(notes.get(names.ENDPOINTS))) >= want > 0:
            one.delivered = now
        if not one.status and (obj.get("status") or {}).get("ready", 0) >= want > 0:
            one.status = now
        self._hold(one, notes)

    def _hold(self, one: Seen, notes: Obj) -> None:
        record = _list(notes.get(names.ALLOC_STATUS), "pods")
        gone = set(_list(notes.get(names.ALLOC_RELEASED), "pods"))
        one.pods = tuple(pod for pod in record if pod and pod not in gone)
        self._let_go(one.uid, one.pods)
        for pod in one.pods:
            if self.holder.setdefault(pod, one.uid) != one.uid:
                self.twice.add(pod)

    def _let_go(self, uid: str, keep: Iterable[str]) -> None:
        kept = set(keep)
        for pod in [pod for pod, owner in self.holder.items() if owner == uid and pod not in kept]:
            del self.holder[pod]

    # -- waiting ---------------------------------------------------------------------------------------------

    def until(self, true: Callable[[], bool], *, seconds: float) -> bool:
        """Wait for a condition on what was seen; False when it did not come true in time."""
        with self.changed:
            return self.changed.wait_for(true, timeout=seconds)

    def delivered(self, wanted: Iterable[str], *, seconds: float = 60.0) -> bool:
        """Wait until all these have their endpoints."""
        return self._all(wanted, lambda one: bool(one.delivered), seconds)

    def finished(self, wanted: Iterable[str], *, seconds: float = 60.0) -> bool:
        """Wait until all these have endpoints and the final status."""
        return self._all(wanted, lambda one: bool(one.delivered and one.status), seconds)

    def gone(self, wanted: Iterable[str], *, seconds: float = 60.0) -> bool:
        return self._all(wanted, lambda one: bool(one.deleted), seconds)

    def _all(self, wanted: Iterable[str], true: Callable[[Seen], bool], seconds: float) -> bool:
        left = set(wanted)

        def none_left() -> bool:
            left.difference_update([n for n in left if (one := self.seen.get(n)) is not None and true(one)])
            return not left

        return self.until(none_left, seconds=seconds)


def _list(text: Any, member: str = "") -> list[str]:
    """A list of names in an annotation, or in a member of it; empty when it is absent or unreadable."""
    try:
        value = orjson.loads(text) if isinstance(text, str) and text else []
    except orjson.JSONDecodeError:
        return []
    if member and isinstance(value, dict):
        value = value.get(member) or []
    return [str(item or "") for item in value] if isinstance(value, list) else []
