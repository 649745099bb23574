"""The row of throughput: many batches of one that wait, beside the bare cost of the same writes.

Bare and ours take turns, and medians are compared: what a write costs on a shared machine moves by half within an
hour. Bare writes go to sandboxes in a namespace that the controller does not watch.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from osb.api import names
from osb.bench.measure import WARM, Bench
from osb.bench.numbers import median
from osb.bench.rig import BARE, SPACE
from osb.errors import ConfigError

QUIET = 1.5  # seconds without a write: the held pool has said all it has to say


def waiting(bench: Bench) -> None:
    """The pool is held while the sandboxes are made, so that all of them wait; then it is let go."""
    count = bench.plan.waiting
    bare, ours = [], []
    cpu: dict[str, float] = {}
    bare_cpu: dict[str, float] = {}
    calls: dict[str, float] = {}
    for _ in range(bench.plan.waiting_rounds):
        bench.warm()
        bare.append(_bare(bench, bench.names("bare", count), bare_cpu))
        ours.append(_ours(bench, count, cpu, calls))
    rate, limit = median(ours), median(bare)
    bench.add(
        "waiting", 100 * rate / limit, sandboxes=count, ours_per_s=_whole(ours), bare_pairs_per_s=_whole(bare),
        cpu_ms_each=_each(cpu, count), bare_cpu_ms_each=_each(bare_cpu, count),
        api_calls={name: round(n) for name, n in calls.items() if n > count / 100},
    )  # fmt: skip


def _bare(bench: Bench, plain: Sequence[str], cpu: dict[str, float]) -> float:
    bench.rig.load(do="make", namespace=BARE, names=list(plain))
    with bench.cpu(cpu):
        answer = bench.rig.load(do="bare", namespace=BARE, names=list(plain), threads=8)
    bench.rig.load(do="unmake", namespace=BARE, names=list(plain))
    if answer["errors"]:
        raise ConfigError(f"{answer['errors']} bare writes failed; see the load generator's log")
    return _rate(answer["calls"])


def _ours(bench: Bench, count: int, cpu: dict[str, float], calls: dict[str, float]) -> float:
    boxes = bench.names("m", count)
    _hold(bench, "true")
    bench.create(boxes)
    _until_quiet(bench, boxes)
    with bench.calls(calls), bench.cpu(cpu):
        start = time.monotonic_ns()
        _hold(bench, None)
        done = bench.rig.observer.finished(boxes, seconds=120)
    if not done:
        raise ConfigError("waiting sandboxes were not served in time; see the workers' logs")
    seen = [bench.rig.observer.seen[name] for name in boxes]
    rate = count / ((max(max(one.delivered, one.status) for one in seen) - start) / 1e9)
    bench.drop(boxes)
    return rate


def _each(cpu: dict[str, float], count: int) -> dict[str, float]:
    """CPU milliseconds per sandbox, of the last round."""
    return {name: round(seconds / count * 1000, 2) for name, seconds in cpu.items() if seconds / count > 1e-5}


def _hold(bench: Bench, value: str | None) -> None:
    bench.rig.kube.patch("pool", SPACE, WARM, {"metadata": {"annotations": {names.HOLD: value}}})


def _until_quiet(bench: Bench, boxes: Sequence[str]) -> None:
    observer = bench.rig.observer

    def written() -> int:
        return sum(one.writes for name in boxes if (one := observer.seen.get(name)) is not None)

    end = time.monotonic() + 60
    last, since = -1, time.monotonic()
    while time.monotonic() - since < QUIET and time.monotonic() < end:
        now = written()
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.1)


def _rate(calls: Sequence[Sequence[Any]]) -> float:
    took = max(int(call[2]) for call in calls) - min(int(call[1]) for call in calls)
    return len(calls) / (took / 1e9)


def _whole(values: Sequence[float]) -> list[int]:
    return [round(value) for value in values]
