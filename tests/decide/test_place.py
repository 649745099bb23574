"""Packed and spread dealing; nothing that is asked for is ever forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osb.decide.place import Need, packed, spread, unmet


@pytest.mark.parametrize(
    ("stock", "asked", "shares", "missing"),
    [
        (2, [1, 1], [1, 1], 0),
        (1, [2], [1], 1),
        (0, [2], [0], 2),
        (1, [2, 1], [1, 0], 2),
        (4, [3, 2, 2], [3, 1, 0], 3),
    ],
)
def test_packed_serves_each_in_turn(stock: int, asked: list[int], shares: list[int], missing: int) -> None:
    needs = [Need(n) for n in asked]
    assert packed(needs, stock) == shares
    assert unmet(needs, shares) == missing


@pytest.mark.parametrize(
    ("stock", "asked", "shares", "missing"),
    [
        (4, [2, 2], [2, 2], 0),
        (3, [1, 2], [1, 2], 0),
        (5, [3, 2, 1], [2, 2, 1], 1),
        (0, [3, 2], [0, 0], 5),
        (1, [2, 2, 2], [1, 0, 0], 5),
        (4, [3, 2, 1], [2, 1, 1], 2),
    ],
)
def test_spread_deals_in_rounds_and_counts_whoever_was_not_reached(
    stock: int, asked: list[int], shares: list[int], missing: int
) -> None:
    needs = [Need(n) for n in asked]
    assert spread(needs, stock) == shares
    assert unmet(needs, shares) == missing


def test_spread_counts_what_each_holds_so_pods_that_come_one_by_one_end_evenly_dealt() -> None:
    holds = [0, 0, 0]
    for _ in range(6):
        shares = spread([Need(3 - held, holds=held) for held in holds], 1)
        holds = [held + share for held, share in zip(holds, shares, strict=True)]
    assert holds == [2, 2, 2]


def test_an_all_or_nothing_need_gets_nothing_rather_than_a_part() -> None:
    needs = [Need(3, whole=True, holds_back=False), Need(1)]
    assert packed(needs, 2) == [0, 1]
    assert spread(needs, 2) == [0, 1]


def test_an_all_or_nothing_need_that_holds_back_leaves_nothing_to_later_ones() -> None:
    needs = [Need(3, whole=True), Need(1)]
    assert packed(needs, 2) == [0, 0]
    assert spread(needs, 2) == [0, 0]


needs_strategy = st.lists(st.builds(Need, st.integers(0, 6), whole=st.booleans(), holds_back=st.booleans()), max_size=8)


@given(needs_strategy, st.integers(0, 20), st.sampled_from([packed, spread]))
def test_nobody_gets_more_than_asked_and_no_pod_is_dealt_twice(needs, stock, deal) -> None:  # type: ignore[no-untyped-def]
    shares = deal(needs, stock)
    assert sum(shares) <= stock
    for need, share in zip(needs, shares, strict=True):
        assert 0 <= share <= need.pods
        assert not need.whole or share in (0, need.pods)
