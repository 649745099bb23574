"""Pausing sandboxes with tasks: stopped before the snapshot, started again after it, never twice when finished."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from osb.api import names
from tests.acceptance.test_pause import pause, paused, phase, resumed
from tests.acceptance.test_tasks import counts, fake, task, with_executor
from tests.doubles.cluster import Space, condition, record
from tests.doubles.executors import Executors, executors

POOLS = pytest.mark.parametrize("pool", [None, "warm"], ids=["own", "pooled"])


@pytest.fixture
def runs(space: Space, tmp_path: Path) -> Iterator[Executors]:
    with executors(space, tmp_path) as one:
        yield one


def make(space: Space, pool: str | None, seconds: float) -> None:
    if pool:
        space.warm("warm", 1, 1, 0, 3, template=with_executor("fake"))
    made = {} if pool else {"template": with_executor("fake")}
    space.box("box", pool=pool, taskTemplate=task(fake(seconds)), **made)


@POOLS
def test_a_running_task_is_stopped_before_the_snapshot_and_starts_again_after_it(
    space: Space, runs: Executors, pool: str | None
) -> None:
    make(space, pool, 3600)
    space.until_box("box", lambda b: counts(b)[0] == 1)
    (_, executor) = next(iter(runs.on.values())) if not pool else _of(space, runs)
    box = paused(space, "box")
    assert executor.table.listed() == [] or executor.table.listed()[0]["processStatus"].get("running") is None
    assert counts(box) == (0, 0, 0, 0, 0)
    box = resumed(space, "box")
    space.until_box("box", lambda b: counts(b)[0] == 1)
    assert runs.starts["box-0"] == 2
    space.delete("batchsandbox", "box")
    space.gone("batchsandbox")


def _of(space: Space, runs: Executors):  # type: ignore[no-untyped-def]  # a pair of address and executor
    pod = space.live("pod", record(space.live("batchsandbox", "box"))[0])
    return runs.on[pod["metadata"]["uid"]]


@POOLS
def test_a_finished_task_does_not_run_again_after_a_pause(space: Space, runs: Executors, pool: str | None) -> None:
    make(space, pool, 0.1)
    space.until_box("box", lambda b: counts(b)[1] == 1)
    box = paused(space, "box")
    assert counts(box) == (0, 1, 0, 0, 0)
    resumed(space, "box")
    space.until_box("box", lambda b: counts(b) == (0, 1, 0, 0, 0))
    assert runs.starts["box-0"] == 1
    # a paused sandbox with tasks goes at once
    paused(space, "box")
    space.delete("batchsandbox", "box")
    space.gone("batchsandbox")


def test_a_failed_pause_starts_the_tasks_again_and_gives_no_pod_back(space: Space, runs: Executors) -> None:
    make(space, "warm", 3600)
    box = space.until_box("box", lambda b: counts(b)[0] == 1)
    space.mark(record(box)[0], commit="{}")
    pause(space, "box")
    box = space.until_box("box", lambda b: phase(b) == "Succeed" and condition(b, "PauseFailed"))
    box = space.until_box("box", lambda b: counts(b)[0] == 1)
    assert names.ALLOC_RELEASE not in box["metadata"]["annotations"]
    assert runs.starts["box-0"] == 2
