"""The metrics table is the interface: documented, complete from the start, and served."""

from __future__ import annotations

import itertools
import urllib.request
from pathlib import Path

import pytest

from osb.obs import metrics
from osb.obs.table import TABLE

REFERENCE = {
    "controller_runtime_reconcile_total": ("controller", "result"),
    "controller_runtime_reconcile_errors_total": ("controller",),
    "controller_runtime_reconcile_time_seconds": ("controller",),
    "opensandbox_batchsandboxes": ("namespace", "phase"),
    "opensandbox_batchsandbox_replicas": ("namespace", "state"),
    "opensandbox_pool_pods": ("namespace", "pool", "state"),
    "opensandbox_pool_capacity": ("namespace", "pool", "bound"),
    "opensandbox_pool_pending_sandboxes": ("namespace", "pool"),
    "opensandbox_pool_allocation_seconds": ("namespace", "pool"),
    "opensandbox_snapshots_total": ("result",),
    "opensandbox_queue_depth": ("queue",),
    "opensandbox_watch_restarts_total": ("kind",),
    "opensandbox_api_throttle_seconds_total": (),
}


def test_the_documentation_page_is_the_table():
    page = Path(__file__).parent.parent.parent / "docs" / "metrics.md"
    assert metrics.render_table() in page.read_text()


@pytest.mark.parametrize("name", REFERENCE)
def test_names_that_dashboards_use_are_there_with_their_labels(name):
    row = next(row for row in TABLE if row.name == name)
    assert tuple(row.labels) == REFERENCE[name]


def test_no_label_can_name_a_sandbox_or_a_pod():
    labels = {label for row in TABLE for label in row.labels}
    assert not labels & {"sandbox", "batchsandbox", "pod", "name", "uid", "key", "id"}


def test_closed_label_combinations_exist_from_the_start():
    text = metrics.text().decode()
    for row in TABLE:
        if row.labels and all(row.labels.values()):
            for values in itertools.product(*row.labels.values()):
                pairs = ",".join(f'{name}="{value}"' for name, value in zip(row.labels, values, strict=True))
                assert pairs in text, (row.name, pairs)


def test_what_is_not_in_the_table_cannot_be_counted():
    with pytest.raises(KeyError):
        metrics.inc("opensandbox_made_up_total")
    with pytest.raises(ValueError):
        metrics.inc("opensandbox_snapshots_total", sandbox="b7")


def test_a_replaced_family_forgets_what_is_gone():
    metrics.replace("opensandbox_pool_pods", {("n", "old", "total"): 3})
    metrics.replace("opensandbox_pool_pods", {("n", "new", "total"): 4})
    assert 'pool="old"' not in metrics.text().decode()
    assert metrics.value("opensandbox_pool_pods", namespace="n", pool="new", state="total") == 4


def test_pool_state_demand_latency_recycling_and_conflicts_are_all_told():
    names = {row.name for row in TABLE}
    assert names >= {
        "opensandbox_pool_pods",
        "opensandbox_pool_unmet_pods",
        "opensandbox_pool_allocation_seconds",
        "opensandbox_recycle_total",
        "opensandbox_recycle_seconds",
        "opensandbox_ledger_conflicts_total",
    }


def test_metrics_are_served_over_http():
    server = metrics.serve(0, "127.0.0.1")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as answer:
            assert b"opensandbox_queue_depth" in answer.read()
    finally:
        server.close()
