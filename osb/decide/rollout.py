"""Which idle pods of an old revision are replaced now, and which revision is the current one (spec/pool.md
8).

Held pods are never touched; they are replaced after their release. Next: `osb.decide.pool` dooms what is
named here and counts as many replacements as supply.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from osb.api import names
from osb.api.intorstring import IntOrPercent
from osb.api.pool import PoolSpec
from osb.api.revision import revision as own_revision
from osb.decide.scale import usefulness
from osb.facts.pod import PodFact


@dataclass(frozen=True, slots=True)
class Current:
    """`adopt`: text for the `adopted-revision` annotation that keeps a taken-over revision, None when kept
    already.
    """

    revision: str
    adopt: str | None = None


def current_revision(pool: PoolSpec) -> Current:
    """Our hash of the template, or the reference's for the same template (spec/operations.md 13.8).

    A pool that the reference controller served last says so: its status belongs to this generation and names
    another revision. That one stays current until the template changes, so that taking over rolls nothing.
    """
    own = own_revision(pool.template)
    kept = _kept(pool.annotations.get(names.ADOPTED_REVISION))
    if kept is not None and kept[0] == own:
        return Current(kept[1])
    stored = pool.status.get("revision")
    same_generation = pool.generation > 0 and pool.status.get("observedGeneration") == pool.generation
    if not isinstance(stored, str) or not stored or stored == own or not same_generation:
        return Current(own)
    adopt = orjson.dumps({"template": own, "revision": stored}).decode()
    return Current(stored, adopt)


def _kept(text: str | None) -> tuple[str, str] | None:
    """(our hash, adopted revision) of the annotation; None when absent or not readable (a hint only)."""
    if not text:
        return None
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(data, dict):
        return None
    template, revision = data.get("template"), data.get("revision")
    return (template, revision) if isinstance(template, str) and isinstance(revision, str) else None


@dataclass(frozen=True, slots=True)
class Rollout:
    """`replace`: idle pods to remove now, least useful first. `old`: pods of another revision, held ones
    included.
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

    The budget's base is all schedulable pods; idle pods that are not ready and those already on their way out
    (`gone_soon`, with their replacements not there yet) count as unavailable. A crashed pod of a tenant does
    not.
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
