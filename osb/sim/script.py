"""What a pod should do in the simulated cluster: read from its `sim.osb/` annotations.

===========================  ==============================================================================
sim.osb/ready-after          time until Ready ("0.2", "300ms", "2s"); default: the kubelet's
sim.osb/running-after        Running with an address, but not Ready, from then on until ready-after
sim.osb/never-ready          "true": Running, never Ready. Taken away again: becomes Ready
sim.osb/waiting-reason       containers wait with this reason (ErrImagePull, CreateContainerConfigError, ...)
                             "init:ErrImagePull" for the init containers
sim.osb/waiting-for          how long they do (default: for ever)
sim.osb/unschedulable        "true": no node fits
sim.osb/fail                 "true": phase Failed instead of Ready; on a running pod: at once
sim.osb/fail-after           phase Failed so long after Ready
sim.osb/crash-after          every container ends so long after Ready and restarts as the policy says
sim.osb/complete-after       phase Succeeded so long after Ready
sim.osb/exit-code            of the container that ends (default 1 for fail and crash, 0 for Jobs)
sim.osb/termination-message  of a Job's pod; default: what the image committer writes
sim.osb/stop-after           how long the pod takes to stop when deleted, at most its grace period (default 0)
sim.osb/exec                 ignore (success, nothing happens), error (exit code 1), hang (no answer)
sim.osb/restart-after        how long a container takes from the end to running again (default 0)
sim.osb/commit               on the pod that a commit Job names: fail, hang, or a termination message
===========================  ==============================================================================

Annotations may be changed while the pod runs; the kubelet then acts on what changed.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

Obj = dict[str, Any]

PREFIX = "sim.osb/"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|)")
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float | None:
    """`1m30s`, `500ms`, `2.5` (seconds); None for anything else."""
    total, at = 0.0, 0
    for match in _DURATION.finditer(text.strip()):
        if match.start() != at:
            return None
        total += float(match[1]) * _UNITS[match[2]]
        at = match.end()
    return total if at and at == len(text.strip()) else None


@dataclass(frozen=True, slots=True)
class Script:
    """The annotations of one pod, decoded. Times in seconds; None means it does not happen."""

    ready_after: float = 0.5
    running_after: float | None = None
    never_ready: bool = False
    waiting_reason: str = ""
    waiting_for: float = math.inf
    unschedulable: bool = False
    fail: bool = False
    fail_after: float | None = None
    crash_after: float | None = None
    complete_after: float | None = None
    exit_code: int | None = None
    termination_message: str | None = None
    stop_after: float = 0.0
    exec: str = ""
    restart_after: float = 0.0
    commit: str = ""


_TIMES = ("ready_after", "running_after", "waiting_for", "fail_after", "crash_after", "complete_after",
"stop_after",
          "restart_after")  # fmt: skip
_FLAGS = ("never_ready", "unschedulable", "fail")
_TEXTS = ("waiting_reason", "exec", "commit", "termination_message")


def script_of(pod: Obj, *, ready_after: float) -> Script:
    """Unreadable values count as absent."""
    found = marks(pod)
    values: Obj = {"ready_after": ready_after}
    for name in (*_TIMES, *_FLAGS, *_TEXTS, "exit_code"):
        text = found.get(name.replace("_", "-"))
        if text is None:
            continue
        if name in _TIMES:
            value: Any = seconds(text)
        elif name in _FLAGS:
            value = text.lower() not in ("", "false", "0")
        elif name == "exit_code":
            value = int(text) if text.lstrip("-").isdigit() else None
        else:
            value = text
        if value is not None:
            values[name] = value
    return Script(**values)


def marks(pod: Obj) -> dict[str, str]:
    """The sim.osb/ annotations without their prefix."""
    annotations = pod["metadata"].get("annotations") or {}
    return {key.removeprefix(PREFIX): value for key, value in annotations.items() if key.startswith(PREFIX)}
