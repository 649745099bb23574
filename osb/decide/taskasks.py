"""Whom to ask in a pass, and who is past its stop deadline. Pure.

In: a `DriveView` without answers. Out: pod UIDs in the order to ask. Next: `osb.decide.tasks`.
"""

from __future__ import annotations

from osb.decide.tasknode import ASSIGNED, BY_PAUSE, COMPLETED, PENDING, RELEASED, RELEASING, UNREACHABLE_AFTER, Node
from osb.decide.taskview import DELETE, PAUSE, RUN, SILENT_SECONDS, DriveView


def overdue(node: Node, now: float, stop_timeout: float) -> bool:
    """True when a releasing node passed its stop deadline (it need not be asked again)."""
    if node.resource != RELEASING:
        return False
    if now - node.stop_since >= stop_timeout:
        return True
    return node.fails >= 2 and now - max(node.stop_since, node.heard) >= SILENT_SECONDS


def asks(view: DriveView) -> tuple[str, ...]:
    """UIDs of the pods to ask in this pass, longest unasked first, so that a budget that runs out is fair.

    Never a pod whose task is released. Finished tasks are asked about only while they are stopped; one that
    is past its stop deadline is not asked again; a pod that stays silent is asked ever more rarely while
    nothing is stopped.
    """
    wanted: dict[str, float] = {}
    bound = {n.pod_uid for n in view.nodes.values() if n.bound}
    for node in view.nodes.values():
        pod = view.pods.get(node.pod_uid) if node.bound else None
        if pod is not None and pod.ip and not pod.over and _ask_bound(view, node):
            wanted[pod.uid] = node.asked
    for pod in view.pods.values():
        if pod.uid in bound or not pod.ip or pod.over:
            continue
        known = view.nodes.get(pod.index)
        if known is None:
            wanted[pod.uid] = 0.0
        elif view.intent == RUN and _waits(known) and pod.usable and not _quiet(view, known):
            wanted[pod.uid] = known.asked
    return tuple(sorted(wanted, key=lambda uid: (wanted[uid], uid)))


def _ask_bound(view: DriveView, node: Node) -> bool:
    stopping = node.resource == RELEASING or view.intent in (DELETE, PAUSE) or node.index >= view.replicas
    if stopping or (view.release and node.resource == COMPLETED):
        return not overdue(node, view.now, view.stop_timeout)
    return node.resource == ASSIGNED and not _quiet(view, node)


def _waits(node: Node) -> bool:
    """Whether the task may be bound in this pass; one that only a pause has stopped may."""
    return node.resource in (PENDING, COMPLETED) or (node.resource == RELEASED and node.why == BY_PAUSE)


def _quiet(view: DriveView, node: Node) -> bool:
    """A silent executor is left alone for a while: 3 s doubling to 30 s."""
    if node.fails < UNREACHABLE_AFTER:
        return False
    doubled: float = 3.0 * 2 ** min(node.fails - UNREACHABLE_AFTER + 1, 5)
    return view.now - node.asked < min(doubled, 30.0)
