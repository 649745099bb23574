"""The arithmetic of the measurements: percentiles, medians, clusters of slow samples. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor


def percentile(values: Sequence[float], share: float) -> float:
    """The value at index floor(share * n) of the sorted values (the last for 1.0), as load scripts of this API do it.

    Raises ValueError without values.
    """
    if not values:
        raise ValueError("no values")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"a share between 0 and 1, not {share}")
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, floor(share * len(ranked)))]


def median(values: Sequence[float]) -> float:
    """The middle value; of an even number the mean of the two in the middle."""
    if not values:
        raise ValueError("no values")
    ranked = sorted(values)
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2


@dataclass(frozen=True, slots=True)
class Spread:
    """p50, p99 and the largest of some values, in their unit."""

    count: int
    p50: float
    p99: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(len(values), percentile(values, 0.5), percentile(values, 0.99), max(values))


@dataclass(frozen=True, slots=True)
class Cluster:
    """Slow samples close together: one hiccup of the machine, however many requests it hit. `start` as given."""

    start: float
    length: float
    count: int
    most: float


def clusters(samples: Sequence[tuple[float, float]], *, slow: float, gap: float) -> list[Cluster]:
    """(time, value) pairs with a value above `slow`, joined while they are at most `gap` apart; worst first."""
    found: list[list[tuple[float, float]]] = []
    for at, value in sorted(samples):
        if value <= slow:
            continue
        if found and at - found[-1][-1][0] <= gap:
            found[-1].append((at, value))
        else:
            found.append([(at, value)])
    made = [Cluster(g[0][0], g[-1][0] - g[0][0], len(g), max(v for _, v in g)) for g in found]
    return sorted(made, key=lambda one: (-one.count, -one.most))


def poisson_times(rate: float, seconds: float, draws: Sequence[float]) -> list[float]:
    """Arrival times below `seconds` of a Poisson process; `draws` are exponential variates of mean 1."""
    times: list[float] = []
    at = 0.0
    for draw in draws:
        at += draw / rate
        if at >= seconds:
            break
        times.append(at)
    return times
