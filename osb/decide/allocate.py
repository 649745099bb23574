"""Which free pods go to which waiter. In: `ServeView`. Out: `Dealt`: grants, what is unmet, why each waits.

The result is a proposal: `osb.store.ledger.allocate` takes exactly these pods if all are still free, or
nothing. Pods are handed out current revision first, then longest ready, then name; never a pod that the
sandbox's record already names (spec/pool.md 7).
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from osb.api import names
from osb.api.pool import PoolSpec
from osb.decide import place
from osb.decide.order import Waiter, effective_priority, waiter, waiting_line
from osb.decide.place import Need
from osb.decide.plan import counted
from osb.facts import ledger
from osb.facts.boxview import Waiting
from osb.facts.pod import PodFact
from osb.facts.poolview import ServeView, WaitingBox

WHOLE_GRACE = 30.0  # seconds an all-or-nothing waiter is passed over before it holds others back


@dataclass(frozen=True, slots=True)
class Grant:
    """`pods`: (slot, pod name, pod UID) in slot order, for the sandbox version that the decision saw."""

    box: str
    uid: str
    version: str
    pods: tuple[tuple[int, str, str], ...]


@dataclass(frozen=True, slots=True)
class Dealt:
    """What was dealt, and what is left to say of the line.

    `unmet`: number of pods missing after the grants.
    `demand`: number of pods that must still come: missing, possible at all, and not reserved.
    `reserved`: number of pods in stock that a waiter cannot take yet but will.
    `waiting`: by sandbox UID, why each that still misses something waits.
    `timed_out`: UIDs of the sandboxes that left the line.
    """

    grants: tuple[Grant, ...] = ()
    unmet: int = 0
    demand: int = 0
    reserved: int = 0
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    timed_out: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def granted(self) -> int:
        return sum(len(grant.pods) for grant in self.grants)


def grants(view: ServeView) -> Dealt:
    """Deal the available pods to the line.

    Nothing is granted while the ledger is not ready, or the pool is held or being deleted.
    """
    label = view.pool.fairness.label if view.pool.fairness else ""
    boxes = {w.box.uid: w for w in view.waiting}
    everyone = [_waiter(w, label) for w in view.waiting]
    timed_out = tuple(w.uid for w in everyone if w.slots and w.timed_out(view.now))
    line = waiting_line(everyone, view.now)
    others = _others_hold([boxes[w.uid] for w in line], view)
    too_big = {
        w.uid for w in line if w.need + boxes[w.uid].holds > view.pool.pool_max - others[w.uid]
    }  # passed over; they hold nobody back
    closed = not view.ledger_ready or view.pool.hold or view.pool.deleting is not None
    stock = Stock(() if closed else view.available, view.revision)
    fit = [w for w in line if w.uid not in too_big]
    # with nobody else in the line, one that can never be complete still gets what is there (spec/pool.md 7: partial)
    served = _deal(fit or [w for w in line if not w.all_or_nothing], stock, view)
    missing = {w.uid: w.need - len(served.get(w.uid, ())) for w in line}
    demand, reserved = _outlook(fit, missing, stock)
    return Dealt(
        grants=tuple(_grant(w, served[w.uid]) for w in line if served.get(w.uid)),
        unmet=sum(missing.values()),
        demand=demand,
        reserved=reserved,
        waiting=_waiting(line, missing, {uid: others[uid] for uid in too_big}, view=view, left=len(stock)),
        timed_out=timed_out,
        reasons=_reasons(line, missing, len(stock)),
    )


def stock_order(pods: Iterable[PodFact], revision: str) -> list[PodFact]:
    """Current revision first, then longest ready, then name."""
    return sorted(pods, key=lambda p: (p.revision != revision, p.ready_since, p.name))


class Stock:
    """The available pods in order; each is taken once."""

    def __init__(self, pods: Iterable[PodFact], revision: str) -> None:
        self._pods = stock_order(pods, revision)
        self._left = {pod.name for pod in self._pods}
        self._first = 0

    def __len__(self) -> int:
        return len(self._left)

    def fit_for(self, had: frozenset[str]) -> int:
        """How many of the pods left a sandbox may get; `had`: pods it had already and never gets again."""
        return len(self._left) - sum(1 for name in had if name in self._left)

    def take(self, count: int, had: frozenset[str]) -> list[PodFact]:
        """Up to `count` pods in order, none of `had`."""
        while self._first < len(self._pods) and self._pods[self._first].name not in self._left:
            self._first += 1
        taken: list[PodFact] = []
        at = self._first
        while len(taken) < count and at < len(self._pods):
            pod = self._pods[at]
            at += 1
            if pod.name in self._left and pod.name not in had:
                taken.append(pod)
                self._left.discard(pod.name)
        return taken

    def put_back(self, pods: Iterable[PodFact]) -> None:
        """Pods that were taken in vain are available again."""
        self._left.update(pod.name for pod in pods)
        self._first = 0


def _waiter(waiting: WaitingBox, label: str) -> Waiter:
    return waiter(waiting.box, waiting.slots, tenant_label=label, waits_since=waiting.waits_since)


def _others_hold(line: Sequence[WaitingBox], view: ServeView) -> dict[str, int]:
    """By UID, pods that others hold for ever: poolMax minus these is all that a waiter may ever have.

    In rounds the line shares what it holds: who got a pod later than another is not passed over for that.
    """
    own = {w.box.uid: w.holds if w.box.expire is None and w.box.deleting is None else 0 for w in line}
    shared = sum(own.values()) if view.pool.placement == names.PLACEMENT_SPREAD else 0
    return {uid: max(0, view.held_for_ever - (shared or count)) for uid, count in own.items()}


def _deal(line: Sequence[Waiter], stock: Stock, view: ServeView) -> dict[str, list[PodFact]]:
    """Rank after rank; the first rank that is left short ends it."""
    served: dict[str, list[PodFact]] = {}
    deal = place.spread if view.pool.placement == names.PLACEMENT_SPREAD else place.packed
    granted: dict[str, int] = dict(view.held_by_tenant)
    holds = {w.box.uid: w.holds for w in view.waiting}
    for members in _ranks(line, view.now):
        if not len(stock):
            break
        group = _fair(members, granted, view) if view.pool.fairness else members
        needs = [_need(w, stock, view.now, holds=holds.get(w.uid, 0)) for w in group]
        shares = deal(needs, len(stock))
        for one, share in zip(group, shares, strict=True):
            served[one.uid] = stock.take(share, one.had)
        _second_helping(group, needs, stock=stock, served=served)
        short = any(
            len(served[w.uid]) < w.need and (need.holds_back or not need.whole)
            for w, need in zip(group, needs, strict=True)
        )
        if short:
            break
        for one in group:
            granted[one.tenant] = granted.get(one.tenant, 0) + len(served[one.uid])
    return served


def _ranks(line: Sequence[Waiter], now: datetime) -> list[list[Waiter]]:
    return [list(members) for _, members in groupby(line, key=lambda w: effective_priority(w, now))]


def _need(one: Waiter, stock: Stock, now: datetime, *, holds: int) -> Need:
    if not one.all_or_nothing:
        return Need(one.need, holds=holds)
    holds_back = one.waited(now) >= WHOLE_GRACE
    if stock.fit_for(one.had) < one.need and not holds_back:
        return Need(0, whole=True, holds_back=False)
    return Need(one.need, whole=True, holds_back=holds_back, holds=holds)


def _second_helping(
    group: Sequence[Waiter], needs: Sequence[Need], *, stock: Stock, served: dict[str, list[PodFact]]
) -> None:
    """A share that could not be taken goes to the next in line.

    That is so when only pods were left that the sandbox already had.
    """
    for one, need in zip(group, needs, strict=True):
        if not len(stock):
            return
        short = one.need - len(served[one.uid])
        if short > 0 and need.whole:
            got = served.pop(one.uid)
            stock.put_back(got)
            served[one.uid] = []
            if need.holds_back:
                return
        elif short > 0:
            more = stock.take(short, one.had)
            served[one.uid].extend(more)
            if len(more) < short:
                return


def _outlook(line: Sequence[Waiter], missing: Mapping[str, int], stock: Stock) -> tuple[int, int]:
    """(pods that must still come, pods in stock that are as good as promised to somebody of the line)."""
    demand = reserved = 0
    for one in line:
        usable = min(missing[one.uid], max(0, stock.fit_for(one.had) - reserved))
        reserved += usable
        demand += missing[one.uid] - usable
    return demand, reserved


def _fair(group: list[Waiter], held: Mapping[str, int], view: ServeView) -> list[Waiter]:
    """Next is always the tenant with the least (held + granted) per weight; inside it the line's order."""
    fairness = view.pool.fairness
    assert fairness is not None
    queues: dict[str, list[Waiter]] = {}
    for one in reversed(group):
        queues.setdefault(one.tenant, []).append(one)
    first = {one.tenant: i for i, one in reversed(list(enumerate(group)))}
    has = {tenant: held.get(tenant, 0) for tenant in queues}
    heap = [(has[t] / fairness.weight(t), first[t], t) for t in queues]
    heapq.heapify(heap)
    ordered: list[Waiter] = []
    while heap:
        _, _, tenant = heapq.heappop(heap)
        one = queues[tenant].pop()
        ordered.append(one)
        has[tenant] += one.need
        if queues[tenant]:
            heapq.heappush(heap, (has[tenant] / fairness.weight(tenant), first[tenant], tenant))
    return ordered


def _grant(one: Waiter, pods: Sequence[PodFact]) -> Grant:
    slots = sorted(one.slots)
    return Grant(
        one.name,
        one.uid,
        one.version,
        tuple((slot, pod.name, pod.uid) for slot, pod in zip(slots, pods, strict=False)),
    )


def _waiting(
    line: Sequence[Waiter], missing: Mapping[str, int], too_big: Mapping[str, int], *, view: ServeView, left: int
) -> dict[str, Waiting]:
    """`too_big`: by UID, those that the pool can never satisfy, and how many pods others hold for ever."""
    result: dict[str, Waiting] = {}
    short = [w for w in line if missing[w.uid] > 0]
    length = max(view.line - (len(line) - len(short)), len(short))
    exhausted = cannot_grow(view, left)
    at_max = sum(view.counts.values()) >= view.pool.pool_max
    for position, one in enumerate(short, start=1):
        code = _code(one, too_big, view=view, left=left, exhausted=exhausted)
        result[one.uid] = Waiting(
            code=code,
            missing=missing[one.uid],
            position=position,
            line=length,
            detail=_detail(code, one, view, others=too_big.get(one.uid, 0)),
            cannot_grow=code == names.WAIT_CAPACITY or (at_max and code == names.WAIT_REQUEST_EXCEEDS_POOL),
        )
    return result


def _code(one: Waiter, too_big: Container[str], *, view: ServeView, left: int, exhausted: bool) -> str:
    """The code that begins the message of Progressing (spec/additions.md 2.2); the first that applies."""
    if view.pool.deleting is not None:
        return names.WAIT_POOL_DELETING
    if not view.ledger_ready:
        return names.WAIT_LEDGER_REBUILDING
    if one.uid in too_big:
        return names.WAIT_REQUEST_EXCEEDS_POOL
    if left and not view.pool.hold:
        return names.WAIT_FOR_OTHERS
    if exhausted:
        return names.WAIT_CAPACITY
    if not view.pool.creatable:
        return names.WAIT_POOL_SPEC_INVALID
    if view.create_failing:
        return names.WAIT_CANNOT_CREATE
    return names.WAIT_NO_READY_POD


def _detail(code: str, one: Waiter, view: ServeView, *, others: int) -> str:
    """What the code alone does not say; the place in the line is added where the message is written.

    A hold comes first: while it lasts nothing else that stands in the way matters.
    """
    hold = _on_hold(view.pool) if view.pool.hold else ""
    return "; ".join(text for text in (hold, _obstacle(code, one, view, others=others)) if text)


def _on_hold(pool: PoolSpec) -> str:
    given = " ".join(pool.annotations.get(names.HOLD, "").split())
    why = f" ({given[:80]})" if given and given.lower() != "true" else ""
    return f"the pool is on hold{why}, nothing is handed out"


def _obstacle(code: str, one: Waiter, view: ServeView, *, others: int) -> str:
    most = view.pool.pool_max
    if code == names.WAIT_REQUEST_EXCEEDS_POOL and one.replicas <= most:
        left = max(0, most - others)
        return (
            f"of poolMax {most} only {left} can ever be free for it while other sandboxes keep {others} "
            "(they have no expireTime, so until somebody deletes them)"
        )
    if code == names.WAIT_REQUEST_EXCEEDS_POOL:
        return f"{one.replicas} pods are more than poolMax {most} can ever provide"
    if code == names.WAIT_CAPACITY:
        return f"all {most} pods of poolMax are taken"
    if code == names.WAIT_POOL_SPEC_INVALID:
        return "the pool has no usable template"
    return view.create_failing[:200] if code == names.WAIT_CANNOT_CREATE else ""


def cannot_grow(view: ServeView, left: int) -> bool:
    """At poolMax with nothing on its way: no pod starting, leaving or being recycled could serve a waiter."""
    counts = view.counts
    taken = sum(counts.get(state, 0) for state in (ledger.RESV, ledger.HELD, ledger.CONF))
    if taken >= view.pool.pool_max:
        return True
    total = sum(counts.values())
    return total >= view.pool.pool_max and not left and total == taken


def _reasons(line: Sequence[Waiter], missing: Mapping[str, int], left: int) -> tuple[str, ...]:
    if not line:
        return ()
    asked = sum(w.need for w in line)
    short = sum(missing.values())
    text = (
        f"{counted(len(line), 'sandbox', 'asks', 'ask')} for {counted(asked, 'pod')}; "
        f"granted: {asked - short}, left in stock: {left}"
    )
    return (text, counted(short, "pod", "is", "are") + " missing") if short else (text,)
