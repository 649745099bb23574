"""Rows of starting anew: with Redis' data kept, and with Redis empty while sandboxes hold pods."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from osb.api import names
from osb.bench import stages
from osb.bench.measure import Bench
from osb.bench.measure_scale import pool_with
from osb.bench.rig import SPACE
from osb.errors import ConfigError
from osb.store.client import connect

POOLS = ("e1", "e2", "e3")
SPARE = 10  # idle pods of each of those pools
REPLICAS = 10
SETTLE = 5.0  # seconds in which a pod that should not be touched would be


def cold(bench: Bench) -> None:
    """All our processes and Redis (with its data) start anew; a sandbox is created at once."""
    name = pool_with(bench, bench.plan.large)
    redis = bench.rig.everything.redis
    assert redis is not None

    def again() -> None:
        redis.stop()
        redis.start(timeout=60)

    bench.rig.restart_controller(between=again)
    started = time.monotonic_ns()
    box, times = _first(bench, name, started)
    bench.add(
        "cold", max(0.0, times["list to served"]), pods=bench.plan.large, seconds=_rounded(times),
        note="Redis restarted with its data, ledger rebuilt",
    )  # fmt: skip
    bench.drop([box])


def empty(bench: Bench) -> None:
    """All our processes start anew and Redis has nothing, while sandboxes of three pools hold pods.

    Their pods must stay as they are, and a new sandbox is served within seconds of the processes' start.
    """
    boxes = _held(bench)
    before = _pods(bench, boxes)
    started = 0

    def flush() -> None:
        nonlocal started
        store = connect(bench.rig.settings.redis_url, name="bench")
        store.redis.flushall()
        store.close()
        started = time.monotonic_ns()

    bench.rig.restart_controller(between=flush)
    box, times = _first(bench, POOLS[0], started)
    bench.add("empty", times["start to served"], pods=len(before), pools=len(POOLS), seconds=_rounded(times))
    time.sleep(SETTLE)
    after = _pods(bench, boxes)
    given = {pod for pod in bench.rig.observer.seen[box].pods if pod in before}
    touched = given | {pod for pod, uid in before.items() if after.get(pod) != uid}
    bench.add("empty-touched", float(len(touched)), which=sorted(touched)[:10])
    bench.drop([box, *boxes])


def _held(bench: Bench) -> list[str]:
    """Sandboxes of ten that hold at least the plan's number of pods, a third from each pool."""
    boxes: list[str] = []
    each = math.ceil(bench.plan.held / len(POOLS) / REPLICAS)
    for pool in POOLS:
        bench.rig.pool(pool, each * REPLICAS + SPARE)
        mine = bench.names(pool, each)
        bench.create(mine, pool=pool, replicas=REPLICAS)
        boxes += mine
    bench.served(boxes)
    return boxes


def _pods(bench: Bench, boxes: list[str]) -> dict[str, str]:
    """UIDs of the pods that these sandboxes hold and that nobody has deleted, by name."""
    held = {pod for box in boxes for pod in bench.rig.observer.seen[box].pods}
    raws, _ = bench.rig.kube.all("pod", SPACE, labels=f"{names.LABEL_POOL_NAME} in ({','.join(POOLS)})")
    live = (raw["metadata"] for raw in raws if not raw["metadata"].get("deletionTimestamp"))
    return {meta["name"]: meta["uid"] for meta in live if meta["name"] in held}


def _first(bench: Bench, pool: str, started: int) -> tuple[str, dict[str, float]]:
    """Create a sandbox at once; its name, and how long what took in seconds."""
    (box,) = bench.names("c", 1)
    (call,) = bench.create([box], pool=pool)
    bench.served([box], seconds=90)
    listed = stages.read(bench.rig.traces, since=started).first("listed", "poolpod")
    if listed is None:
        raise ConfigError("no mark of the first list: is OSB_TRACE set for the watcher?")
    delivered = bench.rig.observer.seen[box].delivered
    moments: Mapping[str, Any] = {
        "start to list": listed.at - started,
        "list to served": delivered - listed.at,
        "start to served": delivered - started,
        "create to served": delivered - int(call[1]),
    }
    return box, {what: nanoseconds / 1e9 for what, nanoseconds in moments.items()}


def _rounded(times: Mapping[str, float]) -> dict[str, float]:
    return {what: round(seconds, 2) for what, seconds in times.items()}
