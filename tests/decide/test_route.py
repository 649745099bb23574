"""The routing table: which change wakes which key, and what is no news."""

from __future__ import annotations

import copy
import time
from typing import Any

import msgspec
import orjson
import pytest

from osb.api import names
from osb.decide.route import route
from osb.decide.route_raw import Context
from osb.facts.adds import EVERY_POOL, Add
from osb.facts.pod import PodFact

Obj = dict[str, Any]


def metadata(name: str) -> Obj:
    return {"namespace": "ns", "name": name, "uid": f"uid-{name}", "generation": 1, "annotations": {}}


def box(name: str = "b7", **spec: Any) -> Obj:
    return {"metadata": metadata(name), "spec": {"poolRef": "warm", "replicas": 2, **spec}}


def changed(obj: Obj, **spec: Any) -> Obj:
    new = copy.deepcopy(obj)
    new["spec"].update(spec)
    new["metadata"]["generation"] += 1
    return new


def annotated(obj: Obj, name: str, value: str) -> Obj:
    new = copy.deepcopy(obj)
    new["metadata"]["annotations"][name] = value
    return new


def meta(obj: Obj, **fields: Any) -> Obj:
    new = copy.deepcopy(obj)
    new["metadata"].update(fields)
    return new


def pool(name: str = "warm", **spec: Any) -> Obj:
    return {
        "metadata": metadata(name),
        "spec": {"capacitySpec": {"poolMax": 5}, **spec},
        "status": {"allocated": 3, "total": 5},
    }


def pod(**kw: Any) -> PodFact:
    fields = {"owner_kind": "Pool", "owner_name": "warm", "owner_uid": "uid-warm", "phase": "Running", **kw}
    return PodFact("ns", "p1", fields.pop("uid", "uid-p1"), "9", **fields)


def woken(adds: tuple[Add, ...]) -> set[str]:
    return {add.key.text for add in adds}


def dirty(adds: tuple[Add, ...], key: str) -> Add:
    (add,) = [a for a in adds if a.key.text == key and a.after is None and a.at_ms is None]
    return add


def due(adds: tuple[Add, ...], key: str) -> Add:
    (add,) = [a for a in adds if a.key.text == key and (a.after is not None or a.at_ms is not None)]
    return add


WARM, COLD, B7 = "pool/ns/warm", "pool/ns/cold", "batchsandbox/ns/b7"
RECORD = orjson.dumps({"pods": ["p1", "p2"], "poolRef": "warm"}).decode()
AGREES = Context(ledger_agrees=True)

# -- sandboxes -----------------------------------------------------------------------------------------------


def test_a_new_pooled_sandbox_wakes_only_its_pool_and_only_for_the_fast_pass() -> None:
    (add,) = route("batchsandbox", None, box())
    assert (add.key.text, add.cls, add.deep, add.after) == (WARM, "now", False, None)
    assert add.reason == "sandbox b7 added"


@pytest.mark.parametrize("ref", ["", "*"])
def test_an_empty_or_undecided_pool_ref_wakes_the_sandbox_and_no_pool(ref: str) -> None:
    assert woken(route("batchsandbox", None, box(poolRef=ref))) == {B7}


def test_a_sandbox_with_tasks_wakes_itself_too() -> None:
    assert woken(route("batchsandbox", None, box(taskTemplate={"spec": {}}))) == {WARM, B7}


@pytest.mark.parametrize("spec", [{"replicas": 0}, {"replicas": 2_000_000_000}])
def test_a_pooled_sandbox_that_stands_in_no_line_shows_its_own_status(spec: Obj) -> None:
    assert "batchsandbox/ns/b7" in woken(route("batchsandbox", None, box(**spec)))


@pytest.mark.parametrize("name", ["wärm", "Warm", "a/b", "../x", "x" * 300, "warm\n"])
def test_a_pool_ref_that_no_pool_can_have_wakes_the_sandbox_only(name: str) -> None:
    assert woken(route("batchsandbox", None, box(poolRef=name))) == {"batchsandbox/ns/b7"}
    later = route("batchsandbox", box(), changed(box(), poolRef=name))
    assert woken(later) == {"batchsandbox/ns/b7", "pool/ns/warm"}


def test_an_owner_with_a_name_that_no_object_can_have_is_nobodys_key() -> None:
    assert route("boxpod", None, pod(owner_kind="BatchSandbox", owner_name="Bög", pool_label="")) == ()
    assert route("poolpod", None, pod(owner_name="Bög")) == ()


def test_expire_time_becomes_a_due_time_of_the_sandbox() -> None:
    adds = route("batchsandbox", None, box(expireTime="2026-05-04T12:00:00.5+02:00"))
    assert due(adds, B7).at_ms == 1777888800500
    assert route("batchsandbox", None, box(expireTime="next tuesday")) == route("batchsandbox", None, box())


def test_the_end_of_the_wait_for_pods_becomes_a_due_time_and_the_earlier_one_wins() -> None:
    waiting = meta(box(allocationTimeoutSeconds=30), creationTimestamp="2026-05-04T10:00:00Z")
    assert due(route("batchsandbox", None, waiting), B7).at_ms == 1777888831000
    both = changed(waiting, expireTime="2026-05-04T10:00:09Z")
    assert due(route("batchsandbox", None, both), B7).at_ms == 1777888809000


def test_equal_values_at_other_addresses_are_no_news() -> None:
    assert route("batchsandbox", box(), box()) == ()


@pytest.mark.parametrize(
    "change",
    [
        lambda o: {**o, "status": {"ready": 2, "phase": "Succeed"}},
        lambda o: annotated(o, names.ENDPOINTS, '["10.0.0.1"]'),
        lambda o: annotated(o, "example.com/note", "x"),
        lambda o: annotated(o, names.ALLOC_EPOCH, "e2"),
        lambda o: meta(annotated(o, names.ALLOC_STATUS, RECORD), finalizers=[names.FINALIZER_POOL]),
    ],
    ids=["status", "endpoints", "foreign annotation", "rebuild touch", "record that the ledger agrees with"],
)
def test_our_own_writes_are_no_news(change: Any) -> None:
    assert route("batchsandbox", box(), change(box()), AGREES) == ()


def test_a_record_that_disagrees_with_the_ledger_wakes_pool_and_sandbox() -> None:
    assert woken(route("batchsandbox", box(), annotated(box(), names.ALLOC_STATUS, RECORD))) == {WARM, B7}


def test_a_record_wakes_a_sandbox_with_tasks() -> None:
    with_tasks = box(taskTemplate={"spec": {}})
    adds = route("batchsandbox", with_tasks, annotated(with_tasks, names.ALLOC_STATUS, RECORD), AGREES)
    assert woken(adds) == {B7}


def test_a_pool_ref_change_wakes_the_old_and_the_new_pool() -> None:
    adds = route("batchsandbox", box(), changed(box(), poolRef="cold"))
    assert woken(adds) == {WARM, COLD, B7}
    assert due(adds, WARM).deep


@pytest.mark.parametrize(
    ("before", "after", "pools"),
    [("*", "warm", {WARM}), ("", "warm", {WARM}), ("warm", "", {WARM}), ("warm", "*", {WARM})],
)
def test_never_a_pool_called_nothing_or_star(before: str, after: str, pools: set[str]) -> None:
    adds = route("batchsandbox", box(poolRef=before), changed(box(poolRef=before), poolRef=after))
    assert woken(adds) == {B7, *pools}


def test_an_edited_pool_ref_wakes_the_recorded_pool_too() -> None:
    held = annotated(box(poolRef="cold"), names.ALLOC_STATUS, RECORD)
    assert woken(route("batchsandbox", held, changed(held, replicas=3))) == {WARM, COLD, B7}


@pytest.mark.parametrize(
    ("spec", "full"),
    [
        ({"replicas": 3}, True),
        ({"template": {"spec": {}}}, True),
        ({"priority": 5}, False),
        ({"allocationPolicy": "AllOrNothing"}, False),
    ],
    ids=str,
)
def test_what_concerns_the_line_wakes_the_pool(spec: Obj, full: bool) -> None:
    adds = route("batchsandbox", box(), changed(box(), **spec))
    assert dirty(adds, WARM).cls == "now"
    assert any(a.after is not None for a in adds) is full


def test_renewing_the_expiry_does_not_wake_the_pool() -> None:
    adds = route("batchsandbox", box(), changed(box(), expireTime="2026-05-04T12:00:00Z"))
    assert woken(adds) == {B7}
    assert due(adds, B7).at_ms is not None


@pytest.mark.parametrize("name", [names.ALLOC_RELEASE, names.ALLOC_RELEASED])
def test_given_back_or_recycled_pods_wake_pool_and_sandbox(name: str) -> None:
    adds = route("batchsandbox", box(), annotated(box(), name, '{"pods":["p1"]}'))
    assert woken(adds) == {WARM, B7}


def test_the_end_of_its_tasks_wakes_the_pool_of_a_terminating_sandbox() -> None:
    old = meta(
        box(),
        deletionTimestamp="2026-05-04T12:00:00Z",
        finalizers=[names.FINALIZER_TASKS, names.FINALIZER_POOL],
    )
    adds = route("batchsandbox", old, meta(old, finalizers=[names.FINALIZER_POOL]), AGREES)
    assert woken(adds) == {WARM, B7}


def test_deletion_is_urgent_and_forgets_back_off() -> None:
    dying = meta(box(), deletionTimestamp="2026-05-04T12:00:00Z")
    for adds in (route("batchsandbox", box(), dying), route("batchsandbox", dying, None)):
        assert woken(adds) == {WARM, B7}
        assert dirty(adds, B7).deletion
        assert dirty(adds, B7).cls == "now"
        assert due(adds, WARM).deep


def test_another_sandbox_of_the_same_name_is_an_end_and_a_beginning() -> None:
    again = meta(box(), uid="uid-other")
    adds = route("batchsandbox", annotated(box(), names.ALLOC_STATUS, RECORD), again)
    assert dirty(adds, B7).deletion
    assert due(adds, WARM).deep


def test_an_unreadable_record_does_not_stop_the_table() -> None:
    assert woken(route("batchsandbox", box(), annotated(box(), names.ALLOC_STATUS, "{"))) == {WARM, B7}


# -- pools ---------------------------------------------------------------------------------------------------

STAR = Context(star=("ns/s1", "ns/s2"))
STARS = {"batchsandbox/ns/s1", "batchsandbox/ns/s2"}


def test_a_new_pool_gets_a_full_pass_and_wakes_sandboxes_that_look_for_one() -> None:
    adds = route("pool", None, pool(), STAR)
    assert woken(adds) == {WARM, *STARS}
    assert dirty(adds, WARM).deep


def test_a_changed_spec_wakes_the_pool_deeply_and_those_who_look_for_one() -> None:
    adds = route("pool", pool(), changed(pool(), capacitySpec={"poolMax": 9}), STAR)
    assert woken(adds) == {WARM, *STARS}
    assert dirty(adds, WARM).deep


def test_its_own_status_is_no_news_to_the_pool_but_freed_room_is_to_those_who_look() -> None:
    busier = {**pool(), "status": {"allocated": 4, "total": 5}}
    freer = {**pool(), "status": {"allocated": 1, "total": 5}}
    assert route("pool", pool(), busier, STAR) == ()
    assert woken(route("pool", pool(), freer, STAR)) == STARS


@pytest.mark.parametrize("name", [names.RESTART_CONFIG, names.HOLD, names.ADOPTED_REVISION])
def test_annotations_that_steer_a_pool_reconcile_it(name: str) -> None:
    assert woken(route("pool", pool(), annotated(pool(), name, "x"))) == {WARM}


def test_the_eviction_handler_label_reconciles_a_pool_and_other_labels_do_not() -> None:
    adds = route("pool", pool(), meta(pool(), labels={names.LABEL_EVICTION_HANDLER: "x"}))
    assert woken(adds) == {WARM}
    assert route("pool", pool(), meta(pool(), labels={"team": "x"})) == ()


def test_a_pool_that_goes_is_urgent() -> None:
    for new in (None, meta(pool(), deletionTimestamp="2026-05-04T12:00:00Z")):
        (add,) = route("pool", pool(), new, STAR)
        assert (add.key.text, add.deep, add.deletion) == (WARM, True, True)


# -- pods ----------------------------------------------------------------------------------------------------

HELD = Context(holders=("ns/b7",))


def test_a_pod_that_becomes_ready_is_served_at_once_and_counted_a_moment_later() -> None:
    adds = route("poolpod", pod(), pod(ready=True))
    assert not dirty(adds, WARM).deep
    assert due(adds, WARM).after == 0.25


@pytest.mark.parametrize(
    "new",
    [None, pod(deleting=5), pod(phase="Failed"), pod(evict="true"), pod(suspect="uid-b1")],
    ids=["gone", "deleting", "failed", "evict", "suspect"],
)
def test_a_pod_that_leaves_the_stock_asks_for_a_full_pass_now(new: PodFact | None) -> None:
    (add,) = route("poolpod", pod(), new)
    assert (add.key.text, add.deep, add.cls) == (WARM, True, "now")


def test_the_expected_end_of_an_idle_pod_can_wait_for_the_next_full_pass() -> None:
    (add,) = route("poolpod", pod(deleting=5), None)
    assert add.after == 0.25


@pytest.mark.parametrize(
    "new",
    [
        None,
        pod(deleting=5),
        pod(phase="Failed"),
        pod(ready=True),
        pod(ip="10.0.0.9"),
        pod(waiting=(("main", "CrashLoopBackOff"),)),
        pod(uid="uid-other"),
    ],
    ids=["gone", "deleting", "failed", "ready", "ip", "crash loop", "another pod of its name"],
)
def test_the_sandbox_that_holds_a_pod_learns_of_its_fate(new: PodFact | None) -> None:
    assert B7 in woken(route("poolpod", pod(), new, HELD))


def test_readiness_of_a_held_pod_does_not_start_a_fast_pass() -> None:
    adds = route("poolpod", pod(), pod(ready=True), HELD)
    assert not [a for a in adds if a.key.text == WARM and a.after is None]


def test_a_pod_that_merely_lists_the_pool_as_an_owner_is_not_its_stock() -> None:
    assert route("poolpod", None, PodFact("ns", "p1", "u", "9", phase="Running", pool_label="warm")) == ()


def test_unchanged_facts_of_a_pod_are_no_news() -> None:
    assert route("poolpod", pod(), msgspec.structs.replace(pod(), version="10"), HELD) == ()


def test_other_containers_after_a_restart_ask_for_a_full_pass_now() -> None:
    old = pod(restart_record="{}", container_ids=(("main", "a", True),))
    (add,) = route("poolpod", old, msgspec.structs.replace(old, container_ids=(("main", "b", True),)))
    assert add.deep


def test_a_sandboxs_own_pod_wakes_that_sandbox() -> None:
    mine = pod(owner_kind="BatchSandbox", owner_name="b7")
    assert woken(route("boxpod", None, mine)) == {B7}
    assert woken(route("boxpod", mine, msgspec.structs.replace(mine, ready=True))) == {B7}
    assert route("boxpod", mine, msgspec.structs.replace(mine, version="11")) == ()


def test_a_forged_holder_name_is_nobodys_key() -> None:
    assert woken(route("poolpod", pod(), None, Context(holders=("ns/../x", "ns/b7")))) == {WARM, B7}


# -- snapshots and jobs --------------------------------------------------------------------------------------


def snapshot(**status: Any) -> Obj:
    owner = {"kind": "BatchSandbox", "name": "b7", "controller": True}
    return {
        "metadata": {
            "namespace": "ns",
            "name": "b7-pause",
            "uid": "u",
            "generation": 1,
            "ownerReferences": [owner],
        },
        "spec": {"sandboxName": "b7"},
        "status": status,
    }


def test_a_snapshot_wakes_itself_and_the_sandbox_that_waits_for_it() -> None:
    assert woken(route("snapshot", None, snapshot())) == {"snapshot/ns/b7-pause", B7}
    assert woken(route("snapshot", snapshot(), snapshot(phase="Succeed"))) == {B7}
    adds = route("snapshot", snapshot(), meta(snapshot(), deletionTimestamp="2026-05-04T12:00:00Z"))
    assert dirty(adds, "snapshot/ns/b7-pause").deletion


def test_a_job_wakes_the_snapshot_that_controls_it() -> None:
    owner = {"kind": "SandboxSnapshot", "name": "snap", "controller": True}
    job = {"metadata": {"namespace": "ns", "name": "j", "uid": "u", "ownerReferences": [owner]}, "status": {}}
    assert woken(route("job", job, {**job, "status": {"succeeded": 1}})) == {"snapshot/ns/snap"}
    assert route("job", job, copy.deepcopy(job)) == ()
    assert woken(route("job", job, None)) == {"snapshot/ns/snap"}


def test_a_cordon_and_its_end_concern_every_pool_and_a_heartbeat_none() -> None:
    node: Obj = {"metadata": {"name": "n1", "uid": "u"}, "spec": {"unschedulable": True}}
    for old, new, what in ((None, node, "cordoned"), (node, None, "no longer cordoned")):
        (add,) = route("node", old, new)
        assert add == Add(key=EVERY_POOL, cls="now", deep=True, reason=f"node n1 is {what}")
    beat = {**node, "status": {"conditions": [{"type": "Ready"}]}}
    assert route("node", node, beat) == route("node", None, None) == ()


def test_a_thousand_events_route_in_well_under_a_second() -> None:
    old = annotated(box(), names.ALLOC_STATUS, orjson.dumps({"pods": [f"p{i}" for i in range(100)]}).decode())
    new = annotated(old, names.ENDPOINTS, "[]")
    started = time.process_time()
    for _ in range(1000):
        route("batchsandbox", old, new, AGREES)
    assert time.process_time() - started < 0.5


# -- edits of what we keep on a sandbox ------------------------------------------------------------------------------


def test_endpoints_are_news_only_when_they_are_not_those_of_the_pods() -> None:
    old, new = box(), annotated(box(), names.ENDPOINTS, '["10.0.0.1"]')
    assert route("batchsandbox", old, new, AGREES) == ()
    forged = Context(ledger_agrees=True, endpoints_agree=False)
    assert woken(route("batchsandbox", old, new, forged)) == {B7}
    assert woken(route("batchsandbox", new, old, forged)) == {B7}
    assert woken(route("batchsandbox", None, new, forged)) == {B7, WARM}


def test_a_record_whose_end_leaves_another_pool_in_force_wakes_both() -> None:
    moved = annotated(box(poolRef="cold"), names.ALLOC_STATUS, RECORD)
    assert woken(route("batchsandbox", moved, box(poolRef="cold"), AGREES)) == {WARM, COLD, B7}


def test_a_record_that_names_fewer_slots_wakes_its_sandbox_and_one_that_names_more_does_not() -> None:
    fewer = orjson.dumps({"pods": ["p1"], "poolRef": "warm"}).decode()
    two, one = (annotated(box(), names.ALLOC_STATUS, text) for text in (RECORD, fewer))
    assert woken(route("batchsandbox", two, one, AGREES)) == {B7}
    assert route("batchsandbox", one, two, AGREES) == ()


def test_a_record_that_can_be_read_again_wakes_its_pool_although_the_ledger_agrees() -> None:
    broken, good = annotated(box(), names.ALLOC_STATUS, "{broken"), annotated(box(), names.ALLOC_STATUS, RECORD)
    adds = route("batchsandbox", broken, good, AGREES)
    assert woken(adds) == {WARM, B7} and due(adds, WARM).deep


@pytest.mark.parametrize("how", ["paused", "timed out"])
def test_a_sandbox_that_is_back_in_the_line_wakes_its_pool(how: str) -> None:
    timeout = {"type": "PodFailed", "status": "True", "reason": "AllocationTimeout"}
    status = {"phase": "Paused"} if how == "paused" else {"observedGeneration": 1, "conditions": [timeout]}
    aside = {**box(), "status": status}
    back = {**changed(aside, expireTime="2100-01-01T00:00:00Z"), "status": {**status, "phase": "Pending"}}
    assert WARM in woken(route("batchsandbox", aside, back, AGREES))
    assert WARM not in woken(route("batchsandbox", back, copy.deepcopy(back), AGREES))
