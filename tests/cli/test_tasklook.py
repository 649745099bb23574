"""The tasks section of `osbctl explain sandbox`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from osb.api import batchsandbox
from osb.api.batchsandbox import BoxSpec
from osb.cli.tasklook import line, unfinished
from osb.decide.tasknode import ASSIGNED, COMPLETED, RELEASED, RELEASING, RUNNING, SUCCEED, Node
from osb.local.demo import box_body
from tests.cli.conftest import Called, Installation

Osbctl = Callable[..., Called]


def box(replicas: int, **status: Any) -> BoxSpec:
    body = box_body("b", replicas)
    body["metadata"] |= {"namespace": "default", "uid": "u", "resourceVersion": "1"}
    return batchsandbox.parse({**body, "status": status})


def test_open_tasks_are_those_without_a_result_or_being_stopped_troubled_ones_first() -> None:
    nodes = {
        0: Node(index=0, resource=COMPLETED, state=SUCCEED),
        1: Node(index=1, resource=ASSIGNED, state=RUNNING, pod_uid="u1"),
        2: Node(index=2, resource=RELEASING, state=SUCCEED),
        4: Node(index=4, resource=ASSIGNED, pod_uid="u4", error="refused"),
        6: Node(index=6, resource=RELEASING),
        7: Node(index=7, resource=RELEASED),
    }
    assert [node.index for node in unfinished(nodes, box(5))] == [4, 1, 2, 3, 6]
    assert unfinished(nodes, box(5, phase="Paused")) == []


def test_a_task_in_one_line() -> None:
    assert line(Node(index=3)) == "3: pending  no pod"
    busy = Node(index=1, resource=ASSIGNED, state=RUNNING, pod="b-1", restarts=2, error="a\nb", fails=4)
    assert line(busy) == "1: assigned, RUNNING  pod b-1  restarts 2  last error: a b (4 calls in a row)"
    assert (
        line(Node(index=2, resource=RELEASING, pod="b-2", why="pause"))
        == "2: releasing, UNKNOWN  pod b-2  stopped for pause"
    )
    silent = Node(index=4, pod="b-4", fails=3, error="recovering: refused")
    assert line(silent) == "4: pending, UNKNOWN  pod b-4  last error: recovering: refused (3 calls in a row)"
    assert line(Node(index=5, pod="b-5"), back=True) == "5: pending  its slot was given back: it gets no pod any more"
    assert len(line(Node(index=0, error="x" * 999))) < 200


def test_explain_shows_counters_ten_lines_of_tasks_and_the_rest_as_a_number(
    osbctl: Osbctl, installation: Installation
) -> None:
    body = box_body("tasked", 12)
    body["spec"] |= {"poolRef": "nowhere", "taskTemplate": {"spec": {"process": {"command": ["true"]}}}}
    installation.kube.create("batchsandbox", "default", body)
    try:
        said = osbctl("explain", "sandbox", "tasked").out
        _, _, section = said.partition("\ntasks:\n")
        shown = section.partition("\n\n")[0].splitlines()
        assert shown[0].strip() == "running 0, succeed 0, failed 0, unknown 0, pending 12"
        assert shown[1].strip() == "0: pending  no pod"
        assert shown[10].strip() == "and 3 more (-o json shows all)"
        tasks = json.loads(osbctl("explain", "sandbox", "tasked", "-o", "json").out)["tasks"]
        assert (tasks["pending"], len(tasks["open"])) == (12, 12)
        assert "\ntasks:" not in osbctl("explain", "sandbox", "pair").out
        installation.until("the poll is told", lambda: "polled" in osbctl("explain", "sandbox", "tasked").out)
    finally:
        uid = installation.kube.get("batchsandbox", "default", "tasked")["metadata"]["uid"]
        installation.kube.delete("batchsandbox", "default", "tasked", uid=uid)
