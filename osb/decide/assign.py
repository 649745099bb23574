"""Which pool serves a sandbox with `poolRef: "*"` (spec/pool.md 12): checks, then a score, then the name.

In: the sandbox, the Pools of its namespace, a profile, and what was promised to each pool a moment ago. Out:
a `Choice` with one reason per rejected pool. The template of the sandbox is only a hint for the choice. Next:
the chosen name is written into spec.poolRef with the version that was read, and that pool's line takes over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from osb.api import claims, names
from osb.api.batchsandbox import BoxSpec
from osb.api.pool import PoolSpec
from osb.decide import assign_match as match
from osb.decide.assign_profiles import MOST, Profile
from osb.decide.waittext import lasting, no_room
from osb.facts.boxview import Waiting

MAX_DETAIL = 600
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The pool, or why there is none.

    `pool`: "" means that none fits.
    `rejected`: pool -> why it does not fit.
    `full`: pools that would fit if they had room.
    `small`: pools that would fit if their poolMax were larger.
    `note`: what is wrong with the profile that was asked for.
    """

    pool: str = ""
    score: float = 0.0
    rejected: Mapping[str, str] = field(default_factory=dict)
    full: tuple[str, ...] = ()
    small: tuple[str, ...] = ()
    note: str = ""

    @property
    def cannot_grow(self) -> bool:
        """Every pool that fits is at its maximum, and there is one. One that is too small never fits."""
        return not self.pool and bool(self.full)


def assignable(box: BoxSpec, now: datetime) -> bool:
    """Not for sandboxes that are going (terminating or expired) or that gave up waiting."""
    going = box.deleting is not None or (box.expire is not None and box.expire <= now)
    return box.pool_ref == names.ANY_POOL and not going and not claims.timed_out(box)


def choose(
    box: BoxSpec, pools: Iterable[PoolSpec], *, profile: Profile, promised: Mapping[str, int] | None = None
) -> Choice:
    """The best pool.

    `promised`: pool name -> pods that waiting sandboxes will take and the pool's status does not show yet.
    """
    promised = promised or {}
    rejected: dict[str, str] = {}
    full: list[str] = []
    small: list[str] = []
    fitting: list[tuple[float, str]] = []
    for pool in pools:
        pending = promised.get(pool.name, 0)
        reason = _misfit(box, pool, profile)
        if reason:
            rejected[pool.name] = reason
        elif pool.pool_max < box.replicas:
            rejected[pool.name] = f"poolMax {pool.pool_max} is less than the {box.replicas} asked for"
            small.append(pool.name)
        elif reason := _no_room(box, pool, pending):
            rejected[pool.name] = reason
            full.append(pool.name)
        else:
            fitting.append((-_score(pool, profile, pending), pool.name))
    score, name = min(fitting, default=(0.0, ""))
    return Choice(pool=name, score=-score, rejected=rejected, full=tuple(sorted(full)), small=tuple(sorted(small)))


def _misfit(box: BoxSpec, pool: PoolSpec, profile: Profile) -> str:
    if pool.deleting is not None:
        return "it is being deleted"
    if pool.hold:
        return "it is on hold"
    if not pool.creatable and pool.counted("available") < box.replicas:
        return "it can make no pods, and too few are ready"
    for predicate in profile.predicates:
        reason = ""
        if predicate == "image":
            reason = match.image(box, pool)
        elif predicate == "resource":
            reason = match.resource(box, pool)
        elif predicate == "nodeselector":
            reason = match.nodeselector(box, pool)
        elif predicate == "labelselector":
            reason = match.labelselector(box, pool, profile.label_keys)
        if reason:
            return reason
    return ""


def _no_room(box: BoxSpec, pool: PoolSpec, pending: int) -> str:
    """In every profile: a pool from zero stays eligible, a full one does not."""
    left = max(0, pool.pool_max - pool.counted("allocated") - pending)
    return "" if left >= box.replicas else no_room(pool.pool_max, left, box.replicas)


def _score(pool: PoolSpec, profile: Profile, pending: int) -> float:
    """Sum of weighted scores; `resbalance` is the share of the pool in use, or of the pool not in use."""
    total = pool.counted("total")
    used = pool.counted("allocated") + pending
    if total <= 0:
        return 0.0
    ratio = min(1.0, used / total)
    value = ratio if profile.strategy == MOST else 1 - ratio
    return sum(value * weight for _, weight in profile.scores)


def clauses_of(choice: Choice) -> tuple[str, ...]:
    """What is wrong with the profile, then why each pool does not fit, those that only lack room first."""
    rejected = sorted(choice.rejected.items(), key=lambda item: (item[0] not in choice.full, item[0]))
    told = [choice.note] if choice.note else []
    if choice.small and not choice.full and not choice.pool:
        told.append("no pool is large enough")
    told += [f"pool {name}: {reason}" for name, reason in rejected]
    if not rejected and not choice.pool:
        told.append("the namespace has no pool")
    return tuple(told)


def reasons(choice: Choice) -> tuple[str, ...]:
    """The choice in words, and every pool that was not taken with its own reason."""
    head = f"pool {choice.pool} fits best" if choice.pool else "no pool fits"
    return (f"poolRef is *: {head}", *clauses_of(choice))


def waiting(choice: Choice, box: BoxSpec) -> Waiting:
    """Why a sandbox that found no pool waits: one clause per pool."""
    return Waiting(
        code=names.WAIT_NO_POOL_FITS,
        missing=box.replicas,
        detail=_cut(clauses_of(choice)),
        cannot_grow=choice.cannot_grow,
    )


def failure(detail: str) -> str:
    """The text of the Event: the cause alone. With the numbers of the moment each change would be another Event."""
    return f"Failed to assign pool: {lasting(detail)}"


def _cut(clauses: Sequence[str]) -> str:
    """As many whole clauses as have room, each measured with longer numbers than it has: a cut that moved with them
    would look like another cause."""
    kept: list[str] = []
    room = MAX_DETAIL - len("; and 1000 more")
    for clause in clauses:
        room -= len(_NUMBER.sub("00000", clause)) + 2
        if room < 0 and kept:
            return f"{'; '.join(kept)}; and {len(clauses) - len(kept)} more"
        kept.append(clause)
    return "; ".join(kept)[:MAX_DETAIL]
