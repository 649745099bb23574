"""How many pods a pool creates or removes, and which ones go first (spec/pool.md 9.2 *Required*, 13.3).

In: four numbers that never overlap (held, ready idle, pending idle, leaving) and what is asked for. Out: a
`ScaleDecision`. Pending pods are created once and not removed for lack of demand until they are Ready, so
nothing oscillates; creates and removals never happen in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from osb.api.intorstring import DEFAULT_UNAVAILABLE, IntOrPercent
from osb.decide.plan import counted
from osb.facts.pod import PodFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Numbers of pods of one pool.

    `held`: live pods that sandboxes have, get or give back.
    `ready`, `pending`: idle pods, neither terminal nor leaving nor suspect; pending includes creates not seen yet.
    `leaving`: terminating, doomed, evicting, terminal.
    `suspect`: of unknown history, will be recycled.
    `unseen`: creates not observed (open expectations).
    `supply`: pods that waiters miss.
    `rolling`: ready idle pods that a rollout removes in this pass (part of `leaving`).
    """

    held: int = 0
    ready: int = 0
    pending: int = 0
    leaving: int = 0
    suspect: int = 0
    doomed: int = 0  # of `leaving`: those this controller removes, scale-down waits for them
    unseen: int = 0
    supply: int = 0
    rolling: int = 0

    @property
    def schedulable(self) -> int:
        return self.held + self.ready + self.pending

    @property
    def all(self) -> int:
        """What counts against poolMax."""
        return self.schedulable + self.leaving + self.suspect


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The pool's limits, targets already raised by sizing. `room`: what a cap over all pools still allows."""

    target: int
    buffer_max: int
    floor: int
    pool_max: int
    unavailable: IntOrPercent = DEFAULT_UNAVAILABLE
    room: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleDecision:
    """`wanted`: creates before limits. `over_band`, `over_max`: removals before limits."""

    create: int = 0
    delete: int = 0
    spare_pending: int = 0  # how many of the removed may be pending although they could serve a waiter soon
    wanted: int = 0
    over_band: int = 0
    over_max: int = 0
    blocked: str = ""
    at_max: bool = False
    reasons: tuple[str, ...] = ()


def scale(numbers: Numbers, band: Band) -> ScaleDecision:
    """The plan for one pass. Waits (no creates, no removals) while a create is unobserved."""
    n, b = numbers, band
    wanted = max(0, _desired(n, b) - n.schedulable)
    over_band = _over_band(n, b)
    over_max = min(max(0, n.schedulable + n.suspect - b.pool_max), n.ready + n.pending)
    found = ScaleDecision(wanted=wanted, over_band=over_band, over_max=over_max)
    if n.unseen:
        blocked = (
            counted(n.unseen, "create", "is", "are") + " not observed yet" if wanted or over_band or over_max else ""
        )
        return replace(found, blocked=blocked, reasons=(blocked,) if blocked else ())
    if wanted:
        create, reason, at_max = _creates(n, b, wanted)
        if create or not over_max:
            return replace(found, create=create, reasons=(reason,), at_max=at_max)
    return _removals(n, b, found)


def _desired(n: Numbers, b: Band) -> int:
    """Pods wanted in all: held, asked for, and idle ones: those there are, at least up to the lower edge.

    What a rollout removes is replaced inside the band, so that rolling does not shrink the pool.
    """
    idle = max(n.ready, b.target, min(n.ready + n.rolling, b.buffer_max))
    return max(n.held + n.supply + idle, b.floor)


def _over_band(n: Numbers, b: Band) -> int:
    """Idle pods above the upper edge, judged by the ready ones only; the floor stays."""
    high = max(b.buffer_max, b.target)
    if n.ready <= high:
        return 0
    surplus = n.ready + max(n.pending - n.supply, 0) - high
    return max(0, min(surplus, n.schedulable - b.floor))


def _creates(n: Numbers, b: Band, wanted: int) -> tuple[int, str, bool]:
    room = max(0, b.pool_max - n.all)
    count = min(wanted, room)
    if b.room is not None:
        count = min(count, b.room)
    budget = max(0, b.unavailable.resolve(n.schedulable + count) - n.pending)
    create = min(count, budget)
    text = counted(wanted, "more pod", "is", "are") + " wanted"
    if not room:
        why = f"{text}, but all {b.pool_max} of poolMax exist ({n.leaving} of them are leaving)"
    elif not count:
        why = f"{text}, but the cap over all pools is reached"
    elif create < wanted:
        limit = "poolMax" if count < wanted and create == count else "maxUnavailable"
        why = f"{text}; {limit} allows {create} now ({n.pending} are starting)"
    else:
        why = f"{text}: {n.supply} asked for, {n.ready} of {b.target} ready idle"
    return create, why, not room


def _removals(n: Numbers, b: Band, found: ScaleDecision) -> ScaleDecision:
    excess = max(found.over_band, found.over_max)
    if not excess:
        return found
    budget = max(0, b.unavailable.resolve(n.schedulable) - n.doomed)
    delete = min(excess, budget)
    edge = "poolMax" if found.over_max >= found.over_band else "bufferMax"
    reason = f"{excess} idle pods are above {edge}; {delete} go now"
    if not delete:
        reason = f"{excess} idle pods are above {edge}; waiting for {n.doomed} removals to finish"
    spare = n.pending if found.over_max >= delete else max(0, n.pending - n.supply)
    return replace(found, delete=delete, spare_pending=spare, reasons=(reason,))


def usefulness(pod: PodFact, revision: str) -> tuple[object, ...]:
    """Sort key, least useful first: ended, not scheduled, not ready, old revision, more restarts, newest, name."""
    return (
        not pod.terminal,
        bool(pod.scheduled or pod.node),
        pod.ready,
        pod.revision == revision,
        -pod.restarts,
        -pod.created,
        pod.name,
    )


def victims(idle: Iterable[PodFact], count: int, *, revision: str, pending_limit: int | None = None) -> list[PodFact]:
    """The `count` least useful of these idle pods, at most `pending_limit` of them not ready."""
    chosen: list[PodFact] = []
    pending = 0
    for pod in sorted(idle, key=lambda p: usefulness(p, revision)) if count > 0 else ():
        if len(chosen) == count:
            break
        if not pod.ready and pending_limit is not None and pending >= pending_limit:
            continue
        pending += not pod.ready
        chosen.append(pod)
    return chosen
