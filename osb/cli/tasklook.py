"""The tasks of a sandbox, for `osbctl explain`: counters, what each open task waits for, when they are polled next.

Counters and states are those that the next pass would use (`osb.decide.tasks`, `osb.store.taskstate`). Reads only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from osb.api import batchsandbox, claims, names
from osb.api.batchsandbox import BoxSpec
from osb.api.key import TASKS, Key
from osb.cli import output as out
from osb.cli.context import Reach
from osb.cli.look import Look
from osb.decide.tasknode import ASSIGNED, PENDING, RELEASED, RELEASING, UNKNOWN, UNREACHABLE_AFTER, Node
from osb.decide.tasks import counters, results_of

SHOWN = 10  # lines of single tasks
ERROR_SHOWN = 160


def lines(reach: Reach, found: Look) -> Iterator[str]:
    """The section's lines; none without tasks."""
    spec = batchsandbox.parse(found.raw)
    nodes = _nodes(reach, spec)
    if nodes is None:
        return
    yield ", ".join(f"{name} {count}" for name, count in _counts(nodes, spec).items())
    open_ = unfinished(nodes, spec)
    kept = open_ if len(open_) <= SHOWN else open_[: SHOWN - 1]
    back = claims.given_back(spec)
    yield from (line(node, back=node.index in back) for node in kept)
    if len(open_) > len(kept):
        yield f"and {len(open_) - len(kept)} more (-o json shows all)"
    if polled := _polled(reach, spec):
        yield polled


def data(reach: Reach, found: Look) -> dict[str, Any] | None:
    """The same for `-o json`, with every open task; None without tasks."""
    spec = batchsandbox.parse(found.raw)
    nodes = _nodes(reach, spec)
    if nodes is None:
        return None
    back = claims.given_back(spec)
    return {
        **_counts(nodes, spec),
        "open": [
            {
                "index": n.index,
                "resource": n.resource,
                "state": _state(n),
                "pod": n.pod,
                "error": n.error,
                "givenBack": n.index in back,
            }
            for n in unfinished(nodes, spec)
        ],
        "polled": _polled(reach, spec) or None,
    }


def unfinished(nodes: dict[int, Node], spec: BoxSpec) -> list[Node]:
    """Tasks without a final result and those being stopped; the ones in trouble first."""
    known = results_of(spec)
    if spec.phase == names.PAUSED:
        return []
    wanted = [nodes.get(i) or known.node(i) or Node(index=i) for i in range(spec.replicas)]
    beyond = [node for i, node in nodes.items() if i >= spec.replicas and node.resource != RELEASED]
    open_ = (node for node in [*wanted, *beyond] if node.resource == RELEASING or not node.final)
    return sorted(open_, key=lambda node: (not node.error, node.index))


def line(node: Node, *, back: bool = False) -> str:
    """`3: assigned, RUNNING  pod box-3  restarts 2  last error: connection refused (4 calls in a row)`.

    `back`: its slot was given back, so it gets no other pod.
    """
    state = _state(node)
    parts = [f"{node.index}: {node.resource}" + (f", {state}" if state else "")]
    if back and not node.bound:
        parts.append("its slot was given back: it gets no pod any more")
    else:
        parts.append(f"pod {node.pod}" if node.pod else "no pod" if node.resource == PENDING else "")
    parts.append(f"stopped for {node.why}" if node.resource == RELEASING and node.why else "")
    parts.append(f"restarts {node.restarts}" if node.restarts else "")
    if node.error:
        text = " ".join(node.error.split())
        text = text if len(text) <= ERROR_SHOWN else f"{text[: ERROR_SHOWN - 3]}..."
        often = f" ({node.fails} calls in a row)" if node.silent else ""
        parts.append(f"last error: {text}{often}")
    return "  ".join(part for part in parts if part)


def _state(node: Node) -> str:
    """As the counters count it (`osb.decide.tasknode.tally`)."""
    if node.resource == PENDING and node.fails >= UNREACHABLE_AFTER:
        return UNKNOWN
    return node.state or (UNKNOWN if node.resource in (ASSIGNED, RELEASING) else "")


def _nodes(reach: Reach, spec: BoxSpec) -> dict[int, Node] | None:
    """None for a sandbox that has no tasks and had none."""
    nodes = reach.store.tasks.get_all(spec.uid, Node)
    return nodes if nodes or spec.task_template is not None else None


def _counts(nodes: dict[int, Node], spec: BoxSpec) -> dict[str, int]:
    count = counters(nodes.values(), spec)
    return {
        "running": count.running,
        "succeed": count.succeed,
        "failed": count.failed,
        "unknown": count.unknown,
        "pending": count.pending,
    }


def _polled(reach: Reach, spec: BoxSpec) -> str:
    seen = reach.store.queue.peek(Key(TASKS, spec.namespace, spec.name))
    if seen.running:
        return "polled right now"
    if seen.dirty_ms is not None:
        return "to be polled as soon as a worker is free"
    return "" if seen.due_ms is None else f"polled next in {out.span(max(0, seen.due_ms) / 1000)}"
