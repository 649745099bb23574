"""`DriveView`: all input of one task decision; `Step`: all output. Pure data; see `osb.decide.tasks`.

In: gathered by `osb.reconcile.tasks` from the mirror, the store of nodes and the executors' answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from osb.decide.plan import EmitEvent
from osb.decide.tasknode import Answer, Node, TaskCounters
from osb.decide.taskresults import Results
from osb.errors import InvalidInput

Intent = Literal["run", "delete", "pause", "hold"]
RUN: Intent = "run"
DELETE: Intent = "delete"
PAUSE: Intent = "pause"
HOLD: Intent = "hold"

SILENT_SECONDS = 8.0  # stop deadline of an executor that answers nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPod:
    """A pod of the sandbox that exists now, with its slot (`index`).

    `usable`: has an IP, not terminating, not terminal.
    `over`: terminal, so no process of it is left.
    """

    index: int
    name: str
    uid: str
    ip: str
    usable: bool
    ready: bool = False
    over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveView:
    """All input of one task decision. Times in seconds.

    `now`: when the answers were in.
    `began`: when the pass began.
    `nodes`: what Redis knew, possibly nothing.
    `answers`: by pod UID, only of this pass.
    `tasks`: the generated task of each index, or why there is none.
    `recorded`, `given`: the pod names of alloc-status and alloc-release.
    `slots`: how many slots still exist; after a scale-in of a pooled sandbox more than `replicas` for a moment.
    `ran`: tasks were running when the status was written.
    `doomed`, `lost`: slots that get no other pod when theirs is lost, and those whose pod is lost
      (`lostPodPolicy: Fail`).
    """

    box: str
    replicas: int
    intent: Intent
    release: bool
    pooled: bool
    now: float
    began: float
    pods: Mapping[str, TaskPod] = field(default_factory=dict)
    nodes: Mapping[int, Node] = field(default_factory=dict)
    answers: Mapping[str, Answer] = field(default_factory=dict)
    tasks: Mapping[int, Mapping[str, Any] | InvalidInput] = field(default_factory=dict)
    results: Results = field(default_factory=Results)
    recorded: frozenset[str] = frozenset()
    given: frozenset[str] = frozenset()
    slots: int = 0
    ran: bool = False
    doomed: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()
    stop_timeout: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One mutating call: `task` None = clear. `needs_results`: only after the results are durable."""

    index: int
    pod: str
    pod_uid: str
    ip: str
    task: Mapping[str, Any] | None = None
    needs_results: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDelete:
    name: str
    uid: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one pass does, in this order.

    Store `nodes`; patch `results`, `give`, `force` and `reopen` (slots whose pod `delete` takes from a living
    sandbox) into the annotations; make `calls`; `delete` pods; remove the finalizer when `finished`; look again
    after `again` seconds (None = when something happens).
    """

    nodes: Mapping[int, Node]
    counters: TaskCounters
    calls: tuple[Call, ...] = ()
    results: Results | None = None
    give: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    reopen: tuple[str, ...] = ()
    delete: tuple[PodDelete, ...] = ()
    events: tuple[EmitEvent, ...] = ()
    finished: bool = False
    again: float | None = None
    reasons: tuple[str, ...] = ()
