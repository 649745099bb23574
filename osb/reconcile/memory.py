"""What a pool's passes remember between them (back-offs, failures in a row, demand), in Redis; defaults when lost.

Demand costs the hot path nothing: the ledger numbers its grants, so the difference of two readings of that number is
what was handed out in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from statistics import median
from typing import Any

from osb.api.pool import PoolSpec
from osb.api.times import to_ms
from osb.facts.pod import PodFact
from osb.facts.poolview import Memory
from osb.reconcile.world import Pass

SAMPLES = "grant_samples"
LEAD_PODS = 20  # newest Ready pods whose start is measured
KEEP = 120  # readings of the grant number

_MEMBERS = frozenset(field.name for field in fields(Memory))


def recall(p: Pass, pool: PoolSpec) -> Memory:
    """The pool's memory; members of another release are left out."""
    known = {name: value for name, value in p.store.memories.recall(pool.uid).items() if name in _MEMBERS}
    return Memory(**known)


def remember(p: Pass, uid: str, values: Mapping[str, Any]) -> None:
    if values:
        p.store.memories.keep(uid, values)


def with_demand(p: Pass, pool: PoolSpec, known: Memory, *, seq: int, unmet: int, pods: Iterable[PodFact]) -> Memory:
    """`known` with pods granted or missing per second, and the median start time.

    Unchanged unless the pool sizes by demand (spec/additions.md 4).
    """
    if pool.sizing.demand is None:
        return known
    now_ms = to_ms(p.now())
    window_ms = pool.sizing.demand.window * 1000
    stored = p.store.memories.recall(pool.uid).get(SAMPLES) or []
    kept = [[at, n] for at, n in stored if now_ms - window_ms <= at <= now_ms and n <= seq]
    if not kept or now_ms - kept[-1][0] >= window_ms / KEEP:
        remember(p, pool.uid, {SAMPLES: [*kept, [now_ms, seq]]})
    granted = seq - kept[0][1] if kept else 0
    return replace(
        known,
        granted_per_second=(granted + unmet) / pool.sizing.demand.window,
        lead_seconds=lead_seconds(list(pods)),
    )


def lead_seconds(pods: Sequence[PodFact]) -> float | None:
    """Median create-to-Ready time of the newest pods that became Ready once; None while there are none."""
    starts = sorted((pod for pod in pods if pod.ready and not pod.restarts), key=lambda pod: -pod.created)[:LEAD_PODS]
    found = [max(0, pod.ready_since - pod.created) / 1000 for pod in starts]
    return median(found) if found else None
