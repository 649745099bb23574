"""A thousand running tasks behind one executor process: what the workers cost, and how soon an end is shown.

Measured, not timed into flakiness: run with `pytest -m bench -s`; the goals are printed beside the numbers.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from tests.acceptance.test_tasks import counts, fake, task
from tests.doubles.cluster import Space, ready
from tests.doubles.controller import Controller
from tests.doubles.executors import Executors, executors

TASKS = int(os.environ.get("OSB_BENCH_TASKS", "1000"))
SECONDS = 20.0  # of the quiet measurement, and over which the tasks of the second half end
CPU_GOAL, SHOWN_GOAL = 0.25, 4.0  # cores of all workers together; seconds at p99


def cpu(controller: Controller) -> float:
    """CPU seconds of all workers so far."""
    ticks = 0
    for name, process in controller.processes.items():
        if name.startswith("worker"):
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


@pytest.mark.bench
@pytest.mark.timeout(600)
@pytest.mark.parametrize("boxes", [1, 10], ids=["one batch", "ten batches"])
def test_a_thousand_tasks_are_cheap_to_watch_and_quick_to_show(
    space: Space, controller: Controller, tmp_path: Path, boxes: int
) -> None:
    each = TASKS // boxes
    with executors(space, tmp_path, kind_of=lambda pod: "fake") as runs:
        space.pool("warm", TASKS, TASKS + 50, 0, TASKS + 50, recycleStrategy={"type": "Noop"})
        space.until("warm", lambda: sum(ready(p) for p in space.all("pod")) >= TASKS, seconds=180)
        space.until("executors listen", lambda: len(runs.on) >= TASKS, seconds=60)
        quiet, polls = measure_quiet(space, controller, runs, boxes=boxes, each=each)
        shown = measure_ends(space, runs, boxes=boxes, each=each)
    print(
        f"\n{TASKS} tasks in {boxes} batches: workers {quiet * 100:.0f} % of a core (goal {CPU_GOAL * 100:.0f} %) "
        f"for {polls:.0f} polls/s; "
        f"end to status p50 {shown[len(shown) // 2]:.2f} s, p99 {shown[int(len(shown) * 0.99)]:.2f} s "
        f"(goal {SHOWN_GOAL:g} s)"
    )
    assert len(shown) == each * boxes


def measure_quiet(
    space: Space, controller: Controller, runs: Executors, *, boxes: int, each: int
) -> tuple[float, float]:
    """Cores that the workers use, and polls a second, while all tasks run and nothing changes."""
    for at in range(boxes):
        space.box(f"quiet-{at}", each, taskTemplate=task(fake(3600)))
    for at in range(boxes):
        space.until_box(f"quiet-{at}", lambda b: counts(b)[0] == each, seconds=120)
    rest = threading.Event()
    rest.wait(3)
    before, polls = cpu(controller), runs.polls
    rest.wait(SECONDS)
    used, asked = (cpu(controller) - before) / SECONDS, (runs.polls - polls) / SECONDS
    for at in range(boxes):
        space.delete("batchsandbox", f"quiet-{at}")
    space.gone("batchsandbox", seconds=90)
    return used, asked


def measure_ends(space: Space, runs: Executors, *, boxes: int, each: int) -> list[float]:
    """Seconds from the end of each task to the status that counts it, sorted."""
    rng = random.Random(1)
    names = [f"ends-{at}" for at in range(boxes)]
    for name in names:
        lasts = [rng.uniform(5, 5 + SECONDS) for _ in range(each)]
        patches = [{"spec": {"process": fake(seconds)}} for seconds in lasts]
        space.box(name, each, taskTemplate=task(fake()), shardTaskPatches=patches)
    for name in names:
        space.until_box(name, lambda b: counts(b)[1] == each, seconds=120)
    return sorted(late for name in names for late in _lateness(space, runs, name))


def _lateness(space: Space, runs: Executors, name: str) -> list[float]:
    """The k-th end against the first status with k succeeded tasks."""
    ends = sorted(end for one, end in runs.ends.items() if one.startswith(f"{name}-"))
    told = [(seen.at, counts(seen.obj)[1]) for seen in space.history("batchsandbox", name)]
    return [next(at for at, count in told if count >= k) - end for k, end in enumerate(ends, 1)]
