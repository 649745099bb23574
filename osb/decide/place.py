"""How scarce pods are dealt among waiters of one rank: packed or in rounds (spec/pool.md 7).

Both take needs in order and a number of pods, and return how many each gets. What is missing is always the
sum of the needs minus the sum handed out, also when the pods run out in the middle of a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Need(NamedTuple):
    """What one waiter needs.

    `whole`: all or nothing.
    `holds_back`: when such a need cannot be met now, later ones get nothing either.
    """

    pods: int
    whole: bool = False
    holds_back: bool = True


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
    """In rounds: everyone still in need gets one, in order, until the stock is empty.

    A need that is all or nothing is decided whole, in its place in the first round.
    """
    shares = [0] * len(needs)
    left = max(0, stock)
    in_need = [i for i, need in enumerate(needs) if need.pods > 0]
    while in_need and left:
        for i in in_need:
            if not left:
                break
            need = needs[i]
            step = need.pods if need.whole else 1
            if step <= left:
                shares[i] += step
                left -= step
            elif need.holds_back:
                left = 0
        in_need = [i for i in in_need if shares[i] < needs[i].pods and not needs[i].whole]
    return shares


def unmet(needs: Sequence[Need], shares: Sequence[int]) -> int:
    """What was asked for and not handed out."""
    return sum(need.pods for need in needs) - sum(shares)
