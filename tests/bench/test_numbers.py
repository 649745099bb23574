"""The bench's arithmetic: percentiles, clusters of slow samples, arrivals, goals, the sizes of a run."""

from __future__ import annotations

import pytest

from osb.bench import plan
from osb.bench.goals import BY_KEY, GOALS, ROWS, Result
from osb.bench.main import MEASURES
from osb.bench.numbers import clusters, median, percentile, poisson_times, spread
from osb.bench.report import exported, lines
from osb.bench.usage import Used, api_calls, busy, cpu_between


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.0, 1.0), (0.5, 51.0), (0.95, 96.0), (0.99, 100.0), (1.0, 100.0)],
)
def test_a_percentile_is_the_value_at_its_place_in_the_sorted_row(share: float, expected: float) -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, share) == expected


def test_a_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 0.99) == 7.0


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_of_its_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile([1.0], share)


def test_nothing_has_no_percentile_and_no_median() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match="no values"):
        median([])


@pytest.mark.parametrize(("values", "expected"), [([3.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 3.0, 2.0], 2.5)])
def test_the_median_is_the_middle(values: list[float], expected: float) -> None:
    assert median(values) == expected


def test_a_spread_names_count_middle_tail_and_largest() -> None:
    found = spread([1.0, 2.0, 3.0, 100.0])
    assert (found.count, found.p50, found.p99, found.most) == (4, 3.0, 100.0, 100.0)


def test_slow_samples_close_together_are_one_cluster_and_the_largest_comes_first() -> None:
    samples = [(0.0, 5.0), (1.0, 90.0), (1.2, 80.0), (1.4, 120.0), (1.5, 4.0), (9.0, 300.0)]
    first, second = clusters(samples, slow=50.0, gap=0.3)
    assert (first.count, first.start, round(first.length, 1), first.most) == (3, 1.0, 0.4, 120.0)
    assert (second.count, second.most) == (1, 300.0)


def test_without_slow_samples_there_is_no_cluster() -> None:
    assert clusters([(0.0, 5.0), (0.1, 50.0)], slow=50.0, gap=0.3) == []


def test_arrivals_follow_the_draws_and_end_in_time() -> None:
    assert poisson_times(2.0, 2.0, [1.0, 2.0, 0.5, 9.0]) == [0.5, 1.5, 1.75]


def test_every_row_has_a_measure_and_every_measure_a_goal() -> None:
    assert set(ROWS) == set(MEASURES) | {"double"}


def test_a_goal_is_met_on_its_limit_and_missed_beyond_it() -> None:
    assert Result("batch", 50.0).met
    assert not Result("batch", 50.1).met
    assert Result("waiting", 80.0).met
    assert not Result("waiting", 79.9).met


def test_goals_read_as_people_write_them() -> None:
    assert BY_KEY["waiting"].text == "≥ 80 %"
    assert BY_KEY["writes"].text == "≤ 2"
    assert len({goal.key for goal in GOALS}) == len(GOALS)


def test_a_missed_goal_is_reported_as_missed_with_how_much() -> None:
    shown = "\n".join(lines("sim", [Result("batch", 75.0, {"max": 80})], load=0.1, sizes="small"))
    assert "MISSED" in shown
    assert "missed by 50%" in shown
    assert "0 of 1 goals met, 1 missed" in shown
    (row,) = exported("sim", [Result("batch", 75.0)], load=0.1)["rows"]
    assert (row["met"], row["goal"]) == (False, "≤ 50 ms")


def test_a_busy_machine_is_said_to_be_busy() -> None:
    assert busy(1.3, cores=2)
    assert not busy(1.1, cores=2)
    assert any("busy machine" in line for line in lines("sim", [], load=1000.0, sizes=""))


def test_the_warm_pool_has_room_for_more_arrivals_than_expected() -> None:
    full = plan.full()
    assert full.warm >= full.poisson_seconds * plan.ARRIVALS * 1.1
    assert full.large == 10_000
    assert plan.full(large=500).sizes == (100, 500)


def test_cpu_is_counted_for_processes_seen_before_and_after() -> None:
    before, after = {"a": Used(1.0, 5.0)}, {"a": Used(1.5, 6.0), "new": Used(3.0, 1.0)}
    assert cpu_between(before, after) == {"a": 0.5}


def test_api_calls_are_summed_by_verb_and_kind() -> None:
    text = (
        "# HELP apiserver_request_total\n"
        'apiserver_request_total{code="200",resource="pods",subresource="status",verb="PATCH"} 3\n'
        'apiserver_request_total{code="409",resource="pods",subresource="status",verb="PATCH"} 1\n'
        'apiserver_request_total{code="200",resource="",subresource="",verb="GET"} 2\n'
        'other_total{verb="GET"} 9\n'
    )
    assert api_calls(text) == {"PATCH pods/status": 4.0, "GET other": 2.0}
