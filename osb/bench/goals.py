"""What each row is held to. A number that is missed is reported as missed.

The limits are stated for 2 cores with a real API server beside the controller on them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Goal:
    """`limit` is the largest value that meets it, the smallest when `at_least`. `row` is what `--rows` names."""

    key: str
    row: str
    what: str
    unit: str
    limit: float
    at_least: bool = False

    @property
    def text(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g} {self.unit}".rstrip()

    def met(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


GOALS = (
    Goal("batch", "batch", "100 sandboxes as one batch, create → all endpoints, p50", "ms", 50),
    Goal("writes", "batch", "API writes per pooled batch", "", 2),
    Goal(
        "waiting", "waiting", "1,000 batches of one waiting, share of the bare annotation + status pairs", "%", 80, True
    ),
    Goal("single-p50", "single", "one sandbox, idle system, create → endpoints, p50", "ms", 12),
    Goal("single-p99", "single", "the same, p99", "ms", 40),
    Goal("poisson-p50", "poisson", "Poisson arrivals, 45/s, p50", "ms", 15),
    Goal("poisson-p99", "poisson", "the same, p99 (on a quiet machine)", "ms", 150),
    Goal("sizes", "sizes", "cost per allocation, largest pool against pool of 100", "×", 1.3),
    Goal("events", "events", "watch event → reconcile start, 500 events/s on 500 keys, p99", "ms", 20),
    Goal("cold", "cold", "cold start: first new sandbox served after the first list of pods", "s", 2),
    Goal("empty", "empty", "restart with an empty Redis while pods are held: start → first new sandbox served", "s", 5),
    Goal("empty-touched", "empty", "the same: held pods deleted or handed out", "", 0),
    Goal("watcher-rss", "memory", "memory of the watcher, large pool", "MB", 80),
    Goal("worker-rss", "memory", "memory of a worker, large pool", "MB", 100),
    Goal("full-pass", "full", "one full pass of the large pool, CPU", "ms", 300),
    Goal("double", "double", "pods seen in two allocations, all rows together", "", 0),
    Goal("kill-lost", "kill", "kill -9 of each process under load: sandboxes not served", "", 0),
    Goal("kill-again", "kill", "the same: longest wait of a sandbox", "s", 20),
)

ROWS = tuple(dict.fromkeys(goal.row for goal in GOALS))
BY_KEY = {goal.key: goal for goal in GOALS}


@dataclass(slots=True)
class Result:
    """One measured value. `beside` are values that explain it, shown and exported as they are."""

    key: str
    value: float
    beside: dict[str, Any] = field(default_factory=dict)
    note: str = ""
    load: float = 0.0

    @property
    def goal(self) -> Goal:
        return BY_KEY[self.key]

    @property
    def met(self) -> bool:
        return self.goal.met(self.value)
