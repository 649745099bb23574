"""The whole life of a pool and its sandboxes, as a platform engineer sees it."""

from __future__ import annotations

from osb.api import names
from tests.doubles.cluster import Obj, Space, condition, endpoints, ready, record, template
from tests.doubles.controller import Controller
from tests.doubles.leftovers import traces

COUNTERS = ("replicas", "allocated", "ready", "taskRunning", "taskSucceed", "taskFailed", "taskPending", "taskUnknown")


def test_a_pool_warms_serves_scales_and_leaves_nothing_behind(space: Space, controller: Controller) -> None:
    # Given a pool that becomes warm
    warm = space.warm("warm", 100, 120, 0, 250)
    assert 100 <= warm["status"]["available"] <= 120
    # When one batch of 100 asks
    space.box("batch", 100)
    (batch,) = space.served("batch")
    # Then every slot has a pod and an address
    assert len(set(record(batch))) == 100
    assert len({ip for ip in endpoints(batch) or []}) == 100
    # When a hundred sandboxes of one ask
    singles = [f"one-{n}" for n in range(100)]
    for name in singles:
        space.box(name)
    # Then each holds a pod of its own and the pool refills
    boxes = space.served(*singles, seconds=60)
    assert len({pod for box in [batch, *boxes] for pod in record(box)}) == 200
    space.until_pool("warm", lambda p: p["status"]["allocated"] == 200 and p["status"]["available"] >= 50)
    # When the capacity goes down and up again
    space.patch("pool", "warm", {"spec": {"capacitySpec": {"bufferMin": 2, "bufferMax": 5}}})
    space.until_pool("warm", lambda p: p["status"]["available"] <= 5 and p["status"]["total"] <= 205)
    space.patch("pool", "warm", {"spec": {"capacitySpec": {"bufferMin": 10, "bufferMax": 15}}})
    space.until_pool("warm", lambda p: 10 <= p["status"]["available"] <= 15)
    assert space.pods_over("warm", 250) == []
    # When half expire and the rest are deleted
    for name in singles[:50]:
        space.patch("batchsandbox", name, {"spec": {"expireTime": "2020-01-01T00:00:00Z"}})
    space.gone("batchsandbox", *singles[:50])
    for box in space.all("batchsandbox"):
        space.delete("batchsandbox", box["metadata"]["name"])
    space.gone("batchsandbox", seconds=40)
    space.until_pool("warm", lambda p: p["status"]["allocated"] == 0)
    space.delete("pool", "warm")
    # Then nothing is left in the cluster or in Redis
    space.gone("pool")
    space.gone("pod", seconds=60)
    space.until("nothing in Redis", lambda: not traces(controller.redis, space.name))


def test_a_served_sandbox_shows_what_clients_read(space: Space) -> None:
    space.warm()
    space.box("box", 2, meta={"labels": {"opensandbox.io/id": "box"}, "annotations": {"team": "blue"}})
    (box,) = space.served("box")
    status = box["status"]
    assert {key: status[key] for key in COUNTERS} == dict.fromkeys(COUNTERS, 0) | dict.fromkeys(COUNTERS[:3], 2)
    assert (status["phase"], status["observedGeneration"], status["pauseObservedGeneration"]) == ("Succeed", 1, 1)
    ready_now = condition(box, "Ready")
    assert ready_now is not None and ready_now["reason"] == "PodsReady"
    assert box["metadata"]["finalizers"] == [names.FINALIZER_POOL]
    assert box["metadata"]["labels"] == {"opensandbox.io/id": "box"}
    assert box["metadata"]["annotations"]["team"] == "blue"
    text = box["metadata"]["annotations"][names.ALLOC_STATUS]
    assert text.startswith('{"pods":["warm-') and '"poolRef":"warm","generation":1,"poolUID":' in text
    addresses = {p["metadata"]["name"]: p["status"]["podIP"] for p in space.pods_of("warm")}
    assert endpoints(box) == [addresses[name] for name in record(box)]


def test_a_pool_status_always_has_every_number(space: Space) -> None:
    pool = space.warm()
    wanted = {"observedGeneration", "revision", "total", "allocated", "available", "updated"}
    wanted |= {"pending", "terminating", "waiting", "unmet", "target", "targetReason", "conditions"}
    assert wanted <= set(pool["status"])
    space.box("first", 6)
    space.served("first")
    space.box("second", 6)
    full = space.until_pool("warm", lambda p: (p["status"]["unmet"], p["status"]["waiting"]) == (2, 1))
    assert wanted <= set(full["status"])
    assert (full["status"]["allocated"], full["status"]["available"], full["status"]["total"]) == (10, 0, 10)


def test_endpoints_are_published_before_success_and_a_batch_costs_two_writes(space: Space) -> None:
    space.warm("warm", 20, 25, 0, 40)
    space.box("batch", 20)
    space.served("batch")
    seen = space.history("batchsandbox", "batch")
    # created, then one patch with record, endpoints and finalizer, then one status
    assert [e.type for e in seen] == ["ADDED", "MODIFIED", "MODIFIED"]
    assert len({e.version for e in seen}) == 3
    granted, told = seen[1].obj, seen[2].obj
    assert len(record(granted)) == 20 and len(endpoints(granted) or []) == 20
    assert granted["metadata"]["finalizers"] == [names.FINALIZER_POOL]
    assert "phase" not in (granted.get("status") or {})
    assert (told["status"]["phase"], told["status"]["ready"]) == ("Succeed", 20)


def test_nothing_is_written_while_nothing_changes(space: Space, controller: Controller) -> None:
    space.warm()
    space.box("box")
    space.served("box")
    space.until_pool("warm", lambda p: p["status"]["allocated"] == 1 and condition(p, "Ready"))
    before = len(space.history("batchsandbox")) + len(space.history("pool"))
    # When passes run although nothing happened
    for kind, name in (("pool", "warm"), ("batchsandbox", "box")):
        controller.reconcile(kind, f"{space.name}/{name}")
    # Then they write nothing
    assert len(space.history("batchsandbox")) + len(space.history("pool")) == before


def test_waiting_sandboxes_are_served_oldest_first_as_pods_become_ready(space: Space) -> None:
    # Given an empty pool whose pods are slow
    space.pool("slow", 0, 1, 0, 3, template=template(marks={"never-ready": "true"}))
    for name in ("first", "second", "third"):
        space.box(name, pool="slow")
        space.until_box(name, _waits_for_a_pod)
    space.until("three pods", lambda: len(space.pods_of("slow")) == 3)
    # When pods become ready one at a time
    order = []
    for pod in space.pods_of("slow"):
        space.mark(pod["metadata"]["name"], never_ready=None)
        served = space.until("one more is served", lambda: _new(space, order))
        order.append(served)
    # Then the oldest comes first, and the reason for waiting goes
    assert order == [b["metadata"]["name"] for b in sorted(space.all("batchsandbox"), key=_age)]
    for box in space.all("batchsandbox"):
        assert condition(box, "Progressing") is None and condition(box, "PoolAllocationPending") is None


def _age(box: Obj) -> tuple[str, str]:
    """Creation has whole seconds; within one the UID decides."""
    return box["metadata"]["creationTimestamp"], box["metadata"]["uid"]


def _waits_for_a_pod(box: Obj) -> bool:
    found = condition(box, "Progressing")
    return found is not None and found["reason"] == "WaitingForPool" and found["message"].startswith("NoReadyPod")


def _new(space: Space, known: list[str]) -> str | None:
    boxes = (b for b in space.all("batchsandbox") if (b.get("status") or {}).get("phase") == "Succeed")
    return next((b["metadata"]["name"] for b in boxes if b["metadata"]["name"] not in known), None)


def test_exhaustion_is_told_only_while_the_pool_cannot_grow(space: Space) -> None:
    # Given a full pool
    space.warm("tight", 0, 0, 2, 2)
    space.box("holder", 2, pool="tight")
    space.served("holder")
    # When another asks
    space.box("late", pool="tight")
    pending = space.until_box("late", lambda b: condition(b, "PoolAllocationPending"))
    # Then it is told why, and the pool says so too
    found = condition(pending, "PoolAllocationPending")
    assert found is not None and found["reason"] == "PoolCapacityExhausted"
    space.until_pool("tight", lambda p: condition(p, "CapacityExhausted"))
    # When the pool may grow, the condition goes, and the sandbox is served
    space.patch("pool", "tight", {"spec": {"capacitySpec": {"poolMax": 3}}})
    (late,) = space.served("late")
    assert condition(late, "PoolAllocationPending") is None
    space.until_pool("tight", lambda p: not condition(p, "CapacityExhausted"))


def test_pods_that_are_merely_starting_are_no_exhaustion(space: Space) -> None:
    space.pool("slow", 0, 1, 0, 5, template=template(marks={"ready-after": "1s"}))
    space.box("box", 2, pool="slow")
    space.served("box")
    told = [e.obj for e in space.history("batchsandbox", "box")]
    assert any(condition(obj, "Progressing") for obj in told)
    assert not any(condition(obj, "PoolAllocationPending") for obj in told)


def test_a_missing_pool_is_named_and_appearing_it_serves(space: Space) -> None:
    space.box("box", pool="later")
    space.until_box("box", lambda b: _message(b).startswith("PoolNotFound"))
    space.warm("later")
    (box,) = space.served("box")
    assert condition(box, "Progressing") is None


def _message(box: Obj) -> str:
    return str((condition(box, "Progressing") or {}).get("message", ""))


def test_sandbox_names_that_begin_with_a_digit_work(space: Space) -> None:
    space.warm()
    space.box("0c51f1aa-7d1e-4b6f-9d38-0b1d6a54c001")
    space.box("77f1a0de-0000-4b6f-9d38-0b1d6a54c002", pool=None, template=template())
    space.served("0c51f1aa-7d1e-4b6f-9d38-0b1d6a54c001", "77f1a0de-0000-4b6f-9d38-0b1d6a54c002")
    assert all(ready(p) for p in space.pods_of("77f1a0de-0000-4b6f-9d38-0b1d6a54c002"))
