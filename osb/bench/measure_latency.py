"""Rows of latency: single sandboxes, batches, Poisson arrivals, events on many keys."""

from __future__ import annotations

import random
import time

from osb.api import names
from osb.bench import stages
from osb.bench.measure import Bench, shown
from osb.bench.numbers import clusters, percentile, poisson_times, spread
from osb.bench.plan import ARRIVALS
from osb.bench.rig import SPACE

PAUSE = 0.1  # seconds between single sandboxes
SLOW = 50.0  # ms: what counts as a slow sample
GAP = 0.3  # seconds between slow samples of one cluster


def single(bench: Bench) -> None:
    """One sandbox at a time on an idle system."""
    bench.warm()
    boxes = bench.names("s", bench.plan.singles)
    calls, values, cpu = [], [], dict[str, float]()
    (first,) = bench.names("w", 1)
    bench.one(first)
    with bench.cpu(cpu):
        for name in boxes:
            call, took = bench.one(name)
            calls.append(call)
            values.append(took)
            time.sleep(PAUSE)
    posts = spread([(call[2] - call[1]) / 1e6 for call in calls])
    found = spread(values)
    each = {name: f"{seconds / len(boxes) * 1000:.1f}" for name, seconds in cpu.items()}
    bench.add(
        "single-p50", found.p50, max=round(found.most, 1), post_p50=round(posts.p50, 1),
        causes_ms_p50_p99=shown(bench.causes(calls)), cpu_ms_each=each,
    )  # fmt: skip
    bench.add("single-p99", found.p99, samples=found.count, post_p99=round(posts.p99, 1))
    bench.drop([first, *boxes])


def batch(bench: Bench) -> None:
    """Batches of many, one after another, and the API writes that each cost."""
    bench.warm()
    boxes = bench.names("b", bench.plan.batches)
    calls, values = [], []
    per_round = max(1, bench.plan.warm // bench.plan.batch_size)
    for start in range(0, len(boxes), per_round):
        part = boxes[start : start + per_round]
        for name in part:
            call, took = bench.one(name, replicas=bench.plan.batch_size)
            calls.append(call)
            values.append(took)
            time.sleep(0.5)
        bench.rig.observer.finished(part, seconds=10)
        time.sleep(1.5)  # a later, needless write would show in this time
        bench.drop(part)
        bench.warm()
    found = spread(values)
    writes = [float(bench.rig.observer.seen[name].writes) for name in boxes]
    bench.add("batch", found.p50, max=round(found.most, 1), causes_ms_p50_p99=shown(bench.causes(calls)))
    bench.add("writes", percentile(writes, 0.5), max=max(writes))


def poisson(bench: Bench) -> None:
    """Arrivals at random times, as many users make them."""
    bench.warm()
    seconds = bench.plan.poisson_seconds
    draws = [random.expovariate(1.0) for _ in range(int(seconds * ARRIVALS * 1.5) + 50)]
    offsets = poisson_times(ARRIVALS, seconds, draws)[: bench.plan.warm]
    boxes = bench.names("p", len(offsets))
    cpu: dict[str, float] = {}
    with bench.cpu(cpu):
        calls = bench.create(boxes, offsets=offsets, threads=16)
        bench.served(boxes)
    values = [bench.latency(call) for call in calls]
    found = spread(values)
    start = calls[0][1]
    slow = clusters([((c[1] - start) / 1e9, v) for c, v in zip(calls, values, strict=True)], slow=SLOW, gap=GAP)
    worst = [f"{one.count} in {one.length:.2f} s, up to {one.most:.0f} ms" for one in slow[:1]]
    bench.add(
        "poisson-p50", found.p50, sandboxes=found.count, seconds=seconds, causes_ms_p50_p99=shown(bench.causes(calls)),
        cpu_cores={name: round(used / seconds, 2) for name, used in cpu.items()},
    )  # fmt: skip
    bench.add("poisson-p99", found.p99, max=round(found.most, 1), worst_cluster=worst or "none above 50 ms")
    bench.drop(boxes)


def events(bench: Bench) -> None:
    """Annotation changes on many sandboxes without pods: from the watcher's sight of one to the start of its run."""
    plan = bench.plan
    boxes = bench.names("e", plan.event_keys)
    bench.create(boxes, pool="", replicas=0)
    time.sleep(3.0)
    count = int(plan.event_rate * plan.event_seconds)
    offsets = [number / plan.event_rate for number in range(count)]
    chosen = [boxes[number % len(boxes)] for number in range(count)]
    start = time.monotonic_ns()
    answer = bench.rig.load(
        do="annotate", namespace=SPACE, names=chosen, offsets=offsets, threads=24, annotation=names.ASSIGN_PROFILE
    )
    time.sleep(1.0)
    took = (max(call[2] for call in answer["calls"]) - start) / 1e9
    trace = stages.read(bench.rig.traces, since=start)
    waits: list[float] = []
    for name in boxes:
        begins = [m.at for m in trace.all("begin", f"batchsandbox/{SPACE}/{name}")]
        for seen in trace.all("seen", f"{SPACE}/{name}"):
            later = [at for at in begins if at >= seen.at]
            if later:
                waits.append((min(later) - seen.at) / 1e6)
    found = spread(waits)
    bench.add("events", found.p99, p50=round(found.p50, 1), max=round(found.most, 1), events=found.count,
              reached_per_s=round(count / took))  # fmt: skip
    bench.drop(boxes)
