"""The full pass of a pool: what it plans in given situations, and what its status says."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from osb.api import names
from osb.api.batchsandbox import BoxSpec
from osb.api.pool import PoolSpec, parse
from osb.api.record import Record
from osb.api.revision import parse_adopted, revision
from osb.decide.plan import Action, CreatePod, Doom, EmitEvent, Move, PatchObject, Plan, Recycle, Remember
from osb.decide.pool import plan
from osb.facts.ledger import LedgerEntry
from osb.facts.pod import PodFact
from osb.facts.poolview import Memory, NodeFact, PoolView, WaitingBox

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
REVISION = revision(TEMPLATE)


def pool(band: str = "0/5 0/10", *, meta: dict[str, Any] | None = None, status: Any = None, **spec: Any) -> PoolSpec:
    (low, high), (least, most) = (part.split("/") for part in band.split())
    numbers = {"bufferMin": int(low), "bufferMax": int(high), "poolMin": int(least), "poolMax": int(most)}
    full = {"template": TEMPLATE, "scaleStrategy": {"maxUnavailable": "100%"}, "capacitySpec": numbers, **spec}
    metadata = {"namespace": "ns", "name": "warm", "uid": "pool-uid", "generation": 2, **(meta or {})}
    return parse({"metadata": metadata, "spec": full, "status": status or {}})


def pod(name: str, **kw: Any) -> PodFact:
    fields = {
        "phase": "Running",
        "ready": True,
        "ready_since": 1000,
        "scheduled": 1,
        "created": NOW_MS - 60_000,
        "revision": REVISION,
        **kw,
    }
    return PodFact("ns", name, f"uid-{name}", "7", "Pool", "warm", "pool-uid", **fields)


def starting(name: str, **kw: Any) -> PodFact:
    return pod(name, **{"ready": False, "ready_since": 0, "phase": "Pending", "last_transition": NOW_MS - 5000, **kw})


def entry(name: str, state: str = "free", box: str = "", slot: int = -1, **kw: Any) -> LedgerEntry:
    uid = f"uid-{box}" if box else ""
    return LedgerEntry(state=state, pod_uid=f"uid-{name}", box=f"ns/{box}" if box else "", box_uid=uid, slot=slot, **kw)


def box(name: str, *pods: str, replicas: int | None = None, **kw: Any) -> BoxSpec:
    record = Record(pods=pods, uids=tuple(f"uid-{p}"[:8] for p in pods), pool_ref="warm", pool_uid="pool-uid")
    fields = {"record": record if pods else None, "finalizers": (names.FINALIZER_POOL,), "pool_ref": "warm", **kw}
    count = len(pods) if replicas is None else replicas
    created = NOW - timedelta(minutes=5)
    return BoxSpec(namespace="ns", name=name, uid=f"uid-{name}", version="5", replicas=count, created=created, **fields)


def fresh_names() -> Iterator[str]:
    return (f"new{i}" for i in itertools.count())


def view(spec: PoolSpec, pods: list[PodFact], *entries: tuple[str, LedgerEntry], **kw: Any) -> PoolView:
    known = {p.name: entry(p.name) for p in pods} | dict(entries)
    boxes = {b.uid: b for b in kw.pop("boxes", [])}
    fields = {"names": fresh_names(), "revision": REVISION, "epoch": "e1", **kw}
    return PoolView(now=NOW, pool=spec, pods={p.name: p for p in pods}, entries=known, boxes=boxes, **fields)


def of(made: Plan, kind: type[Action]) -> list[Any]:
    return [action for action in made.actions if isinstance(action, kind)]


def doomed(made: Plan) -> dict[str, str]:
    return {doom.name: doom.why for doom in of(made, Doom)}


def condition(made: Plan, kind: str) -> dict[str, Any] | None:
    assert made.status is not None
    return next((c for c in made.status["conditions"] if c["type"] == kind), None)


def waits(name: str, *slots: int, **kw: Any) -> WaitingBox:
    return WaitingBox(box=box(name, replicas=len(slots), **kw), slots=slots)


# -- sizing --------------------------------------------------------------------------------------------------


def test_an_empty_pool_is_filled_with_named_pods_that_are_intended_first() -> None:
    made = plan(view(pool("3/5 0/10"), []))
    assert [(c.name, c.intend) for c in of(made, CreatePod)] == [("new0", True), ("new1", True), ("new2", True)]
    assert "3 more pods are wanted" in made.reasons[0]


def test_a_name_that_is_taken_is_not_used_again() -> None:
    made = plan(view(pool("2/5 0/10"), [pod("new0")]))
    assert [c.name for c in of(made, CreatePod)] == ["new1"]


def test_ready_pods_above_the_band_leave_through_doom_with_uid_and_version() -> None:
    made = plan(view(pool("0/1 0/10"), [pod("a", created=5), pod("b", created=9)]))
    assert of(made, Doom) == [Doom("b", "uid-b", "7", "free", "scale-down")]


def test_pods_that_are_about_to_be_handed_out_are_neither_surplus_nor_victims() -> None:
    made = plan(view(pool("0/0 0/10"), [pod("a"), pod("b")], waiting=[waits("s", 0, 1)]))
    assert doomed(made) == {}
    assert of(made, CreatePod) == []
    assert made.again == 1.0


def test_a_sandbox_that_waits_for_another_pool_is_no_demand_of_this_one() -> None:
    assert of(plan(view(pool(), [], waiting=[waits("s", 0, pool_ref="cold")])), CreatePod) == []


def test_what_the_fast_pass_cannot_see_is_remembered_for_it() -> None:
    held = [(f"p{i}", entry(f"p{i}", "held", "s", i)) for i in range(2)]
    facts = {"boxes": [box("s", "p0", "p1", labels={"team": "red"})], "waiting": [waits("w", 0)]}
    spec = pool("0/2 0/2", fairness={"tenantLabel": "team"})
    (memory,) = of(plan(view(spec, [pod("p0"), pod("p1")], *held, **facts)), Remember)
    assert memory.values == {"held_by_tenant": {"red": 2}, "held_for_ever": 2}


def test_demand_that_the_ledger_already_reserved_is_not_counted_again() -> None:
    reserved = ("a", entry("a", "resv", "s", 0))
    made = plan(view(pool("0/0 0/10"), [pod("a")], reserved, boxes=[box("s", replicas=1)], waiting=[waits("s", 0)]))
    assert of(made, CreatePod) == []
    assert made.status is not None
    assert (made.status["allocated"], made.status["waiting"]) == (1, 0)


def test_an_unseen_create_blocks_scaling_and_its_post_is_repeated_under_the_same_name() -> None:
    opened = ("x", LedgerEntry(state="new"))
    young = plan(view(pool("5/5 0/10"), [], opened, since={"x": NOW_MS - 500}))
    old = plan(view(pool("5/5 0/10"), [], opened, since={"x": NOW_MS - 6000}))
    assert of(young, CreatePod) == []
    assert [(c.name, c.intend) for c in of(old, CreatePod)] == [("x", False)]
    assert condition(young, names.SCALING_BLOCKED) is None
    blocked = condition(old, names.SCALING_BLOCKED)
    assert blocked is not None
    assert "1 create is not observed yet" in blocked["message"]


def test_an_expectation_that_is_never_seen_is_read_live_and_dropped() -> None:
    made = plan(view(pool("1/5 0/10"), [], ("x", LedgerEntry(state="new")), since={"x": NOW_MS - 31_000}))
    (move,) = of(made, Move)
    assert (move.what, move.name, move.live) == ("gone", "x", True)


def test_returned_pods_are_recycled_while_a_create_is_unobserved() -> None:
    back = ("a", entry("a", "rel", "s", 0, policy="Delete"))
    made = plan(view(pool(), [pod("a")], back, ("x", LedgerEntry(state="new")), boxes=[box("s", "a")]))
    assert [a.step for a in of(made, Recycle)] == ["delete"]


def test_terminating_pods_count_against_pool_max() -> None:
    going = [pod(f"t{i}", deleting=5) for i in range(4)]
    assert of(plan(view(pool("4/4 0/4"), going)), CreatePod) == []


def test_a_stale_mirror_creates_and_removes_nothing_and_believes_no_absence() -> None:
    made = plan(view(pool("3/3 0/10"), [pod(f"p{i}") for i in range(9)], ("gone", entry("gone")), mirror_fresh=False))
    assert (of(made, CreatePod), of(made, Doom), of(made, Move)) == ([], [], [])
    blocked = condition(made, names.SCALING_BLOCKED)
    assert blocked is not None
    assert blocked["message"] == "the mirror is stale"


def test_refused_creates_back_off_and_then_one_tries_first() -> None:
    failing = Memory(create_failures=3, create_failed_ms=NOW_MS - 1000, create_error="exceeded quota: pods=5")
    waiting = plan(view(pool("3/5 0/10"), [], memory=failing))
    assert of(waiting, CreatePod) == []
    assert waiting.again == pytest.approx(3.0)
    assert condition(waiting, names.CREATE_FAILING)["message"] == "exceeded quota: pods=5"  # type: ignore[index]
    later = Memory(create_failures=3, create_failed_ms=NOW_MS - 9000, create_error="exceeded quota")
    assert len(of(plan(view(pool("3/5 0/10"), [], memory=later)), CreatePod)) == 1


def test_without_a_template_nothing_is_created_nothing_rolled_and_existing_pods_stay() -> None:
    made = plan(view(pool("3/5 0/10", template=None), [pod("a")], revision="74234e98afe7498f"))
    assert (of(made, CreatePod), of(made, Doom)) == ([], [])
    assert condition(made, names.SPEC_INVALID)["reason"] == "TemplateMissing"  # type: ignore[index]
    assert [e.reason for e in of(made, EmitEvent)] == [names.SPEC_INVALID]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"template": None}, "spec.template: is missing: pods that exist are served, none can be made"),
        ({"template": {"spec": 5}}, "spec.template.spec: must be an object, not 5"),
        ({"scaleStrategy": 5}, "spec.scaleStrategy: must be an object, not 5"),
    ],
    ids=["no template", "no object in the template", "no object"],
)
def test_a_pool_that_is_not_ready_for_its_spec_names_the_field(spec: dict[str, Any], told: str) -> None:
    made = plan(view(pool("0/5 0/10", **spec), []))
    ready = condition(made, names.READY)
    assert ready is not None and (ready["status"], ready["reason"], ready["message"]) == ("False", "SpecInvalid", told)


# -- who leaves ----------------------------------------------------------------------------------------------


def test_ended_idle_pods_go_at_once_and_are_replaced() -> None:
    made = plan(view(pool("2/4 0/4"), [starting(f"f{i}", phase="Failed") for i in range(2)]))
    assert doomed(made) == {"f0": "ended", "f1": "ended"}
    assert len(of(made, CreatePod)) == 2


def test_a_free_pod_that_is_labelled_suspect_is_never_kept() -> None:
    assert doomed(plan(view(pool(), [pod("a", suspect="uid-s")]))) == {"a": "unknown history"}


def test_evicted_pods_leave_paced_and_are_replaced_at_once_where_pool_max_allows() -> None:
    spec = pool("2/3 3/5", scaleStrategy={"maxUnavailable": "25%"})
    made = plan(view(spec, [pod(f"p{i}", evict="true") for i in range(3)]))
    assert list(doomed(made).values()) == ["evict label"]
    assert len(of(made, CreatePod)) == 1


def test_a_held_pod_with_the_evict_label_stays() -> None:
    held = ("a", entry("a", "held", "s", 0))
    assert plan(view(pool(), [pod("a", evict="true")], held, boxes=[box("s", "a")])).actions == ()


def test_pods_on_a_cordoned_node_leave_when_nodes_are_watched() -> None:
    nodes = {"n1": NodeFact(name="n1", unschedulable=True)}
    made = plan(view(pool(), [pod("a", node="n1"), pod("b", node="n2")], nodes=nodes))
    assert doomed(made) == {"a": "node n1 is cordoned"}


def test_an_unknown_eviction_handler_evicts_nothing_and_warns_once() -> None:
    spec = pool(meta={"labels": {names.LABEL_EVICTION_HANDLER: "mine"}})
    first = plan(view(spec, [pod("a", evict="true")]))
    assert doomed(first) == {}
    assert [e.reason for e in of(first, EmitEvent)] == ["UnknownEvictionHandler"]
    (memory,) = of(first, Remember)
    again = plan(view(spec, [pod("a", evict="true")], memory=Memory(warned=memory.values["warned"])))
    assert again.actions == ()


def test_rolling_out_replaces_within_the_budget_and_keeps_the_size() -> None:
    spec = pool("2/8 0/20", updateStrategy={"maxUnavailable": "25%"})
    made = plan(view(spec, [pod(f"p{i}", revision="old") for i in range(8)]))
    assert list(doomed(made).values()) == ["rolling update"] * 2
    assert len(of(made, CreatePod)) == 2
    assert condition(made, names.ROLLING_OUT)["message"] == "0 of 8 updated"  # type: ignore[index]


ROLLING = {"conditions": [{"type": names.ROLLING_OUT, "status": "True", "reason": "OldRevision", "message": ""}]}


def test_a_rollout_ends_when_the_idle_pods_are_new_and_tells_of_old_ones_in_use() -> None:
    held = [("a", entry("a", "held", "b", 0))]
    boxes = [box("b", "a")]
    in_use = pod("a", revision="old")
    # Given an idle old pod beside one in use, then its replacement that starts, then a ready one
    before = plan(view(pool("1/5 0/10"), [in_use, pod("x", revision="old")], *held, boxes=boxes))
    during = plan(view(pool("1/5 0/10", status=ROLLING), [in_use, starting("y")], *held, boxes=boxes))
    after = plan(view(pool("1/5 0/10", status=ROLLING), [in_use, pod("y")], *held, boxes=boxes))
    told = "1 in use are replaced when they are given back"
    assert condition(before, names.ROLLING_OUT)["message"] == f"0 of 2 updated; {told}"  # type: ignore[index]
    assert condition(during, names.ROLLING_OUT)["message"] == f"1 of 2 updated; {told}"  # type: ignore[index]
    assert condition(after, names.ROLLING_OUT) is None
    assert "1 held pod of an old revision, replaced when given back" in condition(after, names.READY)["message"]  # type: ignore[index]


def test_a_pool_that_only_fills_is_not_rolling_out() -> None:
    assert condition(plan(view(pool("2/5 0/10"), [starting("y")])), names.ROLLING_OUT) is None


def test_a_stuck_pod_is_replaced_and_the_pause_is_remembered() -> None:
    stuck = starting("a", created=0, last_transition=NOW_MS - 130_000, waiting=(("main", "ImagePullBackOff"),))
    made = plan(view(pool("1/5 0/10"), [stuck]))
    assert doomed(made) == {"a": "stuck"}
    assert of(made, Remember)[0].values == {"stuck_replaced": 1, "stuck_last_ms": NOW_MS}
    assert any("ImagePullBackOff" in reason for reason in made.reasons)


def test_a_delete_that_is_not_known_to_have_worked_is_repeated() -> None:
    made = plan(view(pool(), [pod("a")], ("a", entry("a", "doom"))))
    assert of(made, Doom) == [Doom("a", "uid-a", "7", "doom", "removal repeated")]


# -- bookkeeping ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("the_pod", "the_entry", "expected"),
    [
        (pod("a"), None, ("orphan", "-", False)),
        (pod("a"), LedgerEntry(state="new"), ("born", "new", False)),
        (None, entry("a"), ("gone", "free", False)),
        (None, entry("a", "doom"), ("gone", "doom", False)),
        (None, entry("a", "held", "s", 0), ("lost", "held", True)),
        (pod("a", phase="Failed", ready=False), entry("a", "held", "s", 0), ("lost", "held", True)),
        (pod("a", deleting=9), entry("a", "held", "s", 0), ("lost", "held", True)),
        (pod("a"), LedgerEntry(state="free", pod_uid="uid-before"), ("gone", "free", False)),
    ],
    ids=["late create", "seen", "gone", "doomed and gone", "held gone", "held failed", "held deleted", "other uid"],
)
def test_facts_move_ledger_entries(the_pod: Any, the_entry: Any, expected: tuple[str, str, bool]) -> None:
    facts = view(pool(), [the_pod] if the_pod else [], boxes=[box("s", "a")])
    entries = {"a": the_entry} if the_entry else {}
    made = plan(PoolView(now=NOW, pool=facts.pool, pods=facts.pods, entries=entries, names=fresh_names(),
                         revision=REVISION, boxes=facts.boxes))  # fmt: skip
    (move,) = of(made, Move)
    assert (move.what, move.from_state, move.live) == expected


def test_ghosts_do_not_count_as_allocated() -> None:
    ghosts = [(f"g{i}", entry(f"g{i}", "held", "s", i)) for i in range(2)]
    made = plan(view(pool("1/1 0/10"), [], *ghosts, boxes=[box("s", "g0", "g1")], waiting=[waits("s", 0, 1)]))
    assert made.status is not None
    assert made.status["allocated"] == 0


# -- status --------------------------------------------------------------------------------------------------


def test_every_counter_is_written_zero_or_not() -> None:
    made = plan(view(pool(), []))
    assert {k: v for k, v in (made.status or {}).items() if k != "conditions"} == {
        "observedGeneration": 2,
        "revision": REVISION,
        "total": 0,
        "allocated": 0,
        "available": 0,
        "updated": 0,
        "pending": 0,
        "terminating": 0,
        "waiting": 0,
        "unmet": 0,
        "target": 0,
        "targetReason": "bufferMin",
    }


def test_the_counters_of_a_mixed_pool() -> None:
    pods = [pod("r"), starting("s"), pod("h"), pod("back"), pod("t", deleting=3), pod("old", revision="v0")]
    entries = [("h", entry("h", "held", "b", 0)), ("back", entry("back", "rel", "b", 1, policy="Delete"))]
    made = plan(view(pool("2/5 0/6"), pods, *entries, boxes=[box("b", "h", "back", release=("back",))]))
    status = made.status or {}
    counters = ("total", "allocated", "available", "updated", "pending", "terminating", "target")
    assert [status[name] for name in counters] == [5, 2, 2, 4, 1, 1, 2]


@pytest.mark.parametrize(
    ("band", "hold", "told"),
    [
        ("0/0 0/1", {}, "waiting: 1 sandbox for 1 pod, all 1 of poolMax are in use"),
        ("0/0 0/9", {names.HOLD: "true"}, "waiting: 1 sandbox for 1 pod, the pool is on hold"),
    ],
    ids=["at poolMax", "on hold"],
)
def test_ready_says_that_sandboxes_wait_although_the_pool_is_warm(band: str, hold: dict[str, str], told: str) -> None:
    held = ("h", entry("h", "held", "b", 0))
    spec = pool(band, meta={"annotations": hold})
    made = plan(view(spec, [pod("h")], held, boxes=[box("b", "h")], waiting=[waits("c", 0)]))
    found = condition(made, names.READY)
    assert found is not None and found["status"] == "True"
    assert found["message"] == f"0 ready idle pods, target 0; {told}"


def test_ready_says_whether_the_pool_is_warm_and_what_it_waits_for() -> None:
    cold = plan(view(pool("1/5 0/10"), [starting("a", unschedulable=True)]))
    warm = plan(view(pool("1/5 0/10"), [pod("a")]))
    assert condition(cold, names.READY)["message"] == (  # type: ignore[index]
        "0 ready idle pods, target 1; idle pods are not ready: unschedulable"
    )
    assert condition(warm, names.READY)["status"] == "True"  # type: ignore[index]


def test_a_pool_at_its_maximum_says_so_and_does_not_loop() -> None:
    held = [(f"p{i}", entry(f"p{i}", "held", "s", i)) for i in range(2)]
    made = plan(
        view(pool("1/2 0/2"), [pod("p0"), pod("p1")], *held, boxes=[box("s", "p0", "p1")], waiting=[waits("w", 0)])
    )
    found = condition(made, names.CAPACITY_EXHAUSTED)
    assert found is not None
    assert found["message"] == "1 pod is asked for, and all 2 of poolMax are in use"
    assert made.again is None
    assert (made.status or {})["targetReason"] == "poolMax"


def test_conditions_of_others_stay_and_ours_end_with_their_cause() -> None:
    stored = {
        "conditions": [
            {"type": "Foreign", "status": "True"},
            {"type": names.CREATE_FAILING, "status": "True", "reason": "x", "message": "y"},
        ]
    }
    made = plan(view(pool(status=stored), []))
    assert condition(made, "Foreign") is not None
    assert condition(made, names.CREATE_FAILING) is None


def test_noop_recycling_is_shown() -> None:
    assert condition(plan(view(pool(recycleStrategy={"type": "Noop"}), [])), names.NOOP_RECYCLING) is not None


def test_a_held_pool_plans_no_write_but_tells_its_state() -> None:
    spec = pool("5/5 0/10", meta={"annotations": {names.HOLD: "true"}})
    made = plan(view(spec, [pod("old", revision="v0")], ("r", entry("r", "rel", "s", 0)), boxes=[box("s", "r")]))
    assert [type(a) for a in made.actions] == [EmitEvent]
    assert condition(made, "Held") is not None


def test_nothing_is_decided_while_the_ledger_is_rebuilt() -> None:
    made = plan(view(pool("5/5 0/10"), [pod("a")], ledger_ready=False))
    assert made.actions == ()
    assert condition(made, names.LEDGER_REBUILDING) is not None
    assert condition(made, names.READY)["status"] == "False"  # type: ignore[index]


def test_a_second_pass_over_the_same_facts_plans_nothing_new() -> None:
    first = plan(view(pool("1/5 0/10"), [pod("a")]))
    again = plan(view(pool("1/5 0/10", status=first.status), [pod("a")]))
    assert again.actions == ()
    assert again.status == first.status


def test_an_adopted_revision_is_kept_in_an_annotation() -> None:
    made = plan(view(pool(), [pod("a", revision="cafe")], revision="cafe"))
    (patch,) = of(made, PatchObject)
    kept = parse_adopted(patch.patch["metadata"]["annotations"][names.ADOPTED_REVISION])
    assert kept == (REVISION, "cafe")
    assert doomed(made) == {}


def test_a_full_pass_over_ten_thousand_pods_is_quick() -> None:
    pods = [pod(f"p{i}", ready_since=i) for i in range(10_000)]
    held = [(f"p{i}", entry(f"p{i}", "held", f"s{i // 10}", i % 10)) for i in range(5000)]
    boxes = [box(f"s{j}", *(f"p{i}" for i in range(j * 10, j * 10 + 10))) for j in range(500)]
    facts = view(pool("100/6000 0/20000"), pods, *held, boxes=boxes, waiting=[waits(f"w{i}", 0) for i in range(200)])
    started = time.process_time()
    plan(facts)
    assert time.process_time() - started < 0.3


def test_a_pool_whose_waiters_meet_the_cap_over_all_pools_looks_again_by_itself() -> None:
    waiting = [WaitingBox(box=box("b1"), slots=(0,))]
    assert plan(view(pool("0/0 0/10"), [], waiting=waiting, room=0)).again == 5.0
    assert plan(view(pool("0/0 0/10"), [], room=0)).again is None
