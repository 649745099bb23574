"""Statuses as they are written: every counter always present, conditions in their list, semantic equality.

In: values that a decision computed. Out: plain dicts for `osb.apply.status`. A status patch that lacks a
required counter is refused whole, and a merge patch never clears what it leaves out; both are dealt with here
(spec/batchsandbox.md 3, 11; spec/additions.md 4, 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from osb.api import times

Condition = dict[str, Any]


def with_condition(
    conditions: Iterable[Mapping[str, Any]],
    kind: str,
    *,
    reason: str,
    message: str,
    now: datetime,
    status: str = "True",
    generation: int | None = None,
) -> list[Condition]:
    """The list with that condition set, in its place or at the end.

    Its transition time moves only when the status flips; an absent condition counts as False.
    """
    kept = [dict(item) for item in conditions]
    prior = next((item for item in kept if item.get("type") == kind), None)
    before = prior.get("status", "False") if prior is not None else "False"
    since = prior.get("lastTransitionTime") if prior is not None and before == status else None
    made: Condition = {"type": kind, "status": status, "reason": reason, "message": message}
    made["lastTransitionTime"] = since or times.format(now)
    if generation is not None:
        made["observedGeneration"] = generation
    if prior is None:
        return [*kept, made]
    return [made if item is prior else item for item in kept]


def without_conditions(conditions: Iterable[Mapping[str, Any]], *kinds: str) -> list[Condition]:
    """The list without those types: a condition that does not hold is not stored as False."""
    return [dict(item) for item in conditions if item.get("type") not in kinds]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxStatus:
    """`status` of a BatchSandbox."""

    observed_generation: int
    pause_observed_generation: int = 0
    replicas: int = 0
    allocated: int = 0
    ready: int = 0
    task_running: int = 0
    task_succeed: int = 0
    task_failed: int = 0
    task_unknown: int = 0
    task_pending: int = 0
    phase: str = ""
    conditions: Sequence[Mapping[str, Any]] = ()

    def as_dict(self) -> dict[str, Any]:
        """All eight counters always; an empty phase is left out, as it is no value of the enum."""
        body: dict[str, Any] = {
            "observedGeneration": self.observed_generation,
            "pauseObservedGeneration": self.pause_observed_generation,
            "replicas": self.replicas,
            "allocated": self.allocated,
            "ready": self.ready,
            "taskRunning": self.task_running,
            "taskSucceed": self.task_succeed,
            "taskFailed": self.task_failed,
            "taskUnknown": self.task_unknown,
            "taskPending": self.task_pending,
        }
        if self.phase:
            body["phase"] = self.phase
        body["conditions"] = [dict(item) for item in self.conditions]
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """`status` of a Pool."""

    observed_generation: int
    revision: str
    total: int = 0
    allocated: int = 0
    available: int = 0
    updated: int = 0
    pending: int = 0
    terminating: int = 0
    waiting: int = 0
    unmet: int = 0
    target: int = 0
    target_reason: str = "bufferMin"
    conditions: Sequence[Mapping[str, Any]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Every counter, zero or not, so that no column is blank."""
        return {
            "observedGeneration": self.observed_generation,
            "revision": self.revision,
            "total": self.total,
            "allocated": self.allocated,
            "available": self.available,
            "updated": self.updated,
            "pending": self.pending,
            "terminating": self.terminating,
            "waiting": self.waiting,
            "unmet": self.unmet,
            "target": self.target,
            "targetReason": self.target_reason,
            "conditions": [dict(item) for item in self.conditions],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStatus:
    """`status` of a SandboxSnapshot; `containers` are (name, image, digest or "")."""

    observed_generation: int
    phase: str
    containers: Sequence[tuple[str, str, str]] = ()
    source_pod: str = ""
    source_pod_uid: str = ""
    source_node: str = ""
    job_uid: str = ""
    source_template: Mapping[str, Any] | None = None
    conditions: Sequence[Mapping[str, Any]] = ()

    def as_dict(self) -> dict[str, Any]:
        """What is known; empty texts are left out, the condition list never."""
        body: dict[str, Any] = {"observedGeneration": self.observed_generation, "phase": self.phase}
        known = {
            "sourcePodName": self.source_pod,
            "sourcePodUID": self.source_pod_uid,
            "sourceNodeName": self.source_node,
            "jobUID": self.job_uid,
            "sourceTemplate": self.source_template,
            "containers": [_container(*item) for item in self.containers],
        }
        body.update({name: value for name, value in known.items() if value})
        body["conditions"] = [dict(item) for item in self.conditions]
        return body


def _container(name: str, image: str, digest: str) -> dict[str, str]:
    made = {"containerName": name, "imageUri": image}
    return {**made, "imageDigest": digest} if digest else made


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Equal in meaning: an absent member, an empty one and null are alike; 0 and false are values."""
    return bool(_plain(one) == _plain(other))


def cleared(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch body that turns `old` into `new`: members that `new` lacks are set to null."""
    return {**dict.fromkeys((name for name in old if name not in new), None), **new}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        pairs = ((name, _plain(item)) for name, item in value.items())
        return {name: item for name, item in pairs if not (item is None or item == "" or item in ({}, []))}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
