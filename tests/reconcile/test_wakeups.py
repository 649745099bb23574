"""Whoever could be served has asked for the pass that serves: nothing here runs that the queue does not ask for."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from osb.api import names
from osb.api.key import BATCHSANDBOX, POOL, Key
from tests.doubles.following import dirty, rest, undone
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
    # Given a pool that makes no new pod, whose readiness would be another wake-up
    size = {"bufferMin": 1, "bufferMax": 3, "poolMin": 0, "poolMax": 9}
    passes.patch("pool", "warm", {"spec": {"capacitySpec": size}})
    rest(passes)
    pods = {raw["metadata"]["name"] for raw in passes.pods()}
    edit(passes)
    rest(passes)
    assert passes.get("batchsandbox", "s")["status"]["phase"] == names.SUCCEED
    assert names.FINALIZER_POOL in passes.finalizers("batchsandbox", "s")
    assert {raw["metadata"]["name"] for raw in passes.pods()} <= pods
    assert len(passes.record("s")) == 1 and passes.there("pod", former) == (policy == "Noop")
    assert any(reason == names.EVENT_POD_RECYCLED and former in text for reason, text in passes.told.events)
    assert undone(passes) == []


def test_edited_endpoints_are_repaired_with_one_write_and_nothing_follows_from_it(passes: Passes) -> None:
    served(passes, "s")
    right = passes.note(names.ENDPOINTS, "s")
    passes.annotate("batchsandbox", "s", endpoints=["6.6.6.6"])
    before = int(passes.get("batchsandbox", "s")["metadata"]["resourceVersion"])
    ran = rest(passes)
    assert passes.note(names.ENDPOINTS, "s") == right
    assert [one.partition(":")[0] for one in ran] == [f"batchsandbox/{passes.ns}/s"]
    assert int(passes.get("batchsandbox", "s")["metadata"]["resourceVersion"]) == before + 1
    assert passes.told.reasons().count(names.EVENT_ENDPOINTS_REPAIRED) == 1


def test_our_own_endpoints_are_no_news_although_their_event_comes_before_their_answer(passes: Passes) -> None:
    served(passes, "s")
    passes.own("own")
    rest(passes)
    for name in ("s", "own"):
        # Given a mirror that has not seen what was published
        published = passes.get("batchsandbox", name)
        before = copy.deepcopy(published)
        del before["metadata"]["annotations"][names.ENDPOINTS]
        version = int(published["metadata"]["resourceVersion"])
        before["metadata"]["resourceVersion"] = str(version + 1)
        published["metadata"]["resourceVersion"] = str(version + 2)
        passes.world.forward.put("batchsandbox", [before], own=Key(BATCHSANDBOX, passes.ns, name), versioned=True)
        assert dirty(passes) == []
        # When the event comes
        assert passes.world.forward.put("batchsandbox", [published]).applied == 1
        assert dirty(passes) == []


def test_a_sandbox_of_three_keeps_its_slots_when_one_former_pod_is_not_back_yet(passes: Passes) -> None:
    passes.pool("warm", 5, 5, 0, 9)
    rest(passes)
    passes.box("s", replicas=1)
    rest(passes)
    (former,) = passes.record("s")
    # When it wants three, and its record is gone while the former pod still has slot 0 in the ledger
    passes.patch("batchsandbox", "s", {"spec": {"replicas": 3}})
    passes.annotate("batchsandbox", "s", alloc_status=None, endpoints=None)
    passes.sync()
    passes.run(POOL, "warm", deep=False)
    first = passes.record("s")
    assert first[0] == "" and all(first[1:]) and former not in first
    # Then the others keep their place when slot 0 is served
    rest(passes)
    assert passes.record("s")[1:] == first[1:] and all(passes.record("s"))
    assert undone(passes) == []


def test_a_deleted_pool_with_live_sandboxes_is_not_asked_for_every_two_seconds(passes: Passes) -> None:
    served(passes, "s")
    passes.delete("pool", "warm")
    rest(passes)
    assert passes.get("batchsandbox", "s")["status"]["phase"] == names.FAILED


def test_each_sandbox_of_a_batch_has_a_reason_of_its_own_in_the_journal(passes: Passes) -> None:
    served(passes)
    for name in ("one", "two"):
        passes.box(name)
    rest(passes)
    why = {e["box"]: e["why"] for e in passes.store.journal.read(limit=20) if e["what"] == "allocated"}
    told = {why[f"{passes.ns}/{name}"].replace(name, "x") for name in ("one", "two")}
    assert told <= {"sandbox x added", "it was in the line too"}
