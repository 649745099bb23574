"""Which Celery queues exist: two per kind, so that a restart never delays a user, and one each for slow work.

Next: `workers.app` declares them; people scale workers by naming them after `-Q`.
"""

from __future__ import annotations

from osb.api.key import BATCHSANDBOX, POOL, RECYCLE, SNAPSHOT, TASKS

SPLIT = (POOL, BATCHSANDBOX, SNAPSHOT)
"""Kinds with a *now* queue (events, manual, deletion) and a *later* queue (sweep, initial list, refill)."""

SINGLE = (RECYCLE, TASKS)
"""Kinds with one queue: restart execs and executor polling."""


def queue_name(kind: str, cls: str = "now") -> str:
    """The Celery queue of a kind and class: `osb.pool.now`, `osb.tasks`."""
    return f"osb.{kind}.{cls}" if kind in SPLIT else f"osb.{kind}"


def all_queues() -> tuple[str, ...]:
    """Every queue, *now* before *later*: the order in which a worker that serves all should take them."""
    now = [queue_name(kind) for kind in SPLIT] + [queue_name(kind) for kind in SINGLE]
    return tuple(now + [queue_name(kind, "later") for kind in SPLIT])
