"""The row of faults: kill -9 of every process of ours, one after another, while sandboxes keep coming."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import Any

from osb.bench.measure import Bench
from osb.bench.numbers import spread

SETTLE = 8.0  # seconds from one kill to the next


def kill(bench: Bench) -> None:
    """A short run; the fault tests are longer. Every sandbox must be served, no pod twice, all within 20 s."""
    bench.warm()
    supervisor = bench.rig.everything.supervisor
    victims = [one.program.name for one in supervisor.running if one.program.name != "cluster"] * bench.plan.kills
    random.shuffle(victims)
    seconds = len(victims) * SETTLE + 4
    count = min(int(seconds * bench.plan.kill_rate), bench.plan.warm)
    boxes = bench.names("k", count)
    offsets = [number / bench.plan.kill_rate for number in range(count)]
    calls: list[list[Any]] = []
    load = threading.Thread(target=lambda: calls.extend(bench.create(boxes, offsets=offsets, threads=8)))
    load.start()
    for victim in victims:
        _run(bench, SETTLE * random.uniform(0.7, 1.0))
        for one in supervisor.running:
            if one.program.name == victim and one.alive:
                os.kill(one.pid, signal.SIGKILL)
    while load.is_alive():
        _run(bench, 0.5)
    load.join()
    end = time.monotonic() + 45
    while not bench.rig.observer.delivered(boxes, seconds=0.2) and time.monotonic() < end:
        supervisor.watch()
    lost = [name for name in boxes if not _delivered(bench, name)]
    waits = [bench.latency(call) / 1000 for call in calls if _delivered(bench, call[0])]
    bench.add("kill-lost", float(len(lost)), killed=victims, sandboxes=count)
    bench.add("kill-again", max(waits), p99=round(spread(waits).p99, 2))
    bench.drop(boxes)


def _delivered(bench: Bench, name: str) -> bool:
    one = bench.rig.observer.seen.get(name)
    return one is not None and bool(one.delivered)


def _run(bench: Bench, seconds: float) -> None:
    """Let time pass; what was killed starts again as under a supervisor."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        bench.rig.everything.watch()
        time.sleep(0.05)
