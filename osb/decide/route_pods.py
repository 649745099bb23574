"""The pod rows of the routing table, and `Adds`, the small builder that `osb.decide.route` shares with them.

A pool pod concerns the Pool that controls it (an owner that is not the controller does not count) and the
sandboxes whose record names it; a sandbox's own pod concerns that sandbox.
"""

from __future__ import annotations

from datetime import UTC, datetime

from osb.api import key as keys
from osb.api.key import Key, of_member, runnable
from osb.errors import InvalidInput
from osb.facts.adds import Add
from osb.facts.pod import PodFact

FULL_PASS_DELAY = 0.25  # seconds; debounces the full pass of a pool behind the fast one


class Adds:
    """Collects `Add`s, one per key and form (dirty, or due): the stronger wish of two wins, the first reason stays.

    A key that no worker would take (a poolRef or an owner with a name that no object can have) is left out.
    """

    def __init__(self) -> None:
        self._dirty: dict[Key, Add] = {}
        self._due: dict[Key, Add] = {}

    def now(self, key: Key, reason: str, *, deep: bool = False, deletion: bool = False) -> None:
        had = self._dirty.get(key)
        if had is None and not runnable(key):
            return
        if had is not None:
            deep, deletion, reason = deep or had.deep, deletion or had.deletion, had.reason
        self._dirty[key] = Add(key=key, cls="now", deep=deep, deletion=deletion, reason=reason[:120])

    def after(self, key: Key, seconds: float, reason: str) -> None:
        if key not in self._due and runnable(key):
            self._due[key] = Add(key=key, after=seconds, deep=True, reason=reason[:120])

    def at(self, key: Key, at_ms: int, reason: str) -> None:
        had = self._due.get(key)
        sooner = had is None or had.at_ms is None or at_ms < had.at_ms
        if sooner and runnable(key):
            self._due[key] = Add(key=key, at_ms=at_ms, deep=True, reason=reason[:120])

    def result(self) -> tuple[Add, ...]:
        owed = {key for key, add in self._dirty.items() if add.deep}
        due = (add for key, add in self._due.items() if add.at_ms is not None or key not in owed)
        return (*self._dirty.values(), *due)


def epoch_ms(text: object) -> int | None:
    """RFC 3339 text as ms since the epoch; None when it is none."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def route(kind: str, old: PodFact | None, new: PodFact | None, *, adds: Adds, holders: tuple[str, ...]) -> None:
    """The keys that a pod's change concerns."""
    if old is not None and new is not None and old.uid != new.uid:
        route(kind, old, None, adds=adds, holders=holders)
        old = None
    here = new or old
    assert here is not None
    if kind == "boxpod":
        _box_pod(old, new, here, adds)
        return
    if here.owner_kind == "Pool" and here.owner_name:
        _pool_pod(old, new, here, adds=adds, held=bool(holders))
    if holders and _concerns_holder(old, new):
        for member in holders:
            try:
                adds.now(of_member(keys.BATCHSANDBOX, member), f"pod {here.name} {_what(old, new)}")
            except InvalidInput:
                continue  # a forged name in an index is nobody's key


def _what(old: PodFact | None, new: PodFact | None) -> str:
    if new is None:
        return "gone"
    if old is None:
        return "added"
    if new.deleting and not old.deleting:
        return "is being deleted"
    if new.terminal and not old.terminal:
        return f"ended {new.phase}"
    if new.ready != old.ready:
        return "became ready" if new.ready else "lost readiness"
    return "changed"


def _pool_pod(old: PodFact | None, new: PodFact | None, here: PodFact, *, adds: Adds, held: bool) -> None:
    key = Key(keys.POOL, here.namespace, here.owner_name)
    reason = f"pod {here.name} {_what(old, new)}"
    if new is None:
        known_to_leave = old is not None and old.deleting and not held
        if known_to_leave:
            adds.after(key, FULL_PASS_DELAY, reason)
        else:
            adds.now(key, reason, deep=True)
    elif _leaves_stock(old, new) or _restarted(old, new):
        adds.now(key, reason, deep=True)
    elif new.ready and (old is None or not old.ready):
        if not held:
            adds.now(key, reason)
        adds.after(key, FULL_PASS_DELAY, reason)
    elif old is None or _pool_facts(old) != _pool_facts(new):
        adds.after(key, FULL_PASS_DELAY, reason)


def _leaves_stock(old: PodFact | None, new: PodFact) -> bool:
    """Deletion, a terminal phase, or a changed evict or suspect mark."""
    if old is None:
        return bool(new.deleting or new.terminal or new.evict or new.suspect)
    return _stock_facts(old) != _stock_facts(new)


def _stock_facts(pod: PodFact) -> tuple[object, ...]:
    return (bool(pod.deleting), pod.terminal, pod.evict, pod.suspect)


def _restarted(old: PodFact | None, new: PodFact) -> bool:
    """A pod under restart recycling shows other containers, or its attempt was opened or closed."""
    if old is None or not (new.restart_record or old.restart_record):
        return False
    return new.container_ids != old.container_ids or new.restart_record != old.restart_record


def _pool_facts(pod: PodFact) -> tuple[object, ...]:
    return (
        pod.phase,
        pod.ready,
        pod.scheduled,
        pod.unschedulable,
        pod.revision,
        pod.pool_label,
        pod.restarts,
        pod.waiting,
        pod.adopted,
        pod.node,
        pod.restart_policy,
    )


def _concerns_holder(old: PodFact | None, new: PodFact | None) -> bool:
    if old is None or new is None:
        return True
    return _holder_facts(old) != _holder_facts(new)


def _holder_facts(pod: PodFact) -> tuple[object, ...]:
    return (pod.phase, pod.ready, pod.ip, bool(pod.deleting), pod.waiting, pod.node, pod.unschedulable)


def _box_pod(old: PodFact | None, new: PodFact | None, here: PodFact, adds: Adds) -> None:
    if here.owner_kind != "BatchSandbox" or not here.owner_name:
        return
    if old is not None and new is not None:
        same = _holder_facts(old) == _holder_facts(new) and old.index_label == new.index_label
        if same and old.restarts == new.restarts and old.scheduled == new.scheduled:
            return
    adds.now(Key(keys.BATCHSANDBOX, here.namespace, here.owner_name), f"pod {here.name} {_what(old, new)}")
