"""What all rows share: names of sandboxes, latencies from calls and sightings, CPU and load around a measurement."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from osb.bench import stages
from osb.bench.goals import Result
from osb.bench.numbers import Spread
from osb.bench.plan import Plan
from osb.bench.rig import SPACE, Rig
from osb.bench.usage import api_calls, cpu_between, load_average
from osb.errors import ApiError, ConfigError

WARM = "warm"
REST = 5.0  # seconds after mass deletes: the API server's garbage collector works on


@dataclass(slots=True)
class Bench:
    """One run on one cluster. `results` grow row by row; `say` shows progress."""

    rig: Rig
    plan: Plan
    say: Callable[[str], None] = print
    results: list[Result] = field(default_factory=list)
    rested: bool = True
    _tags: Iterator[int] = field(default_factory=itertools.count)
    _run: str = field(default_factory=lambda: uuid.uuid4().hex[:4])

    def names(self, label: str, count: int) -> list[str]:
        tag = f"{label}{self._run}{next(self._tags)}"
        return [f"{tag}-{number}" for number in range(count)]

    def warm(self) -> None:
        """The warm pool, full; a moment of rest when sandboxes were deleted before."""
        self.rig.pool(WARM, self.plan.warm)
        if not self.rested:
            time.sleep(REST)
            self.rested = True

    def create(self, boxes: Sequence[str], *, pool: str = WARM, **more: Any) -> list[list[Any]]:
        """Create them as the load generator does; returns its calls."""
        answer = self.rig.load(do="create", namespace=SPACE, pool=pool, names=list(boxes), **more)
        if answer["errors"]:
            raise ConfigError(f"{answer['errors']} creates failed; see the load generator's log")
        calls: list[list[Any]] = answer["calls"]
        return calls

    def one(self, name: str, *, pool: str = WARM, replicas: int = 1) -> tuple[list[Any], float]:
        """Create one sandbox and wait for its endpoints: (its call, milliseconds)."""
        (call,) = self.create([name], pool=pool, replicas=replicas, threads=1)
        self.served([name])
        return call, self.latency(call)

    def served(self, boxes: Iterable[str], *, seconds: float = 60.0) -> None:
        if not self.rig.observer.delivered(boxes, seconds=seconds):
            raise ConfigError("sandboxes were not served in time; see the workers' logs")

    def latency(self, call: Sequence[Any]) -> float:
        """Milliseconds from before the create call until the endpoints were seen."""
        return (self.rig.observer.seen[call[0]].delivered - int(call[1])) / 1e6

    def drop(self, boxes: Sequence[str]) -> None:
        self.rig.drop(list(boxes))
        self.rested = False

    def causes(self, calls: Sequence[Sequence[Any]], *, pool: str = WARM) -> dict[str, Spread]:
        """Latency of these sandboxes by cause."""
        trace = stages.read(self.rig.traces, since=min(int(call[1]) for call in calls))
        shown = {call[0]: self.rig.observer.seen[call[0]].delivered for call in calls}
        return stages.spreads(stages.by_cause(trace, calls, shown, namespace=SPACE, pool=pool))

    def add(self, key: str, value: float, *, note: str = "", **beside: Any) -> None:
        self.results.append(Result(key, value, beside, note, load_average()))

    @contextmanager
    def calls(self, into: dict[str, float]) -> Iterator[None]:
        """API calls of everybody by verb and kind of what happens inside, where the server tells (a real one does)."""
        before = self._calls()
        yield
        into.update({name: n for name, total in self._calls().items() if (n := total - before.get(name, 0.0)) > 0})

    def _calls(self) -> dict[str, float]:
        try:
            return api_calls(self.rig.kube.raw("/metrics").decode())
        except ApiError:
            return {}

    @contextmanager
    def cpu(self, into: dict[str, float]) -> Iterator[None]:
        """CPU seconds by process of what happens inside, into `into`."""
        before = self.rig.processes().used()
        yield
        into.update(cpu_between(before, self.rig.processes().used()))


def shown(parts: dict[str, Spread]) -> dict[str, str]:
    """Spreads in milliseconds as people read them."""
    return {name: f"{one.p50:.1f} / {one.p99:.1f}" for name, one in parts.items()}
