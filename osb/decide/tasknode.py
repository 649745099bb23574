"""`Node`: what the controller remembers about one task; `Answer`: what its executor said. Pure data.

In: nothing. Out: the types that `osb.decide.tasks` (the transition), `osb.apply.tasks` (the client) and
`osb.reconcile.tasks` (the pass) share. Nodes are kept in Redis per sandbox UID (`osb.store.taskstate`); a lost
node is derived again from what the executors report and from the `task-results` annotation (spec/tasks.md 7).

=========  ==========================================================================================
resource   meaning
=========  ==========================================================================================
pending    no pod yet
assigned   bound to a pod by UID, no final result
completed  a final result is latched; it never changes again
releasing  being stopped: the executor is asked to drop it until it says that it did
released   over: no call is ever made for it again, its binding is gone
=========  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from osb.api.record import derived

PENDING = "pending"
ASSIGNED = "assigned"
COMPLETED = "completed"
RELEASING = "releasing"
RELEASED = "released"

RUNNING = "RUNNING"
SUCCEED = "SUCCEED"
FAILED = "FAILED"
UNKNOWN = "UNKNOWN"
FINAL = frozenset({SUCCEED, FAILED})

UNREACHABLE_AFTER = 3  # failed calls in a row
INVALID = "invalid task: "  # how the error of a task begins that is not sent
NAME_LIMIT = 255  # executors make a folder of the name

# the result of a task whose pod is lost and not replaced; the code is that of a killed process
POD_LOST = "PodLost"
POD_LOST_CODE = 137

# why a node is being stopped, or was
BY_DELETE = "delete"
BY_PAUSE = "pause"
BY_SCALE_IN = "scale-in"
BY_RESULT = "result"


class Node(msgspec.Struct, frozen=True, array_like=True, kw_only=True, omit_defaults=True):
    """One task. Times are seconds since the epoch, 0 = never. New members go at the end (array form in Redis)."""

    index: int
    resource: str = PENDING
    state: str = ""
    pod: str = ""
    pod_uid: str = ""
    ip: str = ""
    exit_code: int = 0
    reason: str = ""
    finished_at: str = ""
    why: str = ""
    stop_since: float = 0.0
    heard: float = 0.0  # last successful answer from its pod
    asked: float = 0.0  # last time we asked, answered or not
    sent: float = 0.0  # last successful start call on this binding
    started: bool = False  # it was seen running (or its start was acknowledged) on this binding
    fails: int = 0  # calls in a row that failed
    hold_until: float = 0.0  # do not start it before (back-off)
    restarts: int = 0
    dirty: bool = False  # given up at its stop deadline: its process may still run
    error: str = ""
    tried: float = 0.0  # last start call, answered or not: a late one may still land
    refusals: int = 0  # start calls in a row that the executor refused
    digest: str = ""  # of the task as it was last sent
    told: str = ""  # digest of the refusal that an event told
    recovering: bool = False  # it may run already: it did when it was forgotten, and no pod has said where

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def bound(self) -> bool:
        return bool(self.pod_uid)

    @property
    def invalid(self) -> bool:
        return self.error.startswith(INVALID)

    @property
    def silent(self) -> bool:
        """Nothing usable was heard from its executor for a while, and somebody waits for that."""
        return self.fails >= UNREACHABLE_AFTER and not self.invalid and not self.final


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """One task as an executor lists it, reduced to what decisions need."""

    name: str
    state: str = UNKNOWN
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str = ""
    deleting: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one call.

    `ok`: HTTP 200 with a valid list.
    `heard`: the executor spoke at all, 500 and garbage included; a refused or timed-out call is silence
      (spec/tasks.md 6: the two stop deadlines).
    `error`: what happened when not `ok`.
    """

    ok: bool
    tasks: tuple[Observed, ...] = ()
    heard: bool = True
    error: str = ""

    def find(self, name: str) -> Observed | None:
        return next((task for task in self.tasks if task.name == name), None)


class TaskCounters(msgspec.Struct, frozen=True, kw_only=True):
    """The five status fields; their sum is the number of tasks (spec/tasks.md 9)."""

    running: int = 0
    succeed: int = 0
    failed: int = 0
    unknown: int = 0
    pending: int = 0

    def status(self) -> dict[str, int]:
        return {
            "taskRunning": self.running,
            "taskSucceed": self.succeed,
            "taskFailed": self.failed,
            "taskUnknown": self.unknown,
            "taskPending": self.pending,
        }


def task_name(box: str, index: int) -> str:
    """`<sandbox>-<index>`; derived where that is longer than any executor's file system takes."""
    return derived(box, NAME_LIMIT, f"-{index}")


def index_of(box: str, name: str) -> int | None:
    """The index of a task of this sandbox, None for a foreign name (`b-1-0` is foreign to `b`)."""
    digits = name.rpartition("-")[2]
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        return None
    return int(digits) if name == task_name(box, int(digits)) else None


def observed(raw: Mapping[str, Any]) -> Observed | None:
    """One element of an executor's list; None when it is not a task (no name, wrong types)."""
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        return None
    state, ended = _state(raw)
    code = ended.get("exitCode", 0)
    return Observed(
        name=name,
        state=state,
        exit_code=code if isinstance(code, int) else 0,
        reason=_text(ended.get("reason")),
        message=_text(ended.get("message")),
        finished_at=_text(ended.get("finishedAt")),
        deleting=bool(raw.get("deletionTimestamp")),
    )


def _text(value: object) -> str:
    return value[:256] if isinstance(value, str) else ""


def _state(raw: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """State by spec/tasks.md 4: the process status first, then the pod status."""
    process = raw.get("processStatus")
    if isinstance(process, dict):
        ended = process.get("terminated")
        if isinstance(ended, dict):
            code = ended.get("exitCode")
            if not isinstance(code, int) or isinstance(code, bool):
                return UNKNOWN, {}
            return (SUCCEED if code == 0 else FAILED), ended
        return (RUNNING if isinstance(process.get("running"), dict) else UNKNOWN), {}
    pod = raw.get("podStatus")
    if isinstance(pod, dict):
        phase = pod.get("phase")
        ready = any(
            isinstance(c, dict) and c.get("type") == "Ready" and c.get("status") == "True"
            for c in (pod.get("conditions") or ())
        )
        if phase == "Succeeded":
            return SUCCEED, {}
        if phase == "Failed":
            return FAILED, {"exitCode": 1}
        if phase == "Running" and ready:
            return RUNNING, {}
    return UNKNOWN, {}


def tally(nodes: Iterable[Node]) -> TaskCounters:
    """Count nodes: a final result first, then pending, then by state; nothing is left out of the sum.

    Assigned and never seen is unknown, and so is a pending task whose executor was asked three times in vain; one
    that is not sent because it is invalid stays pending.
    """
    counts = {RUNNING: 0, SUCCEED: 0, FAILED: 0, UNKNOWN: 0, PENDING: 0}
    for node in nodes:
        if node.final:
            counts[node.state] += 1
        elif node.resource == PENDING:
            counts[UNKNOWN if node.silent else PENDING] += 1
        else:
            counts[node.state if node.state == RUNNING and node.resource != RELEASED else UNKNOWN] += 1
    return TaskCounters(
        running=counts[RUNNING],
        succeed=counts[SUCCEED],
        failed=counts[FAILED],
        unknown=counts[UNKNOWN],
        pending=counts[PENDING],
    )
