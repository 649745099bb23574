"""Views, pods, nodes and answers for tests of the task state machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from osb.decide.taskgen import generate_all
from osb.decide.tasknode import (
    ASSIGNED,
    FAILED,
    RUNNING,
    SUCCEED,
    Answer,
    Node,
    Observed,
)
from osb.decide.taskview import RUN, DriveView, Step, TaskPod

NOW = 1_000.0
TEMPLATE = {"spec": {"process": {"command": ["sleep", "60"]}}}
SILENCE = Answer(ok=False, heard=False, error="cannot connect")
BROKEN = Answer(ok=False, heard=True, error="status=500")


def pod(index: int, *, uid: str = "", **changes: Any) -> TaskPod:
    facts: dict[str, Any] = {
        "index": index,
        "name": f"p{index}",
        "uid": uid or f"u{index}",
        "ip": f"10.0.0.{index + 1}",
        "usable": True,
    }
    return TaskPod(**(facts | changes))


def says(*listed: Observed | str) -> Answer:
    return Answer(ok=True, tasks=tuple(Observed(name=t, state=RUNNING) if isinstance(t, str) else t for t in listed))


def ended(name: str, code: int = 0, reason: str = "") -> Observed:
    return Observed(name=name, state=FAILED if code else SUCCEED, exit_code=code, reason=reason)


def node(index: int = 0, **changes: Any) -> Node:
    facts: dict[str, Any] = {
        "index": index,
        "resource": ASSIGNED,
        "state": RUNNING,
        "pod": f"p{index}",
        "pod_uid": f"u{index}",
        "ip": f"10.0.0.{index + 1}",
        "heard": NOW - 3,
        "asked": NOW - 3,
        "sent": NOW - 10,
        "tried": NOW - 10,
        "started": True,
    }
    return Node(**(facts | changes))


def view(replicas: int = 1, **changes: Any) -> DriveView:
    pods = changes.pop("pods", [pod(i) for i in range(replicas)])
    nodes = changes.pop("nodes", [])
    template = changes.pop("template", TEMPLATE)
    patches = changes.pop("patches", ())
    facts: dict[str, Any] = {
        "box": "b",
        "replicas": replicas,
        "intent": RUN,
        "release": False,
        "pooled": True,
        "now": NOW,
        "began": NOW,
        "pods": {p.uid: p for p in pods},
        "nodes": {n.index: n for n in nodes},
        "tasks": generate_all("b", replicas, template=template, patches=patches),
        "recorded": frozenset(p.name for p in pods),
    }
    return DriveView(**(facts | changes))


def reasons(step: Step) -> list[str]:
    return [event.reason for event in step.events]


def change_answers(seen: DriveView, answers: dict[str, Answer]) -> DriveView:
    return replace(seen, answers=answers)
