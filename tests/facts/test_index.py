"""What the mirror keeps of an object: name, document, indexes, rank."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from osb.api import names
from osb.facts.index import entry
from osb.facts.pod import decode, pod_fact
from tests.api import samples
from tests.facts.test_pod import raw

CREATED = 1769846400000.0


def indexes(kind: str, obj: dict[str, Any]) -> dict[tuple[str, str], float]:
    return {(index, value): score for index, value, score in entry(kind, obj).indexes}


# -- pods ----------------------------------------------------------------------------------------------------


def test_a_pool_pod_is_found_by_its_owner_and_ranked_while_it_may_be_handed_out() -> None:
    made = entry("poolpod", raw())
    assert (made.name, made.uid, made.version) == ("boxes/warm-4f2kq", "pod-uid", "42")
    assert made.indexes == (("owner", "pool-uid", CREATED),)
    assert made.rank == CREATED + 5000, "ready for longest first"
    assert decode(made.doc) == pod_fact(raw())


@pytest.mark.parametrize("why", ["not ready", "deleting", "evict", "suspect"])
def test_a_pool_pod_that_may_not_be_handed_out_has_no_rank(why: str) -> None:
    pod = raw()
    if why == "not ready":
        pod["status"]["phase"] = "Pending"
    elif why == "deleting":
        pod["metadata"]["deletionTimestamp"] = samples.CREATED
    else:
        pod["metadata"]["labels"][names.LABEL_EVICT if why == "evict" else names.LABEL_SUSPECT] = "x"
    assert entry("poolpod", pod).rank is None


def test_pods_of_sandboxes_are_never_ranked_and_ownerless_ones_not_indexed() -> None:
    assert entry("boxpod", raw()).rank is None
    pod = raw()
    pod["metadata"]["ownerReferences"] = []
    assert entry("boxpod", pod).indexes == ()


# -- sandboxes -----------------------------------------------------------------------------------------------


def test_a_new_pooled_sandbox_waits_in_its_pool() -> None:
    assert indexes("batchsandbox", samples.box()) == {
        ("pool", "boxes/warm"): CREATED,
        ("wait", "boxes/warm"): CREATED,
    }


@pytest.mark.parametrize(("priority", "shift"), [(10, -60_000), (-10, 60_000), (100, -600_000)])
def test_priority_moves_a_waiter_by_six_seconds_a_point(priority: int, shift: int) -> None:
    found = indexes("batchsandbox", samples.box(spec={"priority": priority}))
    assert found[("wait", "boxes/warm")] == CREATED + shift
    assert found[("pool", "boxes/warm")] == CREATED


def test_a_served_sandbox_no_longer_waits_and_holds_its_pods_by_slot() -> None:
    obj = samples.box(record={"pods": ["p0", "p1", "p2"], "poolRef": "warm"}, released=["p1"])
    assert indexes("batchsandbox", obj) == {
        ("pool", "boxes/warm"): CREATED,
        ("holder", "boxes/p0"): 0.0,
        ("holder", "boxes/p2"): 2.0,
    }


def test_a_partly_served_sandbox_does_both() -> None:
    found = indexes("batchsandbox", samples.box(record={"pods": ["p0"], "poolRef": "warm"}))
    assert {index for index, _ in found} == {"pool", "wait", "holder"}


def test_a_sandbox_that_asks_for_any_pool_is_in_no_pool() -> None:
    assert indexes("batchsandbox", samples.box(spec={"poolRef": "*"})) == {("star", "boxes"): CREATED}
    deleted = samples.box(spec={"poolRef": "*"}, deletionTimestamp=samples.CREATED)
    assert indexes("batchsandbox", deleted) == {}


def test_an_edited_pool_ref_stays_with_the_recorded_pool() -> None:
    obj = samples.box(spec={"poolRef": "other"}, record={"pods": ["p0"], "poolRef": "warm"})
    assert {value for index, value in indexes("batchsandbox", obj) if index in ("pool", "wait")} == {"boxes/warm"}


def test_a_terminating_sandbox_is_busy_and_waits_no_more() -> None:
    obj = samples.box(deletionTimestamp=samples.CREATED, finalizers=[names.FINALIZER_POOL])
    assert set(indexes("batchsandbox", obj)) == {("pool", "boxes/warm"), ("busy", "boxes/warm")}


def test_an_unreadable_record_is_the_pools_business_but_no_wish() -> None:
    assert set(indexes("batchsandbox", samples.box(record="{"))) == {
        ("pool", "boxes/warm"),
        ("busy", "boxes/warm"),
    }


def test_a_cleared_pool_ref_is_still_the_old_pools_business() -> None:
    obj = samples.box(spec={"poolRef": "", "template": {}}, record={"pods": ["p0"], "poolRef": "warm", "poolUID": "u"})
    assert set(indexes("batchsandbox", obj)) == {("busy", "boxes/warm"), ("holder", "boxes/p0")}


def test_a_sandbox_with_tasks_is_listed_for_polling() -> None:
    obj = samples.box(spec={"poolRef": "", "template": {}, "taskTemplate": {}})
    assert indexes("batchsandbox", obj) == {("tasks", "boxes"): CREATED}


def test_documents_keep_everything_but_managed_fields() -> None:
    obj = samples.box(managedFields=[{"manager": "kubectl"}])
    obj["spec"]["fieldOfTheFuture"] = {"kept": True}
    made = entry("batchsandbox", obj)
    stored = orjson.loads(made.doc)
    assert "managedFields" not in stored["metadata"] and "managedFields" in obj["metadata"]
    del obj["metadata"]["managedFields"]
    assert stored == obj
    assert (made.name, made.uid, made.version, made.rank) == ("boxes/b7", "box-uid", "11", None)


# -- the others ----------------------------------------------------------------------------------------------


def owned(kind: str, name: str, uid: str) -> dict[str, Any]:
    return {
        "name": "x",
        "namespace": "boxes",
        "uid": "u",
        "resourceVersion": "3",
        "creationTimestamp": samples.CREATED,
        "ownerReferences": [{"kind": kind, "name": name, "uid": uid, "controller": True}],
    }


def test_pools_need_no_index() -> None:
    assert entry("pool", samples.pool()).indexes == ()


def test_snapshots_are_found_by_owner_and_by_sandbox() -> None:
    obj = {"metadata": owned("BatchSandbox", "b7", "box-uid"), "spec": {"sandboxName": "b7"}}
    assert indexes("snapshot", obj) == {("owner", "box-uid"): CREATED, ("box", "boxes/b7"): CREATED}


def test_jobs_are_found_by_their_snapshot() -> None:
    obj = {"metadata": owned("SandboxSnapshot", "b7-pause", "snap-uid"), "spec": {}}
    assert indexes("job", obj) == {
        ("owner", "snap-uid"): CREATED,
        ("snapshot", "boxes/b7-pause"): CREATED,
    }


def test_another_kind_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        entry("secret", samples.pool())


def test_of_a_node_only_what_passes_read_is_kept() -> None:
    spec = {"unschedulable": True, "taints": [{"key": "t", "effect": "NoSchedule"}], "podCIDR": "10.0.0.0/24"}
    meta = {"name": "n1", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
    made = entry("node", {"metadata": meta, "spec": spec, "status": {"images": [{"names": ["large"]}] * 50}})
    assert (made.name, made.uid, made.version, made.indexes) == ("/n1", "u", "7", (("cordoned", "", 0.0),))
    assert orjson.loads(made.doc) == {
        "metadata": {"name": "n1", "uid": "u", "resourceVersion": "7"},
        "spec": {"unschedulable": True, "taints": [{"key": "t", "effect": "NoSchedule"}]},
    }


@pytest.mark.parametrize("spec", [{"sandboxName": 5}, {}, None])
def test_a_snapshot_without_sandbox_has_no_box_index(spec: Any) -> None:
    assert indexes("snapshot", {"metadata": {"name": "s", "namespace": "boxes"}, "spec": spec}) == {}
