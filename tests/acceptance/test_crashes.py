"""Processes that vanish, freeze or come in pairs, and a Redis that forgets: nothing is lost, no pod has two owners.

What must hold at every moment (no pod with two owners) is checked over the whole history after each test.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.doubles.cluster import Obj, Space, record
from tests.doubles.controller import Controller

SERVED_WITHIN = 30.0  # a killed worker's key runs again within 20 s; the rest is the queue behind it


@pytest.fixture
def load(space: Space, controller: Controller) -> Iterator[Space]:
    """A warm pool, with room for everything that a test asks for; afterwards all processes are there again."""
    space.warm("warm", 20, 30, 0, 80)
    yield space
    controller.restore()
    space.until("the pool counts as many as are held", lambda: _allocated(space) == _held(space), seconds=30)


def _allocated(space: Space) -> int:
    pool = space.get("pool", "warm")
    return int(pool["status"]["allocated"]) if pool else -1


def _held(space: Space) -> int:
    return sum(len(record(box)) for box in space.all("batchsandbox"))


def _ask(space: Space, word: str, count: int) -> list[str]:
    names = [f"{word}-{n}" for n in range(count)]
    for name in names:
        space.box(name)
    return names


def _distinct(boxes: list[Obj]) -> None:
    pods = [pod for box in boxes for pod in record(box)]
    assert len(pods) == len(set(pods)) == len(boxes)


@pytest.mark.parametrize("victim", ["worker-1", "watcher-1", "beat-1"])
def test_a_process_killed_under_load_loses_nothing(load: Space, controller: Controller, victim: str) -> None:
    before = _ask(load, "before", 15)
    controller.kill(victim)
    during = _ask(load, "during", 10)
    controller.spawn(victim)
    after = _ask(load, "after", 5)
    _distinct(load.served(*before, *during, *after, seconds=SERVED_WITHIN))


def test_a_worker_killed_while_sandboxes_go_leaves_none_behind(load: Space, controller: Controller) -> None:
    names = _ask(load, "box", 15)
    load.served(*names)
    for name in names:
        load.delete("batchsandbox", name)
    controller.kill("worker-1")
    controller.spawn("worker-1")
    load.gone("batchsandbox", seconds=SERVED_WITHIN)


def test_a_worker_told_to_end_finishes_or_hands_back(load: Space, controller: Controller) -> None:
    before = _ask(load, "before", 15)
    code = controller.kill("worker-1", signal.SIGTERM)
    assert code == 0
    after = _ask(load, "after", 5)
    _distinct(load.served(*before, *after, seconds=10))
    controller.spawn("worker-1")


def test_a_frozen_worker_that_thaws_changes_nothing(load: Space, controller: Controller) -> None:
    # Given a worker that freezes in the middle of its work
    before = _ask(load, "before", 10)
    controller.signal("worker-1", signal.SIGSTOP)
    during = _ask(load, "during", 10)
    # When its leases run out, others do its work
    load.served(*before, *during, seconds=SERVED_WITHIN)
    taken = {name: record(box) for name in (*before, *during) if (box := load.get("batchsandbox", name))}
    # Then what it does when it thaws has no effect on what was handed out
    controller.signal("worker-1", signal.SIGCONT)
    after = _ask(load, "after", 10)
    load.served(*after)
    assert {name: record(load.live("batchsandbox", name)) for name in taken} == taken


def test_two_watchers_and_two_beats_do_nothing_twice(load: Space, controller: Controller) -> None:
    controller.spawn("watcher-2")
    controller.spawn("beat-2")
    names = _ask(load, "both", 10)
    _distinct(load.served(*names))
    # created, record with endpoints, status: nothing was written twice
    assert all(len(load.history("batchsandbox", name)) == 3 for name in names)
    # When either of a pair vanishes, the other goes on
    for gone, other in (("watcher-1", "beat-2"), ("watcher-2", "beat-1")):
        controller.kill(gone)
        controller.kill(other)
        alone = _ask(load, f"without-{gone}", 5)
        load.served(*alone, seconds=SERVED_WITHIN)
        if gone == "watcher-1":
            controller.spawn("watcher-1")
            load.until("the first watcher is back", lambda: _listed(controller, "watcher-1"), seconds=20)
        controller.spawn(other)
    controller.kill("beat-2", signal.SIGTERM)


def _listed(controller: Controller, name: str) -> bool:
    """It said that it listed every kind, since its last start."""
    text = controller.log(name).read_text(errors="replace")
    return text.rpartition('"msg":"starting"')[2].count("listed") >= 4


def test_a_flushed_redis_costs_time_and_nothing_else(load: Space, controller: Controller) -> None:
    # Given sandboxes that hold pods
    before = load.served(*_ask(load, "before", 10))
    held = {pod: load.live("pod", pod)["metadata"]["uid"] for box in before for pod in record(box)}
    # When Redis forgets everything, twice, while others ask
    during = _ask(load, "during", 5)
    controller.redis.flushall()
    during += _ask(load, "again", 5)
    load.served(*during, seconds=SERVED_WITHIN)
    controller.redis.flushall()
    after = _ask(load, "after", 5)
    boxes = load.served(*during, *after, seconds=SERVED_WITHIN)
    # Then all are served, and those before keep exactly their pods
    _distinct([*before, *boxes])
    assert {pod: load.live("pod", pod)["metadata"]["uid"] for pod in held} == held
    load.until_pool("warm", lambda p: p["status"]["available"] >= 20, seconds=40)


def test_a_redis_that_restarts_with_its_data_is_trusted(load: Space, controller: Controller) -> None:
    before = load.served(*_ask(load, "before", 5))
    idle = {p["metadata"]["name"] for p in load.pods_of("warm")}
    controller.redis_server.kill()
    during = _ask(load, "during", 5)
    controller.redis_server.start()
    boxes = load.served(*during, seconds=60)
    _distinct([*before, *boxes])
    assert controller.alive()
    # The warm pods were not thrown away
    assert {pod for box in boxes for pod in record(box)} <= idle
