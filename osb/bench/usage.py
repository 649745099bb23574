"""CPU and memory of the processes under measurement, and how busy the machine is beside them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

_LABEL = re.compile(r'(\w+)="([^"]*)"')

BUSY = 0.6  # a load average above this share of the cores before a measurement: others take part


@dataclass(frozen=True, slots=True)
class Used:
    """CPU seconds since a process started, and its resident memory in MB."""

    cpu: float
    rss: float


class Processes:
    """Named processes; what has ended is left out."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self.pids = dict(pids)

    def used(self) -> dict[str, Used]:
        found: dict[str, Used] = {}
        for name, pid in self.pids.items():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process = psutil.Process(pid)
                times = process.cpu_times()
                found[name] = Used(times.user + times.system, process.memory_info().rss / 1e6)
        return found


def cpu_between(before: Mapping[str, Used], after: Mapping[str, Used]) -> dict[str, float]:
    """CPU seconds by process."""
    return {name: used.cpu - before[name].cpu for name, used in after.items() if name in before}


def api_calls(metrics: str) -> dict[str, float]:
    """Calls so far by "VERB resource/subresource", of an API server's /metrics text (1.17 and later)."""
    found: dict[str, float] = {}
    for line in metrics.splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        labels, _, value = line.removeprefix("apiserver_request_total{").rpartition("} ")
        pairs = dict(_LABEL.findall(labels))
        sub = f"/{pairs['subresource']}" if pairs.get("subresource") else ""
        name = f"{pairs.get('verb', '?')} {pairs.get('resource') or 'other'}{sub}"
        found[name] = found.get(name, 0.0) + float(value)
    return found


def load_average() -> float:
    """Of the last minute."""
    return os.getloadavg()[0]


def busy(load: float, cores: int | None = None) -> bool:
    """Is the machine taken by others? Asked before our own load starts."""
    return load > BUSY * (cores or os.cpu_count() or 1)
