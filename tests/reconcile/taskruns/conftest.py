"""Sandboxes with tasks on the simulated API server that all whole passes share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from osb.kube.client import Kube
from osb.sim import SimCluster
from osb.store.client import Store
from tests.doubles.taskworld import TaskWorld

Make = Callable[..., TaskWorld]
QUICK = {"spec": {"process": {"command": ["true"]}}}


@pytest.fixture
def make(store: Store, client: Kube, simulated: SimCluster) -> Iterator[Make]:
    made: list[TaskWorld] = []

    def world(**changes: Any) -> TaskWorld:
        made.append(TaskWorld(store, client, **changes))
        return made[-1]

    yield world
    simulated.clear_faults()
    for one in made:
        one.close()
