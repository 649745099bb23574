"""Restarting a returned pod: the pool decides, the pod's own key runs the commands."""

from __future__ import annotations

import orjson
import pytest

from osb.api import names
from osb.api.key import POOL
from osb.errors import Conflict, Fenced
from osb.sim import SimCluster
from tests.doubles.passworld import Passes


def returned(passes: Passes) -> str:
    """A pod of a pool with Restart whose sandbox is being deleted."""
    template = {"spec": {"containers": [{"name": "main", "image": "img"}], "restartPolicy": "Always"}}
    [pod] = passes.warm(recycleStrategy={"type": "Restart"}, template=template)
    passes.box()
    passes.pool_pass()
    passes.delete("batchsandbox", "b")
    passes.pool_pass(times=2)
    return pod


def restarts(passes: Passes, pod: str) -> dict[str, object]:
    text = (passes.get("pod", pod)["metadata"].get("annotations") or {}).get(names.RESTART_RECORD)
    found: dict[str, object] = orjson.loads(text) if text else {}
    return found


def test_the_pools_pass_runs_no_command_and_asks_for_the_pods_own_key(passes: Passes, simulated: SimCluster) -> None:
    pod = returned(passes)
    assert not any("exec" in call for call in simulated.stats())
    assert [found.key.name for found in passes.store.queue.listing("recycle", "dirty")] == [pod]
    assert restarts(passes, pod) == {}
    assert passes.entries()[pod].state == "rel"


def test_an_attempt_on_an_old_view_of_the_pod_writes_nothing_and_runs_nothing(passes: Passes) -> None:
    pod = returned(passes)
    seen: list[str] = []

    def meanwhile(step: str) -> None:
        seen.append(step)
        if step == "attempt":
            passes.patch("pod", pod, {"metadata": {"labels": {"touched": "yes"}}})

    with pytest.raises(Conflict):
        passes.run("recycle", pod, step=meanwhile)
    assert "attempt-open" not in seen
    assert restarts(passes, pod) == {}


def test_attempts_are_counted_on_the_live_pod_and_not_sooner_than_the_interval(passes: Passes) -> None:
    pod = returned(passes)
    passes.run("recycle", pod)
    assert restarts(passes, pod)["retryCount"] == 1
    passes.run("recycle", pod)  # the mirror still shows the pod without its record
    assert restarts(passes, pod)["retryCount"] == 1
    passes.run("recycle", pod, turn=31)
    assert restarts(passes, pod)["retryCount"] == 2


def test_a_pod_whose_worker_vanished_amid_an_attempt_is_deleted_by_the_next_pass_of_its_pool(passes: Passes) -> None:
    pod = returned(passes)

    def vanish(step: str) -> None:
        if step == "attempt-open":
            raise Fenced("the worker is gone")

    with pytest.raises(Fenced):
        passes.run("recycle", pod, step=vanish)
    passes.sync()
    assert "left open" in passes.run("recycle", pod).summary
    passes.run(POOL, "warm")  # on what the mirror has by itself
    assert not passes.there("pod", pod)


def test_a_restarted_pod_is_acknowledged_cleaned_and_handed_out_again(passes: Passes) -> None:
    pod = returned(passes)
    passes.run("recycle", pod)
    raw = passes.get("pod", pod)
    containers = [{**raw["status"]["containerStatuses"][0], "containerID": f"sim://{pod}/2"}]
    body = {
        "metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]},
        "status": {"containerStatuses": containers},
    }
    passes.patch("pod", pod, body, sub="status")
    passes.pool_pass(times=2)
    assert not passes.there("batchsandbox", "b")
    assert passes.entries()[pod].state == "free"
    assert restarts(passes, pod) == {}
    passes.box("next")
    passes.pool_pass()
    assert pod in passes.record("next")


def test_a_sandbox_that_waits_for_a_restart_says_so_in_the_log_and_on_itself(passes: Passes) -> None:
    pod = returned(passes)
    passes.run("recycle", pod)
    said = passes.box_pass().summary
    assert names.FINALIZER_POOL in said and f"pod {pod}: recycle policy Restart, restart 1 of 3" in said
    # And after a minute the sandbox itself shows it
    passes.box_pass(turn=61)
    shown = passes.condition("batchsandbox", "b", names.PROGRESSING)
    assert shown is not None and shown["reason"] == names.REASON_WAITING_FOR_RECYCLING
    assert f"pod {pod}" in shown["message"]


def test_a_sandbox_of_a_pool_on_hold_says_that_the_pool_is_on_hold(passes: Passes) -> None:
    passes.warm()
    passes.box()
    passes.pool_pass()
    passes.patch("pool", "warm", {"metadata": {"annotations": {names.HOLD: "maintenance"}}})
    passes.delete("batchsandbox", "b")
    passes.pool_pass(times=2)
    assert "which is on hold" in passes.box_pass().summary
