"""How scarce pods are dealt among waiters of one rank: packed or in rounds (spec/pool.md 7).

Both take needs in order and a number of pods, and return how many each gets. What is missing is always the
sum of the needs minus the sum handed out, also when the pods run out in the middle of a round.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple


class Need(NamedTuple):
    """What one waiter needs.

    `whole`: all or nothing.
    `holds_back`: when such a need cannot be met now, later ones get nothing either.
    `holds`: pods that it has from earlier passes.
    """

    pods: int
    whole: bool = False
    holds_back: bool = True
    holds: int = 0


def packed(needs: Sequence[Need], stock: int) -> list[int]:
    """Each in turn gets what it needs, as far as the stock goes."""
    shares: list[int] = []
    left = max(0, stock)
    for need in needs:
        share = min(need.pods, left)
        if need.whole and share < need.pods:
            share = 0
            if need.holds_back:
                left = 0
        left -= share
        shares.append(share)
    return shares


def spread(needs: Sequence[Need], stock: int) -> list[int]:
    """In rounds: the next pod goes to whoever has fewest, in order among equals, until the stock is empty.

    What earlier passes gave counts: pods that become ready one by one are dealt as if they had come together. A need
    that is all or nothing is decided whole, when its turn first comes.
    """
    shares = [0] * len(needs)
    left = max(0, stock)
    turns = [(need.holds, i) for i, need in enumerate(needs) if need.pods > 0]
    heapq.heapify(turns)
    while turns and left:
        has, i = heapq.heappop(turns)
        need = needs[i]
        step = need.pods if need.whole else 1
        if step <= left:
            shares[i] += step
            left -= step
        elif need.holds_back:
            left = 0
        if not need.whole and shares[i] < need.pods:
            heapq.heappush(turns, (has + 1, i))
    return shares


def unmet(needs: Sequence[Need], shares: Sequence[int]) -> int:
    """What was asked for and not handed out."""
    return sum(need.pods for need in needs) - sum(shares)
