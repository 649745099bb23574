"""Set, serve and print the metrics of `osb.obs.table`.

Labels with a closed set of values exist from the start, so that a rate sees 0 instead of nothing. Metrics
live in one process; gauges of the cluster's state are set by whichever process knows it (`replace` swaps a
whole family). Use: `inc`, `observe`, `put`, `replace`; names and labels that are not in the table are errors.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
    start_http_server,
)

from osb.obs.table import TABLE, Metric

REGISTRY = CollectorRegistry(auto_describe=True)
ProcessCollector(registry=REGISTRY)
REGISTRY.register(GC_COLLECTOR)
REGISTRY.register(PLATFORM_COLLECTOR)


def _made(row: Metric) -> Any:
    names = tuple(row.labels)
    if row.type == "histogram":
        made: Any = Histogram(row.name, row.help, names, registry=REGISTRY, buckets=row.buckets)
    else:
        made = (Counter if row.type == "counter" else Gauge)(row.name, row.help, names, registry=REGISTRY)
    if names and all(row.labels.values()):
        for values in itertools.product(*row.labels.values()):
            made.labels(*values)
    return made


_METRICS: dict[str, Any] = {row.name: _made(row) for row in TABLE}


def inc(name: str, value: float = 1, **labels: str) -> None:
    """Add to a counter (or a gauge). KeyError or ValueError for a name or label that is not in the table."""
    _child(name, labels).inc(value)


def put(name: str, value: float, **labels: str) -> None:
    """Set a gauge."""
    _child(name, labels).set(value)


def observe(name: str, value: float, **labels: str) -> None:
    """Add one observation (seconds) to a histogram."""
    _child(name, labels).observe(value)


def replace(name: str, values: Mapping[tuple[str, ...], float]) -> None:
    """Set a whole family of gauges by label values (in table order); what is not named disappears."""
    family = _METRICS[name]
    family.clear()
    for labels, value in values.items():
        family.labels(*labels).set(value)


def api_call(verb: str, kind: str, code: str, seconds: float) -> None:
    """One call to the API server; code "none" when no answer arrived."""
    _METRICS["opensandbox_api_requests_total"].labels(verb, kind, code).inc()
    _METRICS["opensandbox_api_request_seconds"].labels(verb, kind).observe(seconds)


def api_throttled(seconds: float) -> None:
    _METRICS["opensandbox_api_throttle_seconds_total"].inc(seconds)


def value(name: str, **labels: str) -> float:
    """A sample's current value (of a histogram: its count); for tests and `osbctl doctor`."""
    row = next(row for row in TABLE if row.name == name)
    sample = name + ("_count" if row.type == "histogram" else "")
    return REGISTRY.get_sample_value(sample, labels) or 0.0


def text() -> bytes:
    """All metrics in Prometheus' text form."""
    return generate_latest(REGISTRY)


class Server:
    """The running metrics endpoint. `port` is the real one when 0 was asked for."""

    def __init__(self, port: int, address: str) -> None:
        self._server, self._thread = start_http_server(port, addr=address, registry=REGISTRY)
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve(port: int, address: str = "0.0.0.0") -> Server:
    """Serve this process's metrics on /metrics, in a thread. OSError when the port is taken."""
    return Server(port, address)


def render_table() -> str:
    """The table as Markdown, the content of docs/metrics.md."""
    lines = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    lines += [f"| `{row.name}` | {row.type} | {_labels(row)} | {row.help} |" for row in TABLE]
    return "\n".join(lines) + "\n"


def _labels(row: Metric) -> str:
    return ", ".join(
        f"`{label}`" + (f" ({len(values)} values)" if len(values) > 8 else f" = {', '.join(values)}" if values else "")
        for label, values in row.labels.items()
    )


def _child(name: str, labels: Mapping[str, str]) -> Any:
    metric = _METRICS[name]
    return metric.labels(**labels) if labels else metric
