"""How a run ends in time: by itself, when asked, or by the watchdog."""

from __future__ import annotations

import threading

import pytest

from osb.errors import DeadlinePassed, Fenced
from osb.obs import deadline
from osb.obs.deadline import Deadline, Watchdog
from tests.doubles.waiting import wait_until


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_a_run_within_its_soft_limit_goes_on_and_past_it_ends(clock):
    run = Deadline(soft=45, hard=60, clock=clock)
    run.check()
    clock.now = 44.9
    run.check()
    clock.now = 45.0
    with pytest.raises(DeadlinePassed, match="45 s"):
        run.check()


def test_a_stopped_run_ends_with_the_first_cause(clock):
    run = Deadline(clock=clock)
    run.stop(Fenced("the lease was lost"))
    run.stop()
    with pytest.raises(Fenced):
        run.check()


def test_a_call_may_last_until_the_hard_limit_and_always_gets_a_little_time(clock):
    run = Deadline(soft=45, hard=60, clock=clock)
    assert run.limit(10) == 10
    clock.now = 55
    assert run.limit(10) == 5
    clock.now = 70
    assert run.limit(10) == 0.1


def test_a_wait_ends_at_once_when_the_run_is_stopped():
    run = Deadline()
    results: list[bool] = []
    waiter = threading.Thread(target=lambda: results.append(run.wait(30)))
    waiter.start()
    run.stop()
    waiter.join(5)
    assert results == [False]


def test_other_threads_take_the_deadline_along():
    seen: list[object] = []
    with Deadline().use() as run:
        work = deadline.bound(lambda: seen.append(deadline.current()))
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(5)
    assert seen == [run]
    assert deadline.current() is None


def test_the_watchdog_leaves_only_for_a_run_past_its_hard_limit(clock):
    left: list[str] = []
    dog = Watchdog(left.append)
    with dog.watching("pool/n/warm", Deadline(hard=60, clock=clock)):
        clock.now = 59
        dog.tick()
        assert left == []
        clock.now = 60
        dog.tick()
    dog.tick()
    assert len(left) == 1
    assert "pool/n/warm" in left[0]


def test_a_busy_loop_is_noticed_by_the_running_watchdog():
    left: list[str] = []
    dog = Watchdog(left.append, interval=0.02)
    dog.start()
    with dog.watching("pool/n/stuck", Deadline(soft=0.05, hard=0.1)):
        wait_until(lambda: left)
    dog.stop()
    assert "pool/n/stuck" in left[0]


def test_shutdown_asks_every_run_to_stop():
    dog = Watchdog(lambda cause: None)
    first, second = Deadline(), Deadline()
    with dog.watching("a", first), dog.watching("b", second):
        dog.stop_all()
    for run in (first, second):
        with pytest.raises(DeadlinePassed, match="handed back"):
            run.check()
