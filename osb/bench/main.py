"""`osbctl bench`: choose rows and cluster, measure, print.

Exit codes: 0 all goals met, 1 something was missed or could not be measured, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from osb.bench import measure_faults, measure_latency, measure_load, measure_restart, measure_scale, plan, report
from osb.bench.goals import ROWS, Result
from osb.bench.measure import Bench
from osb.bench.plan import Plan
from osb.bench.plane import assets
from osb.bench.rig import Rig, running
from osb.bench.usage import load_average
from osb.errors import ConfigError, OsbError
from osb.obs import log

MEASURES: dict[str, Callable[[Bench], None]] = {
    "single": measure_latency.single,
    "batch": measure_latency.batch,
    "waiting": measure_load.waiting,
    "poisson": measure_latency.poisson,
    "events": measure_latency.events,
    "kill": measure_faults.kill,
    "sizes": measure_scale.sizes,
    "full": measure_scale.full,
    "memory": measure_scale.memory,
    "cold": measure_restart.cold,
    "empty": measure_restart.empty,
}


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one cluster gave: its results, the load before, and what could not be measured."""

    cluster: str
    results: list[Result]
    load: float
    failed: list[str]


def run(argv: Sequence[str]) -> int:
    """Measure and print; the exit code."""
    try:
        chosen = _arguments(argv)
    except SystemExit as end:  # argparse has said what is wrong, or printed the help
        return int(end.code or 0)
    log.set_level(log.level_of("error"))
    say = _quiet if chosen.output == "json" else _say
    outcomes = []
    for cluster in _clusters(chosen.cluster):
        try:
            outcomes.append(_measure(cluster, chosen, say))
        except OsbError as error:
            sys.stderr.write(f"{cluster}: {error}\n")
            return 1
    if chosen.output == "json":
        _say(orjson.dumps([_export(one) for one in outcomes], option=orjson.OPT_INDENT_2).decode())
    return int(any(one.failed or not all(r.met for r in one.results) for one in outcomes))


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="osbctl bench",
        description="Measure on a cluster: Redis, watcher, workers and beat are started for it.",
        epilog="Example: osbctl bench --cluster sim --quick --rows single,batch",
    )
    parser.add_argument(
        "--cluster", default="",
        help="sim, real (KUBEBUILDER_ASSETS), both, or a kubeconfig; default: what there is of both",
    )  # fmt: skip
    parser.add_argument("--rows", type=_rows, default=list(MEASURES), help=f"some of {', '.join(MEASURES)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, about two minutes for each cluster")
    parser.add_argument("--pods", type=int, default=0, help="size of the large pool (default 10000, quick 1000)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument("--keep", type=Path, help="folder for logs and marks, kept afterwards")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args(list(argv))


def _rows(text: str) -> list[str]:
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [row for row in wanted if row not in MEASURES]
    if unknown or not wanted:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown) or 'nothing'}: some of {', '.join(MEASURES)} is accepted"
        )
    return [row for row in MEASURES if row in wanted]


def _clusters(text: str) -> list[str]:
    if text in ("", "both"):
        try:
            assets()
        except ConfigError as error:
            if text:
                raise SystemExit(str(error)) from error
            _quiet(f"only the simulated cluster: {error}")
            return ["sim"]
        return ["sim", "real"]
    return [text]


def _measure(cluster: str, chosen: argparse.Namespace, say: Callable[[str], None]) -> _Outcome:
    sizes = _plan(chosen)
    load = load_average()
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="osb-bench-") as temporary:
        folder = (chosen.keep or Path(temporary)) / time.strftime(f"{Path(cluster).name}-%m%d-%H%M%S")
        with running(Rig(cluster, folder, workers=chosen.workers, say=say)) as rig:
            bench = Bench(rig, sizes, say)
            for row in chosen.rows:
                _row(bench, row, failed)
            bench.add("double", float(len(rig.observer.twice)), pods=sorted(rig.observer.twice)[:10] or "none")
            if crashes := rig.crashes():
                failed.append(f"anything rightly: {crashes} reconciles crashed; --keep DIR keeps the workers' logs")
    outcome = _Outcome(cluster, bench.results, load, failed)
    for line in report.lines(cluster, bench.results, load=load, sizes=_sizes(sizes)):
        say(line)
    for line in failed:
        say(f"  NOT MEASURED {line}")
    return outcome


def _row(bench: Bench, row: str, failed: list[str]) -> None:
    """One row; when it cannot be measured the others still are."""
    bench.say(f"measuring {row} ...")
    started = time.monotonic()
    try:
        MEASURES[row](bench)
    except (OsbError, KeyError, ValueError) as error:
        failed.append(f"{row}: {error!r}")
        bench.say(f"  could not be measured: {error}")
    bench.say(f"  {row} took {time.monotonic() - started:.0f} s")


def _plan(chosen: argparse.Namespace) -> Plan:
    make = plan.quick if chosen.quick else plan.full
    return make(large=chosen.pods) if chosen.pods else make()


def _sizes(sizes: Plan) -> str:
    return f"warm pool {sizes.warm}, large pool {sizes.large}"


def _export(outcome: _Outcome) -> dict[str, Any]:
    return {**report.exported(outcome.cluster, outcome.results, load=outcome.load), "notMeasured": outcome.failed}


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _quiet(line: str) -> None:
    sys.stderr.write(line + "\n")


__all__ = ["MEASURES", "ROWS", "run"]
