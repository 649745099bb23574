"""A hundred tasks of every kind at once, with a worker killed, a pod deleted and executors that misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from osb.api import names
from tests.acceptance.test_tasks import counts, fake, task
from tests.doubles.cluster import Obj, Space, note, ready, record, template
from tests.doubles.controller import Controller
from tests.doubles.executors import MARK, Executors, executors
from tests.doubles.kubelet import play_kubelet

TASKS = 100
REAL = 16  # executors that are processes of their own; the others share one thread


@pytest.fixture
def runs(space: Space, tmp_path: Path) -> Iterator[Executors]:
    with executors(space, tmp_path) as one:
        yield one


def patch_of(runs: Executors, index: int) -> Obj:
    """Every fifth fails, every tenth runs into its timeout, the others take 0 to 3 s, real ones after a gate."""
    gate = runs.gate("many")
    if _times_out(index):
        then, wanted, limit = "sleep 300", fake(300), {"timeoutSeconds": 1}
    elif index % 5 == 4:
        then, wanted, limit = f"{gate}; exit 7", fake(index % 4, code=7), {}
    else:
        then, wanted, limit = f"{gate}; sleep {index % 4}", fake(index % 4), {}
    process = runs.shell(f"many-{index}", then)
    return {"spec": {"process": {**process, "env": wanted["env"]}, **limit}}


def test_a_hundred_tasks_end_with_the_right_numbers_whatever_fails_meanwhile(
    space: Space, runs: Executors, controller: Controller
) -> None:
    # Given a pool of a hundred: some pods with executor processes, one that hangs, one that talks nonsense
    order: list[str] = []

    def kind(pod: Obj) -> str:
        uid = pod["metadata"]["uid"]
        if uid not in order:
            order.append(uid)
        at = order.index(uid)
        return "real" if at < REAL else "hang" if at == REAL else "garbage" if at == REAL + 1 else "fake"

    runs.kind_of = kind
    space.warm("warm", TASKS, TASKS, 0, 150)
    space.until("executors listen", lambda: len(runs.on) >= TASKS)
    odd = set(order[REAL : REAL + 2])
    # When a hundred tasks are asked for
    space.box("many", TASKS, taskTemplate=task(fake(1)), taskResourcePolicyWhenCompleted="Release",
              shardTaskPatches=[patch_of(runs, i) for i in range(TASKS)])  # fmt: skip
    # (at most ten real ones run into their timeout: the six others wait at the gate, so this is always reached)
    space.until_box("many", lambda b: counts(b)[0] >= REAL - TASKS // 10)
    # and a worker dies, and a pod whose task runs, and later the two odd ones are taken away
    controller.kill("worker-1")
    box = space.live("batchsandbox", "many")
    waiting = {name: at for at, name in enumerate(record(box)) if not _times_out(at) and _is(space, name, order[:REAL])}
    running = space.until(
        "a real task started", lambda: next((n for n, i in waiting.items() if runs.ran(f"many-{i}")), "")
    )
    space.delete("pod", running, grace=0)
    controller.spawn("worker-1")
    runs.open("many")
    space.until_box("many", lambda b: sum(counts(b)[1:3]) >= TASKS - 3 and counts(b)[3] <= 2)
    for pod in space.all("pod"):
        if pod["metadata"]["uid"] in odd:
            space.delete("pod", pod["metadata"]["name"], grace=0)
    # Then the numbers are right
    done = space.until_box("many", lambda b: counts(b) == (0, 80, 20, 0, 0), seconds=60)
    results = note(space.live("batchsandbox", "many"), names.TASK_RESULTS)
    assert sorted(map(int, results["failed"])) == [i for i in range(TASKS) if i % 5 == 4]
    assert all(why[1] == "TaskTimeout" for at, why in results["failed"].items() if _times_out(int(at)))
    # nothing ran twice but what a lost pod took with it
    again = done["metadata"]["name"] + f"-{waiting[running]}"
    ran = {f"many-{i}": runs.ran(f"many-{i}") + runs.starts[f"many-{i}"] for i in range(TASKS)}
    assert {name: n for name, n in ran.items() if n != 1} == {again: 2}
    # all pods are back, and nothing holds the sandbox
    space.until_pool("warm", lambda p: p["status"]["allocated"] == 0, seconds=40)
    space.delete("batchsandbox", "many")
    space.gone("batchsandbox")
    space.until("nothing but idle pods", lambda: all(ready(p) for p in space.all("pod")), seconds=40)


def _times_out(index: int) -> bool:
    return index % 10 == 9


def _is(space: Space, name: str, uids: list[str]) -> bool:
    pod = space.get("pod", name)
    return pod is not None and pod["metadata"]["uid"] in uids


def test_an_address_used_again_by_another_sandboxs_pod_gets_nothing_meant_for_the_first(
    space: Space, runs: Executors
) -> None:
    # Given pods on a node that only this test plays, so that it can give an address twice
    own_node = template(annotations={MARK: "fake"})
    own_node["spec"]["nodeName"] = "nobody"
    space.kube.create("node", None, {"metadata": {"name": "nobody"}})
    try:
        address = "127.31.255.1"
        space.box("first", 1, pool=None, template=own_node, taskTemplate=task(fake()))
        play_kubelet(space, "first-0", address)
        space.until_box("first", lambda b: counts(b)[0] == 1)
        # When the first pod goes and the second sandbox's pod gets its address
        space.box("second", 1, pool=None, template=own_node, taskTemplate=task(fake()))
        space.until("its pod", lambda: space.get("pod", "second-0"))
        space.delete("batchsandbox", "first")
        space.delete("pod", "first-0", grace=0)
        play_kubelet(space, "second-0", address)
        # Then the first sandbox ends without a word to that address
        space.gone("batchsandbox", "first")
        space.until_box("second", lambda b: counts(b)[0] == 1)
        _, one = runs.on[space.live("pod", "second-0")["metadata"]["uid"]]
        assert [t["name"] for t in one.table.listed()] == ["second-0"]
        assert runs.starts == {"first-0": 1, "second-0": 1}
        space.delete("batchsandbox", "second")
        space.gone("batchsandbox")
        space.until("the pod was asked to go", lambda: not space.all("pod") or _leaving(space))
        for pod in space.all("pod"):
            space.delete("pod", pod["metadata"]["name"], grace=0)
    finally:
        space.kube.delete("node", None, "nobody")


def _leaving(space: Space) -> bool:
    return all(p["metadata"].get("deletionTimestamp") for p in space.all("pod"))
