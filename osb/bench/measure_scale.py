"""Rows of size: cost per allocation by pool size, the full pass, memory."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass

from osb.api.key import POOL, Key
from osb.bench import stages
from osb.bench.measure import Bench
from osb.bench.numbers import median
from osb.bench.rig import SPACE
from osb.decide import pool as decision
from osb.errors import ConfigError
from osb.obs.deadline import Deadline
from osb.reconcile import poolload, poolpass
from osb.reconcile.world import Pass, make_world

PAUSE = 0.05


def pool_of(size: int) -> str:
    return f"p{size}"


def pool_with(bench: Bench, size: int) -> str:
    name = pool_of(size)
    started = time.monotonic()
    bench.rig.pool(name, size, seconds=60 + size / 20)
    took = time.monotonic() - started
    if took > 1:
        bench.say(f"  {size} pods ready after {took:.0f} s")
    return name


@dataclass(frozen=True, slots=True)
class _Cost:
    """Medians in ms: from begin until the ledger has the pods, the worker's CPU of it, create → endpoints."""

    wall: float
    cpu: float
    latency: float


def sizes(bench: Bench) -> None:
    """What serving one sandbox costs before its writes: begin, load, decide, ledger."""
    found = {size: _cost(bench, pool_with(bench, size)) for size in bench.plan.sizes}
    smallest, largest = min(found), max(found)
    table = {str(size): f"{c.wall:.2f} ms ({c.cpu:.2f} CPU), {c.latency:.1f} ms in all" for size, c in found.items()}
    ratio = found[largest].wall / found[smallest].wall
    cpu = found[largest].cpu / found[smallest].cpu
    bench.add("sizes", ratio, by_pool_size=table, cpu_ratio=round(cpu, 2), largest=largest)


def _cost(bench: Bench, pool: str) -> _Cost:
    boxes = bench.names(f"z{pool}", bench.plan.per_size)
    start = time.monotonic_ns()
    latencies = []
    for name in boxes:
        latencies.append(bench.one(name, pool=pool)[1])
        time.sleep(PAUSE)
    trace = stages.read(bench.rig.traces, since=start)
    begins = {m.detail: m for m in trace.all("begin", f"pool/{SPACE}/{pool}")}
    pairs = [(begins[m.detail], m) for m in trace.all("reserved", f"pool/{SPACE}/{pool}") if m.detail in begins]
    if not pairs:
        raise ConfigError("no marks of the fast pass: is OSB_TRACE set for the workers?")
    bench.drop(boxes)
    wall = median([(end.at - begin.at) / 1e6 for begin, end in pairs])
    cpu = median([(end.cpu - begin.cpu) / 1e6 for begin, end in pairs])
    return _Cost(wall, cpu, median(latencies))


def full(bench: Bench) -> None:
    """The CPU that gathering and deciding one full pass takes in this process.

    As `osbctl explain` does them: nothing is written. Once with an idle pool and once with sandboxes on it, which
    must not multiply the cost.
    """
    size = bench.plan.large
    name = pool_with(bench, size)
    empty = _full_pass(bench, name)
    boxes = bench.names("f", min(1000, size // 2))
    bench.create(boxes, pool=name)
    bench.served(boxes, seconds=120)
    time.sleep(2.0)
    held = _full_pass(bench, name)
    bench.drop(boxes)
    bench.add("full-pass", empty, pods=size, with_sandboxes={"sandboxes": len(boxes), "cpu_ms": round(held)})


def _full_pass(bench: Bench, pool: str, *, rounds: int = 3) -> float:
    world = make_world(bench.rig.settings, role="bench")
    try:
        p = Pass(world=world, key=Key(POOL, SPACE, pool), token="", deep=True, deadline=Deadline())
        poolpass.look(p, poolload.load(p))
        gc.collect()
        gc.freeze()
        costs = []
        for _ in range(rounds):
            before = time.process_time()
            decision.plan(poolpass.look(p, poolload.load(p)))
            costs.append((time.process_time() - before) * 1000)
        return median(costs)
    finally:
        world.close()


def memory(bench: Bench) -> None:
    """Resident memory with the large pool in the mirror, after the other rows' work."""
    pool_with(bench, bench.plan.large)
    used = bench.rig.processes().used()
    workers = {name: one.rss for name, one in used.items() if name.startswith("worker")}
    rest = {name: round(one.rss) for name, one in used.items()}
    bench.add("watcher-rss", used["watcher"].rss, pods=bench.plan.large, all_mb=rest)
    bench.add("worker-rss", max(workers.values()), workers=len(workers))
