"""What each part of one sandbox's way took: the marks of `osb.obs.trace`, laid side by side.

In: the folder of marks and the calls of the load generator. Out: per sandbox the stages in order, as milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from osb.bench.numbers import Spread, spread

STAGES = (
    ("create to watcher", "the POST, until the watcher has the event"),
    ("mirror", "put into Redis, keys marked, wake-up published"),
    ("queue wait", "Celery takes the wake-up, the key's lease is taken"),
    ("load and decide", "waiting line, stock and ledger read; who gets what"),
    ("ledger", "one script takes the pods"),
    ("annotation write", "the PATCH with record and endpoints, until its answer"),
    ("watch return", "until the client's watch shows the endpoints (below 0: before the answer)"),
    ("status write", "the status PATCH, until its answer"),
)


@dataclass(frozen=True, slots=True)
class Mark:
    """One line of a trace file; `at` and `cpu` in ns."""

    stage: str
    name: str
    at: int
    cpu: int
    detail: str
    process: str


@dataclass(slots=True)
class Trace:
    """All marks, by stage and name, in order of time."""

    marks: dict[str, dict[str, list[Mark]]] = field(default_factory=dict)

    def add(self, mark: Mark) -> None:
        self.marks.setdefault(mark.stage, {}).setdefault(mark.name, []).append(mark)

    def first(self, stage: str, name: str, *, after: int = 0) -> Mark | None:
        found = [m for m in self.marks.get(stage, {}).get(name, ()) if m.at >= after]
        return min(found, key=lambda m: m.at, default=None)

    def all(self, stage: str, name: str | None = None) -> list[Mark]:
        """Marks of one stage, of one name or of all."""
        kept = self.marks.get(stage, {})
        found = kept.get(name, []) if name is not None else [m for marks in kept.values() for m in marks]
        return sorted(found, key=lambda m: m.at)


def read(folder: Path, *, since: int = 0) -> Trace:
    """The marks from `since` on. A line cut short by a killed process is left out."""
    trace = Trace()
    for path in sorted(folder.glob("*.trace")):
        for line in path.read_text(errors="replace").splitlines():
            parts = line.split("\t")
            if len(parts) == 5 and int(parts[2]) >= since:
                trace.add(Mark(parts[0], parts[1], int(parts[2]), int(parts[3]), parts[4], path.stem))
    return trace


def by_cause(
    trace: Trace, calls: Iterable[Sequence[object]], shown: Mapping[str, int], *, namespace: str, pool: str
) -> dict[str, list[float]]:
    """Stage -> milliseconds, one value per sandbox whose whole way was seen."""
    result: dict[str, list[float]] = {name: [] for name, _ in STAGES}
    begins = {(m.name, m.detail): m for m in trace.all("begin")}
    reserved = {m.detail: m for m in trace.all("reserved")}
    for name, before, _after in calls:
        member = f"{namespace}/{name}"
        start = int(str(before))
        seen = trace.first("seen", member, after=start)
        mirrored = trace.first("mirrored", member, after=start)
        dealt = trace.first("dealt", member, after=start)
        claimed = trace.first("claimed", member, after=start)
        status = trace.first("status", member, after=start)
        end = shown.get(str(name), 0)
        if not (seen and mirrored and dealt and claimed and status and end):
            continue
        begin = begins.get((f"pool/{namespace}/{pool}", dealt.detail))
        took = reserved.get(dealt.detail)
        if begin is None or took is None:
            continue
        points = (start, seen.at, mirrored.at, begin.at, dealt.at, took.at, claimed.at)
        for (stage, _), one, two in zip(STAGES, points, points[1:], strict=False):
            result[stage].append((two - one) / 1e6)
        result["watch return"].append((end - claimed.at) / 1e6)
        result["status write"].append((status.at - claimed.at) / 1e6)
    return {stage: values for stage, values in result.items() if values}


def spreads(parts: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    return {stage: spread(values) for stage, values in parts.items()}
