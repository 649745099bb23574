"""Token buckets shared by all processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from osb.errors import ConfigError
from osb.store.client import Store
from tests.doubles.waiting import wait_until


def test_a_full_bucket_gives_its_burst_and_then_says_how_long_to_wait(store: Store, clock: Any) -> None:
    assert [store.limits.take("restarts", rate=2, burst=3) for _ in range(4)] == [0, 0, 0, 0.5]
    clock.forward(0.25)
    assert store.limits.take("restarts", rate=2, burst=3) == 0.25
    clock.forward(0.25)
    assert store.limits.take("restarts", rate=2, burst=3) == 0


def test_a_bucket_never_holds_more_than_its_burst(store: Store, clock: Any) -> None:
    store.limits.take("x", rate=100, burst=2)
    clock.forward(3600)
    assert [store.limits.take("x", rate=100, burst=2) for _ in range(3)] == [0, 0, 0.01]


def test_more_than_the_bucket_can_hold_is_never_given(store: Store) -> None:
    assert store.limits.take("x", rate=1, burst=2, tokens=3) == math.inf


def test_a_clock_that_goes_back_does_not_stop_the_flow(store: Store, clock: Any) -> None:
    store.limits.take("x", rate=1, burst=1)
    clock.forward(-3600)
    assert store.limits.take("x", rate=1, burst=1) == 1.0
    clock.forward(1)
    assert store.limits.take("x", rate=1, burst=1) == 0


def test_many_processes_share_one_bucket(store: Store, clock: Any) -> None:
    with ThreadPoolExecutor(8) as pool:
        waits = list(pool.map(lambda _: store.limits.take("x", rate=1, burst=10), range(50)))
    assert waits.count(0) == 10


def test_a_bucket_that_is_full_again_leaves_nothing(store: Store, left: Callable[[], set[str]]) -> None:
    store.limits.take("x", rate=0.001, burst=5)
    assert 900_000 < store.redis.pttl("osb:limit:x") <= 1_000_001
    store.limits.take("y", rate=1000, burst=5)
    wait_until(lambda: left() == {"osb:limit:x"})


def test_a_rate_of_nothing_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="limit x"):
        store.limits.take("x", rate=0, burst=1)
