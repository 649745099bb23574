"""Sandboxes of a pool: growing, shrinking, lost pods, giving pods back, poolRef edits."""

from __future__ import annotations

import orjson
import pytest

from osb.api import names
from tests.doubles.cluster import Obj, Space, condition, endpoints, note, record, template


def _lost(box: Obj) -> str:
    return str((condition(box, "PodLost") or {}).get("reason", ""))


def test_more_replicas_get_more_pods_and_keep_the_old_ones(space: Space) -> None:
    space.warm("warm", 4, 6, 0, 12)
    space.box("box", 2)
    (before,) = space.served("box")
    space.patch("batchsandbox", "box", {"spec": {"replicas": 4}})
    after = space.until_box("box", lambda b: b["status"]["ready"] == 4)
    assert record(after)[:2] == record(before)
    assert len(set(record(after))) == 4 and len(endpoints(after) or []) == 4


def test_fewer_replicas_give_back_the_last_slots(space: Space) -> None:
    space.warm("warm", 4, 6, 0, 12)
    space.box("box", 4)
    (before,) = space.served("box")
    space.patch("batchsandbox", "box", {"spec": {"replicas": 2}})
    after = space.until_box("box", lambda b: b["status"]["replicas"] == 2 and len(endpoints(b) or []) == 2)
    assert record(after)[:2] == record(before)[:2]
    space.gone("pod", *record(before)[2:])
    space.until_pool("warm", lambda p: p["status"]["allocated"] == 2)


@pytest.mark.parametrize("how", ["deleted", "failed"])
def test_a_lost_pod_is_replaced_in_its_slot_and_it_is_said(space: Space, how: str) -> None:
    space.warm("warm", 2, 3, 0, 8)
    space.box("box", 2)
    (before,) = space.served("box")
    victim, other = record(before)
    if how == "deleted":
        space.delete("pod", victim)
    else:
        space.mark(victim, fail="true")
    after = space.until_box("box", lambda b: _lost(b) == "PodReplaced" and b["status"]["ready"] == 2)
    assert record(after)[0] not in (victim, other) and record(after)[1] == other
    assert endpoints(after) is not None and "" not in endpoints(after)
    assert endpoints(after) != endpoints(before)
    lost = condition(after, "PodLost")
    assert lost is not None and "1 lost" in lost["message"]


def test_a_pod_lost_again_and_again_is_replaced_each_time(space: Space) -> None:
    space.warm("warm", 3, 4, 0, 10)
    space.box("box")
    space.served("box")
    for count in range(1, 6):
        (victim,) = record(space.live("batchsandbox", "box"))
        space.delete("pod", victim)
        box = space.until_box("box", lambda b, victim=victim: b["status"]["ready"] == 1 and record(b)[0] != victim)
        assert len(record(box)) == 1
        assert note(box, names.ALLOC_STATUS)["losses"] == count


def test_with_policy_fail_the_slot_of_a_lost_pod_stays_empty(space: Space) -> None:
    space.warm("warm", 2, 3, 0, 8)
    space.box("box", 2, lostPodPolicy="Fail")
    (before,) = space.served("box")
    space.delete("pod", record(before)[0])
    after = space.until_box("box", lambda b: _lost(b) == "SlotFailed" and endpoints(b)[0] == "")
    assert endpoints(after)[1] == endpoints(before)[1]
    assert note(after, names.ALLOC_STATUS)["failed"] == [0]
    assert after["status"]["ready"] == 1


def test_giving_back_a_pod_by_hand_goes_in_two_steps(space: Space) -> None:
    # Given a sandbox of two
    space.warm("warm", 2, 3, 0, 8)
    space.box("box", 2)
    (before,) = space.served("box")
    back, kept = record(before)
    # When its user gives one back
    space.annotate("batchsandbox", "box", alloc_release=orjson.dumps({"pods": [back, back]}).decode())
    # Then the pod is recycled before that is acknowledged
    space.until_box("box", lambda b: (note(b, names.ALLOC_RELEASED) or {}).get("pods") == [back])
    gone = next(e for e in space.history("pod", back) if e.obj["metadata"].get("deletionTimestamp"))
    told = next(e for e in space.history("batchsandbox", "box") if note(e.obj, names.ALLOC_RELEASED))
    assert gone.version < told.version
    # And the other pod stays, and nothing new is handed out for the slot
    box = space.until_box("box", lambda b: b["status"]["replicas"] == 1)
    assert record(box) == [back, kept] and space.live("pod", kept)
    space.until_pool("warm", lambda p: p["status"]["allocated"] == 1)


def test_deleting_a_sandbox_recycles_its_pods_before_the_finalizer_goes(space: Space) -> None:
    space.warm("warm", 2, 3, 0, 8)
    space.box("box", 2)
    (box,) = space.served("box")
    space.delete("batchsandbox", "box")
    space.gone("batchsandbox", "box")
    ended = space.history("batchsandbox", "box")[-1]
    for name in record(box):
        marked = next(e for e in space.history("pod", name) if e.obj["metadata"].get("deletionTimestamp"))
        assert marked.version < ended.version
    space.until_pool("warm", lambda p: p["status"]["allocated"] == 0)


def test_a_restarted_pod_goes_to_the_next_sandbox_only_after_its_containers_are_new(space: Space) -> None:
    quick = {names.RESTART_CONFIG: '{"maxRetries":3,"retryInterval":"1s"}'}
    marks = {"restart-after": "200ms"}
    space.warm("warm", 1, 1, 1, 1, recycleStrategy={"type": "Restart"}, template=template(marks=marks),
               meta={"annotations": quick})  # fmt: skip
    space.box("first")
    (first,) = space.served("first")
    (pod,) = record(first)
    used = space.live("pod", pod)["status"]["containerStatuses"][0]["containerID"]
    space.delete("batchsandbox", "first")
    space.box("second")
    (second,) = space.served("second")
    assert record(second) == [pod]
    assert space.live("pod", pod)["status"]["containerStatuses"][0]["containerID"] != used


def test_a_pod_that_ignores_its_restart_is_deleted_in_the_end(space: Space) -> None:
    quick = {names.RESTART_CONFIG: '{"maxRetries":2,"retryInterval":"500ms"}'}
    space.warm("warm", 1, 1, 0, 2, recycleStrategy={"type": "Restart"}, template=template(marks={"exec": "ignore"}),
               meta={"annotations": quick})  # fmt: skip
    space.box("box")
    (box,) = space.served("box")
    space.delete("batchsandbox", "box")
    space.gone("pod", *record(box))
    space.gone("batchsandbox", "box")


def test_noop_recycling_keeps_the_pod_and_warns(space: Space) -> None:
    pool = space.warm("warm", 1, 1, 1, 1, recycleStrategy={"type": "Noop"})
    assert condition(pool, "NoopRecycling")
    space.box("first")
    (first,) = space.served("first")
    space.delete("batchsandbox", "first")
    space.gone("batchsandbox", "first")
    space.box("second")
    (second,) = space.served("second")
    assert record(second) == record(first)


def test_another_pool_ref_is_not_acted_on_and_restoring_it_clears_the_condition(space: Space) -> None:
    space.warm("warm")
    space.warm("other")
    space.box("box")
    (before,) = space.served("box")
    space.patch("batchsandbox", "box", {"spec": {"poolRef": "other"}})
    rejected = space.until_box("box", lambda b: condition(b, "PoolRefUpdateRejected"))
    assert record(rejected) == record(before)
    assert space.live("pod", record(before)[0])
    space.patch("batchsandbox", "box", {"spec": {"poolRef": "warm"}})
    box = space.until_box("box", lambda b: not condition(b, "PoolRefUpdateRejected"))
    assert record(box) == record(before)


def test_a_template_beside_a_pool_ref_changes_nothing(space: Space) -> None:
    space.warm()
    space.box("box", template=template("other:1"))
    (box,) = space.served("box")
    assert len(record(box)) == 1 and record(box)[0].startswith("warm-")
    assert space.pods_of("box") == []


def test_a_finalizer_and_labels_of_a_user_survive_the_whole_life(space: Space) -> None:
    space.warm()
    mine = "example.test/mine"
    space.box("box", meta={"finalizers": [mine], "labels": {"team": "blue"}, "annotations": {"note": "kept"}})
    (box,) = space.served("box")
    assert set(box["metadata"]["finalizers"]) == {mine, names.FINALIZER_POOL}
    space.patch("batchsandbox", "box", {"metadata": {"labels": {"team": "red", "more": "1"}}})
    space.delete("batchsandbox", "box")
    left = space.until_box("box", lambda b: b["metadata"].get("finalizers") == [mine])
    assert left["metadata"]["labels"] == {"team": "red", "more": "1"}
    assert left["metadata"]["annotations"]["note"] == "kept"
    version = space.live("batchsandbox", "box")["metadata"]["resourceVersion"]
    space.patch("batchsandbox", "box", {"metadata": {"finalizers": None, "resourceVersion": version}})
    space.gone("batchsandbox", "box")


def test_a_star_is_answered_with_a_pool_that_fits(space: Space) -> None:
    space.warm("only")
    space.box("box", pool="*")
    (box,) = space.served("box")
    assert box["spec"]["poolRef"] == "only" and record(box)[0].startswith("only-")


def test_all_or_nothing_gets_its_pods_together(space: Space) -> None:
    space.warm("warm", 2, 2, 0, 2)
    space.box("box", 3, allocationPolicy="AllOrNothing")
    space.until_box("box", lambda b: condition(b, "Progressing"))
    assert record(space.live("batchsandbox", "box")) == []
    space.patch("pool", "warm", {"spec": {"capacitySpec": {"poolMax": 4, "bufferMin": 3, "bufferMax": 4}}})
    space.served("box")
    grants = [record(e.obj) for e in space.history("batchsandbox", "box") if record(e.obj)]
    assert all(len(pods) == 3 for pods in grants)


def test_an_allocation_timeout_ends_the_waiting(space: Space) -> None:
    space.warm("tight", 0, 0, 1, 1)
    space.box("holder", pool="tight")
    space.served("holder")
    space.box("late", pool="tight", allocationTimeoutSeconds=1)
    box = space.until_box("late", lambda b: (b.get("status") or {}).get("phase") == "Failed")
    found = condition(box, "PodFailed")
    assert found is not None and found["reason"] == "AllocationTimeout"
    space.delete("batchsandbox", "holder")
    space.gone("batchsandbox", "holder")
    assert record(space.live("batchsandbox", "late")) == []
