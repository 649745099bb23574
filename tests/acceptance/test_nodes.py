"""Nodes as operators see them: a cordoned one loses its idle pods at once, and keeps those that somebody has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles.cluster import WAIT, Obj, Space, ready, record, template
from tests.doubles.controller import Controller
from tests.doubles.kubelet import bind, play_kubelet

PROMPTLY = 8.0  # seconds; it takes a hundredth of one, where two cores have nothing else to do


@pytest.fixture
def node(space: Space) -> Iterator[str]:
    """A node that only this test plays. At its end its pods have ended, as they do with their node."""
    name = f"own-{space.name}"
    space.kube.create("node", None, {"metadata": {"name": name}})
    yield name
    for box in space.all("batchsandbox"):
        space.delete("batchsandbox", box["metadata"]["name"])
    for pod in space.all("pod"):
        if pod["spec"].get("nodeName") == name:
            space.delete("pod", pod["metadata"]["name"], grace=0)
    space.gone("batchsandbox")
    space.kube.delete("node", None, name)


def _cordon(space: Space, node: str, value: bool | None = True) -> None:
    space.kube.patch("node", None, node, {"spec": {"unschedulable": value}})


def _unbound(space: Space) -> str:
    """A pod of the pool that has no node, once the fake scheduler has passed it over."""

    def look() -> str:
        waiting = (
            p for p in space.pods_of("warm") if not p["spec"].get("nodeName") and p.get("status", {}).get("conditions")
        )
        return next((p["metadata"]["name"] for p in waiting), "")

    return space.until("a pod without a node", look)


def _placed(space: Space, node: str, address: str) -> str:
    """The pool's next pod, running on that node."""
    pod = _unbound(space)
    bind(space, pod, node)
    play_kubelet(space, pod, address)
    return pod


def _has_one(pool: Obj) -> bool:
    return bool((pool.get("status") or {}).get("available") == 1)


def _leaves(space: Space, pod: str) -> bool:
    found = space.get("pod", pod)
    return found is None or bool(found["metadata"].get("deletionTimestamp"))


def _kubelet_node(space: Space) -> str:
    """The node of the fake kubelet, which runs what is bound to it."""
    nodes, _ = space.kube.all("node")
    return next(n["metadata"]["name"] for n in nodes if ready(n))


@pytest.mark.parametrize(
    ("before", "within"), [("at rest", PROMPTLY), ("when Redis has just lost everything", WAIT)], ids=["rest", "flush"]
)
def test_idle_pods_leave_a_cordoned_node_at_once_and_a_sandboxs_pod_stays(
    space: Space, controller: Controller, node: str, before: str, within: float
) -> None:
    # Given a pool whose pods are on one node: one held by a sandbox, one idle
    space.pool("warm", 1, 1, 0, 4, template=template(marks={"unschedulable": "true"}))
    held = _placed(space, node, "127.31.255.21")
    space.box("box")
    (box,) = space.served("box")
    assert record(box) == [held]
    idle = _placed(space, node, "127.31.255.22")
    space.until_pool("warm", _has_one)
    space.until("the pool rests", lambda: controller.at_rest("pool", f"{space.name}/warm"))
    # When the node is cordoned
    if before != "at rest":
        controller.redis.flushall()
    _cordon(space, node)
    # Then the idle pod leaves, without waiting for a sweep or a list
    space.until("the idle pod leaves", lambda: _leaves(space, idle), seconds=within)
    # and another takes its place elsewhere
    new = _unbound(space)
    bind(space, new, _kubelet_node(space))
    space.until_pod(new, ready)
    space.delete("pod", idle, grace=0)
    space.gone("pod", idle)
    space.until_pool("warm", _has_one)
    # and the sandbox has what it had
    kept: Obj = space.live("pod", held)
    assert ready(kept) and kept["metadata"]["uid"] == _uid_seen(space, held)
    assert record(space.live("batchsandbox", "box")) == [held]


def _uid_seen(space: Space, pod: str) -> str:
    (uid,) = {seen.obj["metadata"]["uid"] for seen in space.history("pod", pod)}
    return str(uid)


def test_idle_pods_stay_on_a_node_that_takes_pods_again(space: Space, controller: Controller, node: str) -> None:
    # Given an idle pod whose pool evicts nothing for the moment, on a cordoned node
    space.pool("warm", 1, 1, 0, 4, template=template(marks={"unschedulable": "true"}))
    idle = _placed(space, node, "127.31.255.23")
    space.until_pool("warm", _has_one)
    space.annotate("pool", "warm", hold="maintenance")
    _cordon(space, node)
    space.until("the pool rests", lambda: controller.at_rest("pool", f"{space.name}/warm"))
    # When the node takes pods again before the pool goes on
    _cordon(space, node, None)
    space.until(
        "the end of the cordon was told", lambda: controller.told("worker", f"node {node} is no longer cordoned")
    )
    space.annotate("pool", "warm", hold=None)
    space.box("box")
    # Then the idle pod has stayed
    (box,) = space.served("box")
    assert record(box) == [idle]
