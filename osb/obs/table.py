"""Every metric, in one table; docs/metrics.md is printed from it, and a test compares the two.

Names of the reference's library are kept with their labels (dashboards exist); ours begin with `opensandbox_`. No
label ever holds the name of a sandbox or a pod. Next stop: `osb.obs.metrics`, which makes and sets them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

KINDS = ("pool", "batchsandbox", "snapshot", "recycle", "tasks")
CONTROLLERS = ("pool", "batchsandbox", "sandboxsnapshot", "recycle", "tasks")
MIRRORED = ("pool", "batchsandbox", "snapshot", "poolpod", "boxpod", "job", "node", "configmap")
WATCHED = MIRRORED

_RECONCILE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_FAST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
_SLOW_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)

OPEN = ()  # a label whose values are not known beforehand (a namespace, a pool, a status code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row. `labels` maps each label to its closed set of values, or to OPEN."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()


def _counter(name: str, help: str, **labels: tuple[str, ...]) -> Metric:
    return Metric(name=name, type="counter", help=help, labels=labels)


def _gauge(name: str, help: str, **labels: tuple[str, ...]) -> Metric:
    return Metric(name=name, type="gauge", help=help, labels=labels)


def _histogram(name: str, help: str, buckets: tuple[float, ...], **labels: tuple[str, ...]) -> Metric:
    return Metric(name=name, type="histogram", help=help, labels=labels, buckets=buckets)


_RECONCILE = (
    _counter(
        "controller_runtime_reconcile_total",
        "Reconciles by outcome",
        controller=CONTROLLERS,
        result=("success", "error", "requeue", "requeue_after"),
    ),
    _counter("controller_runtime_reconcile_errors_total", "Reconciles that failed", controller=CONTROLLERS),
    _counter(
        "controller_runtime_terminal_reconcile_errors_total",
        "Reconciles that stopped until the object changes",
        controller=CONTROLLERS,
    ),
    _counter(
        "controller_runtime_reconcile_panics_total",
        "Reconciles that ended in an unexpected exception",
        controller=CONTROLLERS,
    ),
    _histogram(
        "controller_runtime_reconcile_time_seconds",
        "Duration of reconciles",
        _RECONCILE_SECONDS,
        controller=CONTROLLERS,
    ),
    _gauge("controller_runtime_active_workers", "Reconciles running in this process", controller=CONTROLLERS),
    _gauge("controller_runtime_max_concurrent_reconciles", "Worker slots of this process", controller=CONTROLLERS),
)

_STATE = (
    _gauge("opensandbox_batchsandboxes", "BatchSandboxes by phase", namespace=OPEN, phase=OPEN),
    _gauge(
        "opensandbox_batchsandbox_replicas",
        "Pods of all BatchSandboxes of a namespace; state is desired, current, allocated or ready",
        namespace=OPEN,
        state=OPEN,
    ),
    _gauge(
        "opensandbox_pool_pods",
        "Pods of a pool; state is total, idle, ready, allocated, available, updated, pending or terminating",
        namespace=OPEN,
        pool=OPEN,
        state=OPEN,
    ),
    _gauge(
        "opensandbox_pool_capacity",
        "Limits of a pool; bound is poolMin, poolMax, bufferMin or bufferMax",
        namespace=OPEN,
        pool=OPEN,
        bound=OPEN,
    ),
    _gauge("opensandbox_pool_pending_sandboxes", "Sandboxes in a pool's line", namespace=OPEN, pool=OPEN),
    _gauge("opensandbox_pool_unmet_pods", "Pods that those sandboxes miss", namespace=OPEN, pool=OPEN),
    _histogram(
        "opensandbox_pool_allocation_seconds",
        "BatchSandbox creation to full allocation",
        _SLOW_SECONDS,
        namespace=OPEN,
        pool=OPEN,
    ),
    _counter("opensandbox_snapshots_total", "Snapshots that ended", result=("succeed", "failed")),
    _counter("opensandbox_lost_pods_total", "Delivered pods that were lost", policy=("Replace", "Fail")),
    _counter("opensandbox_expired_total", "Sandboxes deleted at their expireTime"),
    _counter(
        "opensandbox_recycle_total",
        "Pods recycled",
        policy=("Delete", "Restart", "Noop"),
        result=("ok", "retry", "gave_up"),
    ),
    _histogram(
        "opensandbox_recycle_seconds",
        "Release asked for to pod free again or gone",
        _SLOW_SECONDS,
        policy=("Delete", "Restart", "Noop"),
    ),
)

_QUEUE = (
    _gauge(
        "opensandbox_queue_depth",
        "Keys that wait or run, by queue (kind.class): scale workers on this",
        queue=tuple(f"{kind}.{name}" for kind in KINDS for name in ("now", "later")),
    ),
    _gauge(
        "opensandbox_queue_keys",
        "Keys by state",
        kind=KINDS,
        state=("dirty_now", "dirty_later", "running", "due", "quarantined"),
    ),
    _gauge(
        "opensandbox_queue_oldest_seconds",
        "Age of the oldest dirty key",
        queue=tuple(f"{kind}.{name}" for kind in KINDS for name in ("now", "later")),
    ),
    _counter(
        "opensandbox_queue_begin_total",
        "Answers to a worker that wants to start a key; busy is a lock conflict",
        kind=KINDS,
        state=("run", "busy", "clean", "early", "quarantined", "error"),
    ),
    _histogram("opensandbox_queue_wait_seconds", "Dirty to started", _FAST_SECONDS, kind=KINDS),
    _counter(
        "opensandbox_queue_rescued_total",
        "Keys that came back by rescue",
        kind=KINDS,
        what=("lease_expired", "wake_lost", "quarantined"),
    ),
    _counter("opensandbox_queue_hot_keys_total", "Keys that ran over 60 times a minute for nothing", kind=KINDS),
    _counter(
        "opensandbox_ledger_conflicts_total",
        "Ledger operations that were refused",
        cause=("pod_taken", "fenced", "not_ready", "double_claim"),
    ),
    _counter("opensandbox_ledger_rebuilds_total", "Ledgers rebuilt from a live list", result=("ok", "failed")),
    _gauge("opensandbox_ledger_not_ready_pools", "Pools whose ledger waits for its rebuild"),
    _gauge("opensandbox_unreadable_records", "Sandboxes quarantined for their record"),
    _gauge(
        "opensandbox_duty_age_seconds",
        "Since the duty last ran",
        duty=("due", "rescue", "resync", "drift", "trim", "lease"),
    ),
    _counter("opensandbox_drift_total", "Differences between store and cluster that were repaired", kind=MIRRORED),
    _counter("opensandbox_store_errors_total", "Redis calls that failed", operation=OPEN),
    _gauge("opensandbox_store_findings", "Redis settings that are wrong", level=("warning", "error")),
)

_KUBE = (
    _counter("opensandbox_api_requests_total", "Calls to the API server", verb=OPEN, kind=OPEN, code=OPEN),
    _histogram("opensandbox_api_request_seconds", "Duration of those calls", _FAST_SECONDS, verb=OPEN, kind=OPEN),
    _counter("opensandbox_api_throttle_seconds_total", "Time that calls were held back, by 429 or our own limit"),
    _counter("opensandbox_watch_restarts_total", "Watches opened again", kind=WATCHED),
    _counter("opensandbox_watch_relists_total", "Lists made anew", kind=WATCHED),
    _counter("opensandbox_watch_events_total", "Events read, bookmarks included", kind=WATCHED),
    _gauge("opensandbox_watch_age_seconds", "Since the last event, bookmark or list", kind=WATCHED),
    _counter(
        "opensandbox_mirror_puts_total",
        "Objects put into the mirror",
        kind=MIRRORED,
        result=("applied", "old", "retry", "unsynced"),
    ),
    _counter(
        "opensandbox_events_total",
        "Kubernetes Events: written, merged into an earlier one, or dropped",
        result=("written", "merged", "dropped"),
    ),
    _gauge("opensandbox_lease_held", "1 while this installation holds its Lease"),
    _gauge("opensandbox_build_info", "1; the version is the label", version=OPEN),
)

TABLE: tuple[Metric, ...] = (*_RECONCILE, *_STATE, *_QUEUE, *_KUBE)
