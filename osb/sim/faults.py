"""Faults on request: what the simulated server does to chosen requests. Added over HTTP under /_sim/faults.

A fault matches by method, path (regular expression over path and query), verb and user agent, at most `count`
times, and carries one or several effects. Requests of the fake kubelet are hit only by a fault that names its user
agent, `osb-sim-kubelet`. Lists and stats are under /_sim as well (`osb.sim.admin`).
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from osb.sim.refusals import bad_request

Obj = dict[str, Any]

KUBELET = "osb-sim-kubelet"  # the User-Agent of the fake kubelet


@dataclass(slots=True)
class Fault:
    """One rule. Matchers that are empty match everything; effects that are zero do nothing.

    latency     seconds to wait before executing          after        seconds to wait before answering
    status      answer this code instead of executing     retry_after  Retry-After of that answer, seconds
    drop        execute, then close without an answer     close        close without executing
    freeze      watches stay open and silent              gone         watches end with 410 (running ones too)
    stale       lists answer the state of the moment at which the fault was added
    deny        403, and SelfSubjectAccessReview says no
    """

    id: str = ""
    methods: tuple[str, ...] = ()
    path: str = ""
    verbs: tuple[str, ...] = ()
    agent: str = ""
    count: int = 0
    probability: float = 1.0
    latency: float = 0.0
    after: float = 0.0
    status: int = 0
    reason: str = ""
    message: str = ""
    retry_after: int = 0
    drop: bool = False
    close: bool = False
    freeze: bool = False
    gone: bool = False
    stale: bool = False
    deny: bool = False
    hits: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)
    snapshot: Any = None
    _pattern: re.Pattern[str] | None = None

    def matches(self, method: str, path: str, verb: str, agent: str) -> bool:
        """Without counting."""
        if self.released.is_set() or (self.count and self.hits >= self.count):
            return False
        if self.methods and method not in self.methods:
            return False
        if self.verbs and verb not in self.verbs:
            return False
        if self.agent not in agent or (not self.agent and agent.startswith(KUBELET)):
            return False
        if self._pattern is None:
            self._pattern = re.compile(self.path)
        return self._pattern.search(path) is not None and (self.probability >= 1 or random.random() < self.probability)

    def describe(self) -> Obj:
        shown = ("id", "methods", "path", "verbs", "agent", "count", "probability", "latency", "after",
        "status", "reason",
                 "message", "retry_after", "drop", "close", "freeze", "gone", "stale", "deny",
                 "hits")  # fmt: skip
        return {key: getattr(self, key) for key in shown}


_FIELDS: dict[str, type | tuple[type, ...]] = {
    "path": str, "agent": str, "count": int, "probability": (int, float), "latency": (int, float),
    "after": (int, float), "status": int, "reason": str, "message": str, "retry_after": int, "drop": bool,
    "close": bool, "freeze": bool, "gone": bool, "stale": bool, "deny": bool,
}  # fmt: skip


def parse(body: Any) -> Fault:
    """A fault from JSON. Raises Refusal 400 that names the wrong member."""
    if not isinstance(body, dict):
        raise bad_request("a fault is a JSON object")
    fault = Fault()
    for key, value in body.items():
        if key in ("methods", "verbs"):
            listed = [value] if isinstance(value, str) else value
            setattr(fault, key, tuple(str(item) for item in listed))
        elif key in _FIELDS and isinstance(value, _FIELDS[key]):
            setattr(fault, key, value)
        else:
            raise bad_request(f"fault: {key}={value!r} is unknown or of the wrong type; see osb.sim.faults.Fault")
    try:
        re.compile(fault.path)
    except re.error as error:
        raise bad_request(f"fault: path is no regular expression: {error}") from error
    return fault


class Faults:
    """The rules in force."""

    def __init__(self) -> None:
        self._all: dict[str, Fault] = {}
        self._ids = itertools.count(1)

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, fault: Fault) -> Fault:
        fault.id = str(next(self._ids))
        self._all[fault.id] = fault
        return fault

    def remove(self, fault_id: str = "") -> int:
        """One, or all. Frozen watches go on."""
        gone = [fault_id] if fault_id else list(self._all)
        removed = [self._all.pop(key) for key in gone if key in self._all]
        for fault in removed:
            fault.released.set()
        return len(removed)

    def all(self) -> list[Fault]:
        return list(self._all.values())

    def take(self, method: str, path: str, verb: str, agent: str) -> list[Fault]:
        """Those that hit this request; counted."""
        hit = [fault for fault in self._all.values() if fault.matches(method, path, verb, agent)]
        for fault in hit:
            fault.hits += 1
        return hit

    def frozen(self, path: str, agent: str) -> asyncio.Event | None:
        """For a running watch: the event that ends its freeze, or None."""
        if not self._all:
            return None
        return _first((f for f in self._all.values() if f.freeze), path, agent)

    def denied(self, verb: str, path: str) -> bool:
        return any(fault.deny and fault.matches("POST", path, verb, "") for fault in self._all.values())


def _first(faults: Iterable[Fault], path: str, agent: str) -> asyncio.Event | None:
    return next((fault.released for fault in faults if fault.matches("GET", path, "watch", agent)), None)
