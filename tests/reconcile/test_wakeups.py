"""Whoever could be served has asked for the pass that serves: nothing here runs that the queue does not ask for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from osb.api import names
from tests.doubles.following import rest, undone
from tests.doubles.passworld import Passes


def served(passes: Passes, *boxes: str, policy: str = "Delete", grace: int = 0) -> None:
    """A pool with three pods more than the sandboxes hold, and all of it at rest."""
    spec = {"containers": [{"name": "main", "image": "img"}], "terminationGracePeriodSeconds": grace}
    passes.pool("warm", 3, 3, 0, 9, recycleStrategy={"type": policy}, template={"spec": spec})
    rest(passes)
    for name in boxes:
        passes.box(name)
    rest(passes)
    assert all(passes.record(name) for name in boxes)


def without_record(passes: Passes) -> None:
    passes.annotate("batchsandbox", "s", alloc_status=None, endpoints=None)


def manifest_again(passes: Passes) -> None:
    """`kubectl replace -f`: what the controller wrote beside the spec is gone."""
    meta = {"resourceVersion": passes.get("batchsandbox", "s")["metadata"]["resourceVersion"]}
    passes.patch("batchsandbox", "s", {"metadata": {**meta, "annotations": None, "finalizers": None}})


EDITS = [without_record, manifest_again]


@pytest.mark.parametrize("edit", EDITS, ids=lambda e: e.__name__)
@pytest.mark.parametrize("grace", [0, 30], ids=["gone at once", "gone later"])
@pytest.mark.parametrize("policy", ["Delete", "Noop"])
def test_a_sandbox_that_lost_its_record_is_served_again_and_its_former_pod_recycled(
    passes: Passes, edit: Callable[[Passes], None], policy: str, grace: int
) -> None:
    served(passes, "s", policy=policy, grace=grace)
    (former,) = passes.record("s")
    edit(passes)
    rest(passes)
    assert passes.get("batchsandbox", "s")["status"]["phase"] == names.SUCCEED
    assert names.FINALIZER_POOL in passes.finalizers("batchsandbox", "s")
    assert len(passes.record("s")) == 1 and passes.there("pod", former) == (policy == "Noop")
    assert any(reason == names.EVENT_POD_RECYCLED and former in text for reason, text in passes.told.events)
    assert undone(passes) == []
