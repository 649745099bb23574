"""Which pool serves a sandbox with `poolRef: "*"` (spec/pool.md 12): checks, then a score, then the name.

In: the sandbox, the Pools of its namespace, a profile, and what was promised to each pool a moment ago. Out:
a `Choice` with one reason per rejected pool. The template of the sandbox is only a hint for the choice. Next:
the chosen name is written into spec.poolRef with the version that was read, and that pool's line takes over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from osb.api import names
from osb.api.batchsandbox import BoxSpec
from osb.api.pool import PoolSpec
from osb.decide import assign_match as match
from osb.decide.assign_profiles import MOST, Profile
from osb.facts.boxview import Waiting

MAX_DETAIL = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The pool, or why there is none.

    `pool`: "" means that none fits.
    `rejected`: pool -> why it does not fit.
    `full`: pools that would fit if they had room.
    `note`: what is wrong with the profile that was asked for.
    """

    pool: str = ""
    score: float = 0.0
    rejected: Mapping[str, str] = field(default_factory=dict)
    full: tuple[str, ...] = ()
    note: str = ""

    @property
    def cannot_grow(self) -> bool:
        """Every pool that fits is at its maximum, and there is one."""
        return not self.pool and bool(self.full)


def assignable(box: BoxSpec, now: datetime) -> bool:
    """Not for sandboxes that are going: terminating or expired."""
    return box.pool_ref == names.ANY_POOL and box.deleting is None and (box.expire is None or box.expire > now)


def choose(
    box: BoxSpec, pools: Iterable[PoolSpec], *, profile: Profile, promised: Mapping[str, int] | None = None
) -> Choice:
    """The best pool.

    `promised`: pool name -> pods that waiting sandboxes will take and the pool's status does not show yet.
    """
    promised = promised or {}
    rejected: dict[str, str] = {}
    full: list[str] = []
    fitting: list[tuple[float, str]] = []
    for pool in pools:
        pending = promised.get(pool.name, 0)
        reason = _misfit(box, pool, profile)
        if reason:
            rejected[pool.name] = reason
        elif reason := _no_room(box, pool, pending):
            rejected[pool.name] = reason
            full.append(pool.name)
        else:
            fitting.append((-_score(pool, profile, pending), pool.name))
    if not fitting:
        return Choice(rejected=rejected, full=tuple(sorted(full)))
    score, name = min(fitting)
    return Choice(pool=name, score=-score, rejected=rejected, full=tuple(sorted(full)))


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
    return "" if left >= box.replicas else f"poolMax {pool.pool_max} leaves {left} of the {box.replicas} asked for"


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
    told = [f"pool {name}: {reason}" for name, reason in rejected]
    if not told and not choice.pool:
        told = ["the namespace has no pool"]
    return (choice.note, *told) if choice.note else tuple(told)


def reasons(choice: Choice) -> tuple[str, ...]:
    """The choice in words, and every pool that was not taken with its own reason."""
    head = f"pool {choice.pool} fits best" if choice.pool else "no pool fits"
    return (f"poolRef is *: {head}", *clauses_of(choice))


def waiting(choice: Choice, box: BoxSpec) -> Waiting:
    """Why a sandbox that found no pool waits: one clause per pool."""
    clauses = "; ".join(clauses_of(choice))
    detail = clauses if len(clauses) <= MAX_DETAIL else clauses[: MAX_DETAIL - 1] + "…"
    return Waiting(
        code=names.WAIT_NO_POOL_FITS,
        missing=box.replicas,
        detail=detail,
        cannot_grow=choice.cannot_grow,
    )
