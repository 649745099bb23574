"""One whole pass of a pool: what fails stays alone, what is told is true, what is nobody's is left alone."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from osb.api import names
from osb.api.key import POOL, Key
from osb.facts.poolview import NodeFact
from osb.obs.deadline import Deadline
from osb.reconcile import gather
from osb.reconcile.duties import Duties
from osb.reconcile.handle import handle
from osb.reconcile.world import Pass
from osb.sim import SimCluster
from osb.store import keys
from tests.doubles.passworld import Obj, Passes


def test_a_held_pod_with_the_evict_label_survives_the_first_pass_after_the_store_was_lost(passes: Passes) -> None:
    [pod] = passes.warm()
    passes.box()
    passes.pool_pass()
    passes.patch("pod", pod, {"metadata": {"labels": {names.LABEL_EVICT: "true"}}})
    passes.store.redis.flushall()
    passes.pool_pass(times=2)
    assert not passes.get("pod", pod)["metadata"].get("deletionTimestamp")
    assert passes.entries()[pod].state == "held"


def test_a_conflict_on_the_status_repeats_no_create_and_no_delete(passes: Passes, simulated: SimCluster) -> None:
    passes.pool("warm", 3, 3, 0, 9)
    path = f"/namespaces/{passes.ns}/pools/warm/status"
    simulated.add_fault(path=path, methods=["PATCH"], count=1, status=409, reason="Conflict")
    passes.pool_pass()
    assert len(passes.pods()) == 3
    passes.pool_pass()
    assert len(passes.pods()) == 3
    assert passes.told.reasons().count("SuccessfulCreate") == 1
    assert passes.get("pool", "warm")["status"]["total"] == 3


def test_one_unreadable_sandbox_and_one_refused_write_stop_nobody_else(passes: Passes, simulated: SimCluster) -> None:
    passes.warm(count=2)
    passes.box("broken", meta={"annotations": {names.ALLOC_STATUS: "[1"}})
    passes.box("refused")
    passes.box("fine")
    path = f"/namespaces/{passes.ns}/batchsandboxes/refused($|\\?)"
    simulated.add_fault(path=path, methods=["PATCH"], status=422, reason="Invalid")
    passes.pool_pass()
    assert len(passes.record("fine")) == 1
    assert passes.record("refused") == []
    status = passes.get("pool", "warm")["status"]
    assert status["observedGeneration"] == 1
    assert status["allocated"] == 1


def test_the_status_is_written_although_creates_are_refused(passes: Passes, simulated: SimCluster) -> None:
    passes.pool("warm", 2, 2, 0, 9)
    path = f"/namespaces/{passes.ns}/pods"
    simulated.add_fault(path=path, methods=["POST"], status=403, reason="Forbidden", message="exceeded quota")
    passes.pool_pass(times=2)
    status = passes.get("pool", "warm")["status"]
    assert status["observedGeneration"] == 1
    assert status["total"] == 0
    failing = passes.condition("pool", "warm", names.CREATE_FAILING)
    assert failing is not None
    assert "exceeded quota" in failing["message"]


def test_creates_stop_at_the_first_refusal_and_are_told_once(passes: Passes, simulated: SimCluster) -> None:
    passes.pool("warm", 8, 8, 0, 9)
    path = f"/namespaces/{passes.ns}/pods"
    simulated.add_fault(path=path, methods=["POST"], status=403, reason="Forbidden", message="exceeded quota")
    before = sum(count for call, count in simulated.stats().items() if call.startswith("create pod"))
    passes.pool_pass(times=3)
    after = sum(count for call, count in simulated.stats().items() if call.startswith("create pod"))
    assert after - before == 1
    assert passes.told.reasons().count("FailedCreate") == 1
    simulated.clear_faults()
    passes.pool_pass(turn=2)
    passes.pool_pass(times=3)
    assert len(passes.pods()) == 8


def test_creates_without_a_clear_answer_are_told_and_paced_like_refused_ones(
    passes: Passes, simulated: SimCluster
) -> None:
    # Given a server whose admission webhook fails, so that each create is answered 500
    def posts() -> int:
        return sum(count for call, count in simulated.stats().items() if call.startswith("create pod"))

    passes.pool("warm", 8, 8, 0, 9)
    path, words = f"/namespaces/{passes.ns}/pods", "failed calling webhook policy.example.com"
    simulated.add_fault(path=path, methods=["POST"], status=500, reason="InternalError", message=words)
    before = posts()
    # When the first pass meets it: one POST, whose name stays
    passes.pool_pass()
    assert posts() - before == 1
    assert [e.state for e in passes.entries().values()].count("new") >= 1
    assert passes.condition("pool", "warm", names.CREATE_FAILING) is None
    # Then it is repeated under its name with a growing pause, and told in the server's words
    passes.pool_pass(turn=2.5)
    passes.pool_pass()
    assert posts() - before == 2
    failing = passes.condition("pool", "warm", names.CREATE_FAILING)
    assert failing is not None and words in failing["message"]
    for turn in (3, 5, 9, 17):
        passes.pool_pass(turn=turn)
        passes.pool_pass(times=2)
    assert posts() - before <= 6
    assert len({text for reason, text in passes.told.events if reason == "FailedCreate"}) <= 2
    # And when it heals, the pool fills and says nothing of it
    simulated.clear_faults()
    for _ in range(4):
        passes.pool_pass(turn=40)
    assert len(passes.pods()) == 8
    assert set(passes.entries()) == {pod["metadata"]["name"] for pod in passes.pods()}
    assert passes.condition("pool", "warm", names.CREATE_FAILING) is None


def test_one_lost_answer_to_a_create_is_no_trouble_worth_telling(passes: Passes, simulated: SimCluster) -> None:
    passes.pool("warm", 3, 3, 0, 9)
    simulated.add_fault(path=f"/namespaces/{passes.ns}/pods", methods=["POST"], status=503, count=1)
    passes.pool_pass()
    passes.pool_pass(turn=2.5)
    passes.pool_pass(times=2)
    assert len(passes.pods()) == 3
    assert "FailedCreate" not in passes.told.reasons()
    assert passes.condition("pool", "warm", names.CREATE_FAILING) is None


def test_a_pool_that_needs_no_pod_any_more_forgets_that_creates_failed(passes: Passes, simulated: SimCluster) -> None:
    passes.pool("warm", 2, 2, 0, 9)
    path = f"/namespaces/{passes.ns}/pods"
    simulated.add_fault(path=path, methods=["POST"], status=403, reason="Forbidden", message="exceeded quota")
    passes.pool_pass(times=2)
    assert passes.condition("pool", "warm", names.CREATE_FAILING) is not None
    passes.patch("pool", "warm", {"spec": {"capacitySpec": {"bufferMin": 0, "bufferMax": 0}}})
    passes.pool_pass(times=2)
    assert passes.condition("pool", "warm", names.CREATE_FAILING) is None


def test_a_pod_that_the_ledger_does_not_know_is_cleaned_before_anybody_gets_it(passes: Passes) -> None:
    # Given a warm pool, one of whose pods lost its entry
    lost, kept = passes.warm(count=2)
    ledger = keys.ledger(f"{passes.ns}/warm", "pods"), keys.ledger(f"{passes.ns}/warm", "avail")
    passes.store.redis.hdel(ledger[0], lost)
    passes.store.redis.zrem(ledger[1], lost)
    passes.store.redis.hincrby(keys.ledger(f"{passes.ns}/warm", "count"), "free", -1)
    passes.box()
    # When a full pass looks at it, nobody gets it, and the next one deals with it
    passes.pool_pass()
    assert passes.record() == [kept]
    assert passes.entries()[lost].state == "dirty"
    passes.pool_pass(times=2)
    assert not passes.there("pod", lost) or passes.entries()[lost].state in ("free", "doom")


@pytest.mark.parametrize("damage", ["another installation's", "deleted", "another Redis'"])
def test_a_pool_that_lost_its_ledger_without_an_event_serves_again(passes: Passes, damage: str) -> None:
    [pod] = passes.warm()
    key, meta = Key(POOL, passes.ns, "warm"), keys.ledger(f"{passes.ns}/warm", "meta")
    passes.store.queue.forget(key)
    # Given a ledger that may not be believed any more, and an idle queue
    if damage == "deleted":
        passes.store.redis.delete(*passes.store.redis.keys(f"osb:l:{key.member}:*"))
    else:
        passes.store.redis.hset(meta, "uid" if damage == "another installation's" else "boot", "other")
    # When the beat looks at the ledgers
    Duties(passes.store).ledgers()
    handle(passes.world, key)
    # Then it is rebuilt, and the pod is nobody's and known
    assert passes.store.ledger(passes.ns, "warm").meta().ready
    assert passes.entries()[pod].state in ("free", "dirty")
    passes.box()
    passes.pool_pass(times=3)
    assert passes.record() == [pod]


def test_cut_slots_leave_the_record_and_get_fresh_pods_later(passes: Passes) -> None:
    passes.warm(count=3, recycleStrategy={"type": "Noop"})
    passes.box(replicas=3)
    passes.pool_pass()
    first, *cut = passes.record()
    passes.patch("batchsandbox", "b", {"spec": {"replicas": 1}})
    passes.pool_pass(times=3)
    assert passes.record() == [first]
    assert passes.note(names.ALLOC_RELEASED) in (None, {"pods": []})
    assert {passes.entries()[pod].state for pod in cut} == {"free"}
    passes.patch("batchsandbox", "b", {"spec": {"replicas": 2}})
    passes.ready()
    passes.pool_pass()
    assert passes.record()[0] == first
    assert len(passes.record()) == 2


def test_events_tell_only_of_claims_that_were_accepted(passes: Passes, simulated: SimCluster) -> None:
    passes.warm(count=2)
    passes.box("refused")
    passes.box("fine")
    path = f"/namespaces/{passes.ns}/batchsandboxes/refused($|\\?)"
    simulated.add_fault(path=path, methods=["PATCH"], status=422, reason="Invalid")
    passes.pool_pass(deep=False)
    [given] = passes.record("fine")
    told = [said for said in passes.told.events if said[0] in ("Scheduled", "AllocationSucceeded")]
    assert told == [
        ("Scheduled", f"Successfully assigned 1 pod(s) from pool warm: [{given}]"),
        ("AllocationSucceeded", f"Allocated 1 pod(s) to sandbox fine: [{given}]"),
    ]


def test_a_claim_computed_from_an_old_sandbox_changes_nothing_and_drops_no_finalizer(passes: Passes) -> None:
    passes.warm()
    passes.box()

    def meanwhile(step: str) -> None:
        if step == "claim":
            version = passes.get("batchsandbox", "b")["metadata"]["resourceVersion"]
            meta = {"resourceVersion": version, "finalizers": ["else/keep", names.FINALIZER_TASKS]}
            passes.patch("batchsandbox", "b", {"metadata": meta})

    passes.pool_pass(step=meanwhile, deep=False)
    assert passes.record() == []
    assert passes.finalizers("batchsandbox", "b") == ["else/keep", names.FINALIZER_TASKS]
    passes.pool_pass(deep=False)
    assert len(passes.record()) == 1
    assert passes.finalizers("batchsandbox", "b") == ["else/keep", names.FINALIZER_TASKS, names.FINALIZER_POOL]


def test_a_failed_claim_leaves_nothing_of_itself_in_the_same_pass(passes: Passes, simulated: SimCluster) -> None:
    [pod] = passes.warm()
    passes.box()
    path = f"/namespaces/{passes.ns}/batchsandboxes/b($|\\?)"
    simulated.add_fault(path=path, methods=["PATCH"], count=1, status=422, reason="Invalid")
    passes.pool_pass(deep=False)
    assert passes.entries()[pod].state == "free"
    mirrored = passes.store.mirror.read("batchsandbox", [f"{passes.ns}/b"]).entries[f"{passes.ns}/b"]
    assert mirrored is not None
    assert names.ALLOC_STATUS not in (orjson.loads(mirrored.doc)["metadata"].get("annotations") or {})


def test_pods_that_are_gone_already_are_deleted_without_an_error(passes: Passes) -> None:
    passes.warm(count=3)
    passes.patch("pool", "warm", {"spec": {"capacitySpec": {"bufferMin": 0, "bufferMax": 0}}})

    def gone(step: str) -> None:
        if step == "ledger-move":
            for pod in passes.pods("warm"):
                passes.delete("pod", pod["metadata"]["name"], grace=0)

    passes.pool_pass(step=gone)
    assert "FailedDelete" not in passes.told.reasons()
    passes.pool_pass()
    assert passes.entries() == {}


def test_a_pod_made_anew_under_a_name_survives_the_delete_of_the_former_one(passes: Passes) -> None:
    [pod] = passes.warm()
    passes.patch("pool", "warm", {"spec": {"capacitySpec": {"bufferMin": 0, "bufferMax": 0}}})

    def another(step: str) -> None:
        if step == "delete" and passes.get("pod", pod)["metadata"].get("labels"):
            passes.delete("pod", pod, grace=0)
            passes.stranger(pod)

    passes.pool_pass(step=another)
    assert passes.there("pod", pod)
    assert "FailedDelete" not in passes.told.reasons()


def test_a_rollout_is_told_after_its_deletes_and_an_eviction_by_its_own_reason(
    passes: Passes, simulated: SimCluster
) -> None:
    first, second = passes.warm(count=2, updateStrategy={"maxUnavailable": "100%"})
    template = {"spec": {"containers": [{"name": "main", "image": "img:2"}], "terminationGracePeriodSeconds": 0}}
    passes.patch("pool", "warm", {"spec": {"template": template}})
    path = f"/namespaces/{passes.ns}/pods/{first}"
    simulated.add_fault(path=path, methods=["DELETE"], count=1, status=500)
    passes.pool_pass()
    [text] = [text for reason, text in passes.told.events if reason == "PodUpdated"]
    assert second in text
    assert first not in text
    passes.pool_pass(times=3)
    passes.ready()
    assert passes.told.reasons().count("PodUpdated") == 1
    new = passes.pods()[0]["metadata"]["name"]
    passes.patch("pod", new, {"metadata": {"labels": {names.LABEL_EVICT: "true"}}})
    passes.pool_pass()
    assert ("PodEvicted", f"Evicted idle pod: [{new}]") in passes.told.events


# -- nodes ----------------------------------------------------------------------------------------------------


@pytest.fixture
def node(passes: Passes) -> Iterator[str]:
    """A node on which the pools of this test have their pods."""
    name = f"node-{passes.ns}"
    passes.kube.create("node", None, {"metadata": {"name": name}})
    yield name
    passes.kube.delete("node", None, name)


def _on(node: str) -> Obj:
    main = {"name": "main", "image": "img"}
    return {"spec": {"nodeName": node, "containers": [main], "terminationGracePeriodSeconds": 0}}


def _cordon(passes: Passes, node: str, *taints: str) -> None:
    spec = {"unschedulable": True, "taints": [{"key": key, "effect": "NoSchedule"} for key in taints]}
    passes.kube.patch("node", None, node, {"spec": spec})


def test_idle_pods_leave_a_cordoned_node_and_held_ones_stay(passes: Passes, node: str) -> None:
    pods = set(passes.warm(count=2, template=_on(node)))
    passes.box()
    passes.pool_pass()
    [held] = passes.record()
    [idle] = pods - {held}
    _cordon(passes, node)
    passes.pool_pass()
    assert passes.there("pod", held) and not passes.there("pod", idle)
    assert any(reason == "PodEvicted" and idle in text for reason, text in passes.told.events)
    assert any(f"node {node} is cordoned" in text for _, text in passes.told.events)


@pytest.mark.parametrize(("taints", "draining"), [((), False), (("other", "ToBeDeletedByClusterAutoscaler"), True)])
def test_a_taint_tells_that_a_cordoned_node_is_drained(
    passes: Passes, node: str, taints: tuple[str, ...], draining: bool
) -> None:
    _cordon(passes, node, *taints)
    passes.sync()
    one = Pass(world=passes.world, key=Key(POOL, passes.ns, "warm"), token="t", deep=True, deadline=Deadline())
    assert gather.cordoned(one) == {node: NodeFact(name=node, unschedulable=True, draining=draining)}


@pytest.mark.parametrize("what", ["never listed", "its watcher is silent"])
def test_without_news_of_nodes_idle_pods_stay_and_the_pool_works(passes: Passes, node: str, what: str) -> None:
    [idle] = passes.warm(template=_on(node))
    _cordon(passes, node)
    passes.sync()
    if what == "never listed":
        passes.store.redis.delete(*passes.store.redis.keys(keys.mirror("node", "*")))
    else:
        passes.store.redis.hset(keys.mirror("node", "meta"), "fresh", passes.store.queue.now_ms() - 150_000)
    passes.run(POOL, "warm")
    assert passes.there("pod", idle)
    passes.box()
    for kind in ("pool", "batchsandbox"):
        passes.world.forward.relist(kind, passes.kube.list(kind, passes.ns))
    passes.run(POOL, "warm")
    assert passes.record() == [idle]


def test_a_node_counts_as_soon_as_it_is_listed_not_only_when_the_list_is_done(passes: Passes, node: str) -> None:
    # Given a Redis that forgot the nodes, so that they are listed anew
    [idle] = passes.warm(template=_on(node))
    _cordon(passes, node)
    passes.store.redis.delete(*passes.store.redis.keys(keys.mirror("node", "*")))
    # When the pass that a node woke runs before the list is finished
    raws, _ = passes.kube.all("node", fields="spec.unschedulable=true")
    passes.world.forward.put("node", raws)
    assert not passes.store.mirror.synced("node")
    passes.run(POOL, "warm")
    # Then it sees that node: nothing would wake it again
    assert not passes.there("pod", idle)


def test_a_pool_of_the_same_name_inherits_nothing(passes: Passes) -> None:
    [old] = passes.warm()
    passes.box()
    passes.pool_pass()
    passes.delete("pool", "warm", propagation="Orphan")
    passes.delete("pod", old, grace=0)
    new = passes.pool("warm", 1, 1, 0, 9)
    passes.pool_pass(times=2)
    passes.ready()
    passes.pool_pass(times=2)
    [now] = passes.record()
    assert now != old
    assert passes.note(names.ALLOC_STATUS)["poolUID"] == new["metadata"]["uid"]
    assert passes.entries()[now].state == "held"


def test_a_slot_names_one_pod_however_often_it_is_refilled(passes: Passes) -> None:
    passes.warm(count=2)
    passes.box(replicas=2)
    passes.pool_pass()
    for _ in range(3):
        lost, kept = passes.record()
        passes.delete("pod", lost, grace=0)
        for _ in range(3):
            passes.pool_pass()
            passes.ready()
        passes.pool_pass()
        record = passes.note(names.ALLOC_STATUS)
        assert len(record["pods"]) == len(record["uids"]) == 2
        assert record["pods"][1] == kept
        assert record["pods"][0] != lost
    assert passes.note(names.ALLOC_RELEASED) in (None, {"pods": []})


def test_a_terminating_sandbox_with_everything_released_is_let_go_without_replay(passes: Passes) -> None:
    [pod] = passes.warm(recycleStrategy={"type": "Noop"})
    passes.box()
    passes.pool_pass()
    passes.annotate("batchsandbox", "b", alloc_release={"pods": [pod]})
    passes.pool_pass(times=2)
    assert passes.note(names.ALLOC_RELEASED) == {"pods": [pod]}
    passes.box("next")
    passes.pool_pass()
    assert passes.record("next") == [pod]
    passes.delete("batchsandbox", "b")
    passes.pool_pass(times=2)
    assert not passes.there("batchsandbox", "b")
    assert passes.entries()[pod].box_uid == passes.get("batchsandbox", "next")["metadata"]["uid"]
    assert passes.entries()[pod].state == "held"


def test_a_terminating_sandbox_that_never_got_a_pod_is_let_go(passes: Passes) -> None:
    passes.pool()
    passes.box(meta={"finalizers": ["else/keep", names.FINALIZER_POOL]})
    passes.delete("batchsandbox", "b")
    passes.pool_pass(times=2)
    assert passes.finalizers("batchsandbox", "b") == ["else/keep"]


def test_sandboxes_outlive_their_pool_and_can_be_deleted(passes: Passes) -> None:
    passes.warm()
    passes.box("going")
    passes.pool_pass()
    passes.box("waiting")
    passes.delete("batchsandbox", "going")
    passes.delete("pool", "warm")
    passes.pool_pass()
    assert not passes.there("batchsandbox", "going")
    assert passes.there("batchsandbox", "waiting")


def test_the_tasks_of_a_terminating_sandbox_end_before_its_pods_are_recycled(passes: Passes) -> None:
    pods = passes.warm(count=2)
    passes.box(replicas=2, meta={"finalizers": [names.FINALIZER_TASKS]})
    passes.pool_pass()
    passes.delete("batchsandbox", "b")
    passes.pool_pass(times=2)
    assert {passes.entries()[pod].state for pod in pods} == {"held"}
    passes.annotate("batchsandbox", "b", alloc_release={"pods": [pods[0]]})
    passes.pool_pass(times=2)
    assert pods[0] not in [p["metadata"]["name"] for p in passes.pods()]
    assert passes.entries()[pods[1]].state == "held"


def test_a_failing_recycling_is_told_once_and_forgotten_when_it_works(passes: Passes, simulated: SimCluster) -> None:
    [pod] = passes.warm()
    passes.box()
    passes.pool_pass()
    passes.delete("batchsandbox", "b")
    path = f"/namespaces/{passes.ns}/pods/{pod}"
    simulated.add_fault(path=path, methods=["DELETE"], status=403, reason="Forbidden", message="no")
    passes.pool_pass(times=3)
    assert passes.told.reasons().count("FailedRecyclePod") == 1
    assert passes.condition("pool", "warm", names.RECYCLE_FAILING) is not None
    simulated.clear_faults()
    passes.pool_pass(times=3)
    assert passes.condition("pool", "warm", names.RECYCLE_FAILING) is None
    assert not passes.there("batchsandbox", "b")


def test_a_refusal_that_repeats_reads_the_same_and_writes_the_status_once(
    passes: Passes, simulated: SimCluster
) -> None:
    # Given a server that refuses every pod, whatever its drawn name
    simulated.add_fault(methods=["POST"], path=f"/namespaces/{passes.ns}/pods", status=422, reason="Invalid")
    passes.pool("warm", 1, 1, 0, 3)
    passes.pool_pass()
    passes.pool_pass(turn=400.0)
    version = passes.get("pool", "warm")["metadata"]["resourceVersion"]
    # When it is tried again
    passes.pool_pass(turn=400.0)
    # Then nothing new is said
    assert passes.get("pool", "warm")["metadata"]["resourceVersion"] == version
    condition = passes.condition("pool", "warm", names.CREATE_FAILING)
    assert condition is not None
    assert "warm-*" in condition["message"]


def test_the_first_ledger_of_a_new_pool_is_no_warning_and_one_with_pods_is(
    passes: Passes, capsys: pytest.CaptureFixture[str]
) -> None:
    passes.warm()
    assert '"warn"' not in "".join(line for line in capsys.readouterr().err.splitlines() if "rebuilt a ledger" in line)
    passes.store.redis.flushdb()
    passes.pool_pass()
    assert '"warn"' in "".join(line for line in capsys.readouterr().err.splitlines() if "rebuilt a ledger" in line)
