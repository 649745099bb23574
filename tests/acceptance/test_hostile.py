"""Annotations that users forge or break: nothing changes for others, and it is reported."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from osb.api import names
from tests.doubles.cluster import Obj, Space, condition, endpoints, record, template


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


def _reason(box: Obj) -> str:
    return str((condition(box, "Quarantined") or {}).get("reason", ""))


def _two(space: Space) -> tuple[Obj, Obj]:
    space.warm("warm", 3, 4, 0, 8)
    space.box("victim")
    space.box("thief")
    victim, thief = space.served("victim", "thief")
    return victim, thief


def _unharmed(space: Space, victim: Obj) -> None:
    now = space.live("batchsandbox", "victim")
    assert record(now) == record(victim)
    assert now["status"]["phase"] == "Succeed" and now["status"]["ready"] == 1
    (pod,) = record(victim)
    assert "deletionTimestamp" not in space.live("pod", pod)["metadata"]


def test_giving_back_a_foreign_pod_does_nothing_to_it(space: Space) -> None:
    victim, _ = _two(space)
    space.annotate("batchsandbox", "thief", alloc_release=_json({"pods": record(victim)}))
    space.until("a warning", lambda: [e for e in space.all("event") if e["type"] == "Warning"])
    _unharmed(space, victim)
    # The ledger still knows both holders
    space.until_pool("warm", lambda p: p["status"]["allocated"] == 2)


def test_claiming_a_foreign_pod_is_reported_and_earns_nothing(space: Space) -> None:
    space.forged = True
    victim, thief = _two(space)
    forged = orjson.loads(thief["metadata"]["annotations"][names.ALLOC_STATUS])
    stolen = orjson.loads(victim["metadata"]["annotations"][names.ALLOC_STATUS])
    forged["pods"] += stolen["pods"]
    forged["uids"] += stolen["uids"]
    space.patch("batchsandbox", "thief", {"spec": {"replicas": 2}})
    space.annotate("batchsandbox", "thief", alloc_status=_json(forged))
    space.until_box("thief", lambda b: _reason(b) in ("RecordForged", "AllocationConflict"))
    _unharmed(space, victim)
    # When the thief goes, the victim keeps its pod
    space.delete("batchsandbox", "thief")
    space.gone("batchsandbox", "thief")
    _unharmed(space, victim)


def test_a_pod_marked_as_released_that_is_not_stays_reserved(space: Space) -> None:
    space.forged = True
    victim, thief = _two(space)
    (pod,) = record(thief)
    space.annotate("batchsandbox", "thief", alloc_released=_json({"pods": [pod]}))
    space.box("next")
    space.served("next")
    assert record(space.live("batchsandbox", "next")) != [pod]
    _unharmed(space, victim)


def test_an_unreadable_record_quarantines_its_sandbox_only(space: Space) -> None:
    space.forged = True
    victim, thief = _two(space)
    space.annotate("batchsandbox", "thief", alloc_status="{broken")
    space.until_box("thief", lambda b: _reason(b) == "RecordUnreadable")
    _unharmed(space, victim)
    # Others are served meanwhile, and not with its pod
    space.box("next")
    (served,) = space.served("next")
    assert not set(record(served)) & set(record(thief))
    # When the record is restored, all is well
    good = thief["metadata"]["annotations"][names.ALLOC_STATUS]
    space.annotate("batchsandbox", "thief", alloc_status=good)
    space.until_box("thief", lambda b: not _reason(b) and b["status"]["phase"] == "Succeed")


def test_a_sandbox_with_an_unreadable_record_can_be_deleted(space: Space) -> None:
    space.forged = True
    victim, thief = _two(space)
    space.annotate("batchsandbox", "thief", alloc_status="[]]", alloc_release="}{")
    space.until_box("thief", lambda b: _reason(b) == "RecordUnreadable")
    space.delete("batchsandbox", "thief")
    space.gone("batchsandbox", "thief")
    space.gone("pod", *record(thief))
    _unharmed(space, victim)


def test_empty_annotations_mean_nothing_was_handed_out(space: Space) -> None:
    space.warm("warm", 3, 4, 0, 8)
    for name, text in (("empty", ""), ("null", "null"), ("braces", "{}")):
        space.box(name, meta={"annotations": {names.ALLOC_STATUS: text}})
    boxes = space.served("empty", "null", "braces")
    assert len({pod for box in boxes for pod in record(box)}) == 3


def test_a_record_brought_along_at_creation_takes_no_pod(space: Space) -> None:
    space.forged = True
    space.warm("warm", 3, 4, 0, 8)
    space.box("victim")
    (victim,) = space.served("victim")
    stolen = victim["metadata"]["annotations"][names.ALLOC_STATUS]
    space.box("thief", meta={"annotations": {names.ALLOC_STATUS: stolen}})
    space.until_box("thief", lambda b: _reason(b))
    _unharmed(space, victim)
    space.delete("batchsandbox", "thief")
    space.gone("batchsandbox", "thief")
    _unharmed(space, victim)


@pytest.mark.parametrize("policy", ["Delete", "Noop"])
def test_a_record_removed_by_hand_costs_the_pod_and_the_sandbox_is_served_again_at_once(
    space: Space, policy: str
) -> None:
    space.warm("warm", 1, 3, 3, 4, recycleStrategy={"type": policy})
    space.box("box")
    (box,) = space.served("box")
    (former,) = record(box)
    edited = space.annotate("batchsandbox", "box", alloc_status=None, endpoints=None)
    version = int(edited["metadata"]["resourceVersion"])
    space.until_box("box", lambda b: int(b["metadata"]["resourceVersion"]) > version and _serves(b), seconds=10)
    space.until("it was recycled first", lambda: [e for e in space.events("warm", names.EVENT_POD_RECYCLED)
                                                  if former in e["message"]])  # fmt: skip
    if policy == "Delete":
        space.gone("pod", former)


def _serves(box: Obj) -> bool:
    return bool(record(box) and endpoints(box)) and box["status"]["ready"] == 1


def test_a_manifest_that_replaces_everything_is_forgiven(space: Space) -> None:
    space.warm("warm", 3, 3, 0, 4)
    space.box("box")
    (box,) = space.served("box")
    meta = {"resourceVersion": space.live("batchsandbox", "box")["metadata"]["resourceVersion"]}
    space.patch("batchsandbox", "box", {"metadata": {**meta, "annotations": None, "finalizers": None}})
    space.until_box("box", lambda b: record(b) not in ([], record(box)) and b["status"]["ready"] == 1, seconds=10)
    assert names.FINALIZER_POOL in space.live("batchsandbox", "box")["metadata"]["finalizers"]


@pytest.mark.parametrize("pool", ["warm", None], ids=["of a pool", "own pods"])
@pytest.mark.parametrize("forged", ['["6.6.6.6"]', None, "{broken"], ids=["forged", "removed", "unreadable"])
def test_edited_endpoints_are_written_again_and_reported(space: Space, pool: str | None, forged: str | None) -> None:
    space.warm("warm", 1, 1, 0, 4)
    own: dict[str, Any] = {} if pool else {"template": template()}
    space.box("box", pool=pool, **own)
    (box,) = space.served("box")
    edited = space.annotate("batchsandbox", "box", endpoints=forged)
    version = int(edited["metadata"]["resourceVersion"])
    space.until_box(
        "box",
        lambda b: int(b["metadata"]["resourceVersion"]) > version and _endpoints(b) == _endpoints(box),
        seconds=10,
    )
    space.until("a warning", lambda: space.events("box", names.EVENT_ENDPOINTS_REPAIRED))


def test_endpoints_brought_along_at_creation_are_taken_off_although_the_sandbox_waits(space: Space) -> None:
    space.pool("none", 0, 0, 0, 0)
    space.box("box", pool="none", meta={"annotations": {names.ENDPOINTS: '["6.6.6.6"]'}})
    space.until_box("box", lambda b: endpoints(b) == [], seconds=10)


def _endpoints(box: Obj) -> str | None:
    text: str | None = (box["metadata"].get("annotations") or {}).get(names.ENDPOINTS)
    return text
