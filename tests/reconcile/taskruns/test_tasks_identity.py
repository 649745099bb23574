"""What is remembered of tasks belongs to one life of a sandbox."""

from __future__ import annotations

from osb.api import names
from tests.reconcile.taskruns.conftest import QUICK, Make


def test_a_sandbox_made_again_under_its_name_starts_its_tasks_anew(make: Make) -> None:
    world = make(pooled=False, taskTemplate=QUICK)
    world.run()
    first = world.box["metadata"]["uid"]
    assert world.nodes()
    # When it disappears while nobody looks, and is made again
    world.box = world.kube.get("batchsandbox", world.ns, "b")
    world.patch({"metadata": {"resourceVersion": world.box["metadata"]["resourceVersion"], "finalizers": None}})
    world.delete()
    world.box = world._make_box(1, {"taskTemplate": QUICK})
    world.pod(0, ip="10.1.7.7")
    world.sync()
    assert world.box["metadata"]["uid"] != first
    # Then nothing of the first one's counts
    assert world.nodes() == {}
    world.run()
    assert world.bench.runs("10.1.7.7")


def test_what_is_remembered_goes_with_the_sandbox(make: Make) -> None:
    world = make(pooled=False, taskTemplate=QUICK)
    world.run()
    assert world.nodes()
    world.box = world.kube.get("batchsandbox", world.ns, "b")
    finalizers = [one for one in world.finalizers() if one != names.FINALIZER_TASKS]
    world.patch({"metadata": {"resourceVersion": world.box["metadata"]["resourceVersion"], "finalizers": finalizers}})
    world.delete()
    world.run()
    assert world.nodes() == {}
