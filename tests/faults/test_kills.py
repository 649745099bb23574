"""kill -9 of every kind of process, at random, while users come and go; an emptied Redis besides."""

from __future__ import annotations

import os

import pytest

from tests.doubles.cluster import Space
from tests.doubles.controller import Controller
from tests.doubles.storm import Storm

KILLS = int(os.environ.get("FAULTS_KILLS", "20"))
FLUSHES = int(os.environ.get("FAULTS_FLUSHES", "3"))


def test_nobody_notices_that_processes_die(space: Space, controller: Controller) -> None:
    # Given two watchers, three workers, two beats and users that come and go
    # When one of each kind is killed, some twice, and Redis is emptied once
    report = Storm(space, controller, kills=2, flushes=1, pause=1.5).run()
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
