"""Which idle pods of an old revision are replaced now, and which revision is the current one (spec/pool.md 8).

Held pods are never touched; they are replaced after their release. Next: `osb.decide.pool` dooms what is
named here and counts as many replacements as supply.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from osb.api.intorstring import IntOrPercent
from osb.decide.scale import usefulness
from osb.facts.pod import PodFact


@dataclass(frozen=True, slots=True)
class Rollout:
    """Which idle pods go now, and how far the rollout is.

    `replace`: idle pods to remove now, least useful first.
    `old`: number of pods of another revision, held ones included.
    """

    replace: tuple[PodFact, ...] = ()
    old: int = 0
    updated: int = 0
    reasons: tuple[str, ...] = ()


def rollout(
    idle: Iterable[PodFact],
    held: Iterable[PodFact],
    *,
    revision: str,
    unavailable: IntOrPercent,
    gone_soon: int,
    may_remove_pending: int,
) -> Rollout:
    """Ready old pods go within the budget, not-ready old ones within `may_remove_pending` (the scale budget).

    The budget's base is all schedulable pods. Idle pods that are not ready count as unavailable, and so do
    those already on their way out (`gone_soon`, with their replacements not there yet). A crashed pod of a
    tenant does not.
    """
    idle = list(idle)
    held = list(held)
    old_idle = sorted((p for p in idle if p.revision != revision), key=lambda p: usefulness(p, revision))
    old_held = sum(p.revision != revision for p in held)
    old = len(old_idle) + old_held
    updated = len(idle) + len(held) - old
    if not old_idle:
        return Rollout((), old, updated)
    base = len(idle) + len(held)
    budget = max(0, unavailable.resolve(base) - sum(not p.ready for p in idle) - gone_soon)
    pending = [p for p in old_idle if not p.ready][: max(0, may_remove_pending)]
    ready = [p for p in old_idle if p.ready][:budget]
    text = f"{len(old_idle)} idle pods are of an old revision; {len(pending) + len(ready)} are replaced now"
    return Rollout((*pending, *ready), old, updated, (text,))
