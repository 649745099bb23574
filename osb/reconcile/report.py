"""What passes say of themselves: metrics of reconciles and of the queue. The table is `osb.obs.metrics`."""

from __future__ import annotations

from osb.obs import metrics
from osb.reconcile.contract import After, Outcome, Retry, Stop
from osb.store.queue import QueueStats


def began(kind: str, state: str, waited_ms: int) -> None:
    """An answer of `begin`."""
    metrics.inc("opensandbox_queue_begin_total", kind=kind, state=state)
    if state == "run":
        metrics.observe("opensandbox_queue_wait_seconds", waited_ms / 1000, kind=kind)


def finished(kind: str, outcome: Outcome, took: float) -> None:
    """A reconcile ended; the names are those of existing dashboards."""
    name = "sandboxsnapshot" if kind == "snapshot" else kind
    result = "requeue_after" if isinstance(outcome, After) else "error" if isinstance(outcome, Retry) else "success"
    metrics.inc("controller_runtime_reconcile_total", controller=name, result=result)
    metrics.observe("controller_runtime_reconcile_time_seconds", took, controller=name)
    if isinstance(outcome, Retry):
        metrics.inc("controller_runtime_reconcile_errors_total", controller=name)
    if isinstance(outcome, Stop):
        metrics.inc("controller_runtime_terminal_reconcile_errors_total", controller=name)


def crashed(kind: str) -> None:
    name = "sandboxsnapshot" if kind == "snapshot" else kind
    metrics.inc("controller_runtime_reconcile_panics_total", controller=name)


def queue(kind: str, stats: QueueStats) -> None:
    """Sizes and ages, for autoscaling and alarms (spec/pitfalls.md 36)."""
    sizes = {
        "dirty_now": stats.dirty_now, "dirty_later": stats.dirty_later, "running": stats.running,
        "due": stats.due, "quarantined": stats.quarantined,
    }  # fmt: skip
    for state, value in sizes.items():
        metrics.put("opensandbox_queue_keys", value, kind=kind, state=state)
    for cls, dirty, oldest in (
        ("now", stats.dirty_now + stats.running, stats.oldest_ms_now),
        ("later", stats.dirty_later, stats.oldest_ms_later),
    ):
        metrics.put("opensandbox_queue_depth", dirty, queue=f"{kind}.{cls}")
        metrics.put("opensandbox_queue_oldest_seconds", (oldest or 0) / 1000, queue=f"{kind}.{cls}")
