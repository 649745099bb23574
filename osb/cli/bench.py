"""`osbctl bench`: measure what docs/performance.md lists. All arguments go to `osb.bench.main`."""

from __future__ import annotations

import typer

from osb.cli.context import quit_with
from osb.cli.programs import program

EXAMPLE = "Example: osbctl bench --help"


def bench(context: typer.Context) -> None:
    """Measure throughput and latency, with the bare cost of the same writes beside them."""
    quit_with(int(program("osb.bench.main", "run", what="the benchmark")(context.args) or 0))
