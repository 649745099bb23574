"""What people and programs get: one line per row with its goal, what explains it below, and the same as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any

from osb.bench.goals import Result
from osb.bench.usage import busy


def lines(cluster: str, results: Sequence[Result], *, load: float, sizes: str) -> list[str]:
    """The table of one cluster."""
    head = f"{cluster}: {os.cpu_count()} cores, load average {load:.1f} before the run, {sizes}"
    found = [head]
    if busy(load):
        found.append("  busy machine: others use its cores; trust ratios more than times")
    missed = sum(not one.met for one in results)
    for one in results:
        found.append(_line(one))
        found += [f"        {name.replace('_', ' ')}: {_text(value)}" for name, value in one.beside.items()]
        if one.note:
            found.append(f"        {one.note}")
    found.append(f"  {len(results) - missed} of {len(results)} goals met" + (f", {missed} missed" if missed else ""))
    return found


def _line(one: Result) -> str:
    goal = one.goal
    word = "met   " if one.met else "MISSED"
    by = "" if one.met else f", missed by {_missed_by(one)}"
    return (
        f"  {word} {goal.what}: {one.value:.4g} {goal.unit}".rstrip() + f" (goal {goal.text}{by}; load {one.load:.1f})"
    )


def _missed_by(one: Result) -> str:
    limit = one.goal.limit
    return f"{abs(one.value - limit) / limit:.0%}" if limit else f"{one.value:g}"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return " ".join(str(part) for part in value)
    return str(value)


def exported(cluster: str, results: Sequence[Result], *, load: float) -> dict[str, Any]:
    """The same for programs."""
    return {
        "cluster": cluster,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "loadBefore": round(load, 2),
        "rows": [
            {
                "key": one.key, "row": one.goal.row, "what": one.goal.what, "value": round(one.value, 3),
                "unit": one.goal.unit, "goal": one.goal.text, "met": one.met, "load": round(one.load, 2),
                **({"note": one.note} if one.note else {}), "beside": one.beside,
            }
            for one in results
        ],
    }  # fmt: skip
