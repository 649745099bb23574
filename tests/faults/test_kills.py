"""kill -9 of every kind of process, at random, while users come and go; an emptied Redis besides."""

from __future__ import annotations

import os
import signal

import pytest

from tests.doubles.cluster import Space
from tests.doubles.controller import Controller
from tests.doubles.storm import Storm

KILLS = int(os.environ.get("FAULTS_KILLS", "20"))
FLUSHES = int(os.environ.get("FAULTS_FLUSHES", "3"))


def test_nobody_notices_that_processes_die(space: Space, controller: Controller) -> None:
    # Given two watchers, three workers, two beats and users that come and go
    # When one of each kind is killed, and Redis is emptied once
    report = Storm(space, controller, kills=1, flushes=1, pause=1.5).run()
    # Then no pod ever had two owners, everybody was served, and what a killed worker held ran again in time
    assert report.problems == []
    assert len(report.waits) > 10
    print(report.line())


@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_nobody_notices_a_long_storm(space: Space, controller: Controller, capsys: pytest.CaptureFixture[str]) -> None:
    # Given the same, and blows for minutes
    report = Storm(space, controller, kills=KILLS, flushes=FLUSHES, pause=2.0).run()
    # Then the same holds
    with capsys.disabled():
        print("\n" + report.line())
    assert report.problems == []


def test_a_rolling_restart_makes_nobody_wait(space: Space, controller: Controller) -> None:
    # Given users that come and go
    # When every kind of process is asked to end, one after another, and started again
    report = Storm(space, controller, kills=1, flushes=0, pause=1.0, number=signal.SIGTERM).run()
    # Then each ends in order (it is not killed for being late), and no key and no user waited for 20 s
    assert report.problems == []
    assert max(report.waits) < 20 and max(report.again, default=0) < 20


def test_a_worker_that_stood_still_past_its_lease_changes_nothing(space: Space, controller: Controller) -> None:
    # Given users, and workers that are frozen in the middle of whatever they do, until others have taken over
    storm = Storm(space, controller, kills=0, flushes=0, pause=4.0)

    def freeze() -> None:
        controller.signal("worker-1", signal.SIGSTOP)
        storm.checker.expect_again()
        storm.over.wait(14.0)
        controller.signal("worker-1", signal.SIGCONT)

    storm.more = [freeze]
    # Then whatever it still writes when it goes on is refused
    report = storm.run()
    assert report.problems == []
