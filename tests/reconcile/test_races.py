"""Two hands on one object at the same moment: each interleaving that once lost something, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from osb.api import names
from osb.api.key import BATCHSANDBOX, POOL, Key
from osb.api.record import Record, format
from osb.errors import OsbError
from osb.facts.ledger import FREE, HELD
from osb.sim import SimCluster
from tests.doubles.passworld import Passes
from tests.doubles.stepping import Stepping


def at(step: str, action: Callable[[], Any]) -> Callable[[str], None]:
    """Does `action` at the first such step."""
    done: list[bool] = []

    def hook(name: str) -> None:
        if name == step and not done:
            done.append(True)
            action()

    return hook


def try_pass(passes: Passes, hook: Callable[[str], None], *, deep: bool = True) -> None:
    """A pool's pass whose refusals and conflicts are the next pass's business."""
    passes.sync()
    try:
        passes.run(POOL, "warm", step=hook, deep=deep)
    except OsbError:
        pass


def asks(passes: Passes, kind: str = POOL, name: str = "warm") -> bool:
    peek = passes.store.queue.peek(Key(kind, passes.ns, name))
    return peek.dirty_ms is not None


def held(passes: Passes, sim: SimCluster, replicas: int = 1, **pool: Any) -> Stepping:
    passes.warm(count=replicas, **pool)
    passes.box(replicas=replicas)
    run = Stepping(passes, sim)
    run.settle()
    run.served("b")
    return run


def test_a_sandbox_that_shrinks_and_grows_again_gets_its_second_pod_anew(passes: Passes, simulated: SimCluster) -> None:
    # Given a sandbox that gave up its second slot, whose pod is recycled but not yet acknowledged
    run = held(passes, simulated, 2)
    first, second = passes.record()
    passes.patch("batchsandbox", "b", {"spec": {"replicas": 1}})
    run.lost.add(second)
    grown: list[bool] = []

    def grow() -> None:
        grown.append(True)
        passes.patch("batchsandbox", "b", {"spec": {"replicas": 2}})

    # When the user wants it again at this moment
    while not grown:
        try_pass(passes, at("acknowledge", grow))
    run.settle()
    # Then it gets another pod: the slot was not given back for good
    run.served("b")
    assert passes.record()[0] == first and passes.record()[1] != second
    assert passes.note(names.ALLOC_RELEASED) in (None, {"pods": []})


def test_a_change_that_arrives_with_the_answer_to_an_acknowledgement_reaches_the_pool(
    passes: Passes, simulated: SimCluster
) -> None:
    # Given a pod that is given back, and a user who asks for one more right before it is acknowledged
    run = held(passes, simulated, 1)
    pod = passes.record()[0]
    passes.annotate("batchsandbox", "b", alloc_release={"pods": [pod]})
    run.lost.add(pod)
    passes.sync()
    grown: list[bool] = []

    def grow(name: str) -> None:
        if name == "delete" and not grown:
            grown.append(True)
            passes.patch("batchsandbox", "b", {"spec": {"replicas": 2}})

    # When the pass acknowledges on a fresh read, which already has the change
    passes.run(POOL, "warm", step=grow)
    while not (passes.note(names.ALLOC_RELEASED) or {}).get("pods"):
        passes.run(POOL, "warm", step=grow)
    # Then the mirror has it, the watch will not announce it any more, so the pool's key asks for a pass by itself
    assert grown and asks_or_is_due(passes)
    run.settle()
    assert len(passes.record()) == 2


def asks_or_is_due(passes: Passes) -> bool:
    peek = passes.store.queue.peek(Key(POOL, passes.ns, "warm"))
    return peek.dirty_ms is not None or peek.due_ms is not None


def test_a_change_of_the_pool_during_its_pass_is_not_swallowed_by_its_status(passes: Passes) -> None:
    # Given a pool whose template is changed after its pass was planned
    passes.warm()
    passes.patch("pool", "warm", {"spec": {"capacitySpec": {"bufferMin": 2, "bufferMax": 2, "poolMax": 9}}})
    size = {"spec": {"capacitySpec": {"bufferMin": 3, "bufferMax": 3, "poolMax": 9}}}
    passes.sync()
    # When the status is written on a fresh object that has the change
    passes.run(POOL, "warm", step=at("pool-planned", lambda: passes.patch("pool", "warm", size)))
    # Then the answer moved the mirror, and the change asks for a pass although the write was our own
    assert asks(passes)


def test_a_claim_that_was_refused_is_read_and_what_it_shows_reaches_the_pool(passes: Passes) -> None:
    # Given a sandbox that is about to get a pod and asks for a second one at that moment
    passes.warm(count=2)
    passes.box(replicas=1)
    grow = at("claim", lambda: passes.patch("batchsandbox", "b", {"spec": {"replicas": 2}}))
    passes.sync()
    # When the claim meets the change
    passes.run(POOL, "warm", step=grow, deep=False)
    # Then nothing was given, the pods are free again, and a pass is asked for without any event
    assert passes.record() == []
    assert {entry.state for entry in passes.entries().values()} == {FREE}
    assert asks(passes)


def test_reservations_of_two_passes_for_one_sandbox_are_judged_one_by_one(
    passes: Passes, simulated: SimCluster
) -> None:
    # Given two waiting slots and one ready pod: its claim lands, its answer is lost
    passes.warm(count=1)
    passes.box(replicas=2)
    passes.sync()
    simulated.add_fault(methods=["PATCH"], path="batchsandboxes/b", drop=True, count=1)
    passes.run(POOL, "warm", deep=False)
    [first] = passes.record()
    # And a second reservation, of another pass, whose claim was never sent
    second = _reserve_another(passes)
    # When the next pass settles both
    run = Stepping(passes, simulated)
    run.settle()
    # Then the first is still the sandbox's, and the second came to it as well
    assert passes.record() == [first, second]
    assert {name: entry.state for name, entry in passes.entries().items() if entry.box_uid} == {
        first: HELD,
        second: HELD,
    }


def _reserve_another(passes: Passes) -> str:
    """A second pod, ready, and reserved by the ledger for slot 1 of `b` by a worker that died right after."""
    from osb.facts.adds import Add
    from osb.store.ledger_types import Grant, Proof

    pool, box = passes.get("pool", "warm"), passes.get("batchsandbox", "b")
    meta = {
        "name": "warm-late", "labels": {names.LABEL_POOL_NAME: "warm"},
        "ownerReferences": [{"apiVersion": names.API_VERSION, "kind": "Pool", "name": "warm", "controller": True,
                             "uid": pool["metadata"]["uid"]}],
    }  # fmt: skip
    containers = [{"name": "main", "image": "img"}]
    pod = passes.kube.create("pod", passes.ns, {"metadata": meta, "spec": {"containers": containers}})
    passes.ready("warm-late")
    key, token = Key(POOL, passes.ns, "warm"), "dead"
    passes.store.queue.forget(key)
    passes.store.queue.add([Add(key=key)])
    assert passes.store.queue.begin(key, token).state == "run"
    proof = Proof(member=key.member, token=token, pool_uid=pool["metadata"]["uid"])
    ledger = passes.store.ledger(passes.ns, "warm")
    assert ledger.intend(proof, 9, ["warm-late"])
    from osb.store.ledger_types import Move

    assert ledger.move(proof, [Move(what="born", pod="warm-late", pod_uid=pod["metadata"]["uid"], from_state="new")])
    grant = Grant(pod="warm-late", pod_uid=pod["metadata"]["uid"], box_uid=box["metadata"]["uid"], box="b", slot=1)
    assert ledger.allocate(proof, "op", [grant]).ok
    return "warm-late"


def test_an_unreadable_record_without_a_pool_keeps_its_pods_when_redis_is_lost(
    passes: Passes, simulated: SimCluster
) -> None:
    # Given a sandbox with a pod, whose record a user has broken and whose poolRef he has cleared
    run = held(passes, simulated, 1)
    [pod] = passes.record()
    broken = {"metadata": {"annotations": {names.ALLOC_STATUS: f'{{"pods":["{pod}"'}}, "spec": {"poolRef": None}}
    passes.patch("batchsandbox", "b", broken)
    # When Redis forgets everything and another sandbox waits
    passes.store.redis.flushall()
    passes.box("c", replicas=1)
    run.settle()
    # Then the pod is nobody else's and lives
    assert pod not in passes.record("c")
    assert passes.there("pod", pod)
    assert passes.entries()[pod].state == HELD


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("][", "shown"), (None, "shown"), ('{"pods":[]}', "shown"), ("][", "taken off too"), (None, "taken off too"),
        (None, "and its finalizer"),
    ],
)  # fmt: skip
def test_a_record_that_was_overwritten_while_redis_was_lost_makes_nobody_elses_pod_of_it(
    passes: Passes, simulated: SimCluster, text: str | None, address: str
) -> None:
    # Given a used pod whose sandbox's record says nothing of it any more, before any pass could see that
    run = held(passes, simulated, 1)
    [pod] = passes.record()
    run.lost.add(pod)
    marks: dict[str, str | None] = {names.ALLOC_STATUS: text}
    if address != "shown":
        marks[names.ENDPOINTS] = None
    meta: dict[str, Any] = {"annotations": marks}
    if address == "and its finalizer":  # as when its first manifest is sent again: only its status is left
        meta |= {"finalizers": None, "resourceVersion": passes.get("batchsandbox", "b")["metadata"]["resourceVersion"]}
    passes.patch("batchsandbox", "b", {"metadata": meta})
    passes.store.redis.flushall()
    # When another sandbox waits for a pod
    passes.box("c", replicas=1)
    run.settle()
    # Then it does not get the used one (checked after every pass, too)
    run.served("c")
    assert pod not in passes.record("c")
    # and one that nobody claims any more is recycled
    assert text is not None or not passes.there("pod", pod)


def test_a_pod_that_was_lost_together_with_redis_is_replaced(passes: Passes, simulated: SimCluster) -> None:
    # Given a delivered pod that vanishes while Redis loses everything too
    run = held(passes, simulated, 1)
    [pod] = passes.record()
    run.lost.add(pod)
    passes.delete("pod", pod)
    passes.store.redis.flushall()
    # When the ledger is rebuilt, in which the pod never occurs
    run.settle()
    # Then the slot has another pod and the loss is told
    run.served("b")
    assert passes.record() != [pod] and passes.note(names.ALLOC_STATUS)["losses"] == 1
    assert names.POD_LOST in passes.told.reasons()


def test_a_dirty_pod_that_somebody_adopts_meanwhile_is_not_deleted(passes: Passes) -> None:
    # Given a pod of unknown history that a pass is about to recycle by deletion
    passes.warm(count=1)
    [name] = passes.entries()
    passes.patch("pod", name, {"metadata": {"labels": {names.LABEL_SUSPECT: "x"}}})
    passes.store.redis.flushall()
    passes.sync()
    touch = {"metadata": {"annotations": {names.ADOPTED: "by-another-worker"}}}
    # When another worker touches the pod, to keep it, between decision and DELETE
    try_pass(passes, at("delete", lambda: passes.patch("pod", name, touch)))
    # Then this one's delete does not land
    assert passes.there("pod", name)
    assert not passes.get("pod", name)["metadata"].get("deletionTimestamp")


def test_a_record_of_the_plain_shape_counts_and_is_kept(passes: Passes, simulated: SimCluster) -> None:
    # Given a sandbox as the reference controller left it: names only
    run = held(passes, simulated, 1)
    [pod] = passes.record()
    passes.annotate("batchsandbox", "b", alloc_status={"pods": [pod]})
    # When the ledger is rebuilt from it
    passes.store.redis.flushall()
    run.settle()
    # Then the pod is still this sandbox's
    assert passes.entries()[pod].state == HELD
    assert format(Record(pods=(pod,))).startswith('{"pods":')


def test_a_forged_name_in_a_record_gives_nothing_and_takes_nothing(passes: Passes, simulated: SimCluster) -> None:
    # Given two sandboxes with a pod each
    passes.warm(count=2)
    passes.box("b", replicas=1)
    passes.box("c", replicas=1)
    run = Stepping(passes, simulated)
    run.settle()
    [mine], [theirs] = passes.record("b"), passes.record("c")
    # When the owner of `c` writes the pod of `b` into its record
    passes.annotate("batchsandbox", "c", alloc_status={"pods": [mine]}, alloc_release={"pods": [mine]})
    for _ in range(4):
        passes.pool_pass()
        passes.box_pass("b")
        passes.box_pass("c")
    # Then `b` keeps its pod and shows it, and `c` is told and shows no address of it
    assert passes.entries()[mine].state == HELD
    assert passes.entries()[mine].box_uid == passes.get("batchsandbox", "b")["metadata"]["uid"]
    assert passes.there("pod", mine) and not passes.get("pod", mine)["metadata"].get("deletionTimestamp")
    address = passes.get("pod", mine)["status"]["podIP"]
    assert address not in (passes.note(names.ENDPOINTS, "c") or [])
    assert theirs != mine
    assert asks_for(passes, BATCHSANDBOX, "b") in (True, False)


def asks_for(passes: Passes, kind: str, name: str) -> bool:
    return passes.store.queue.peek(Key(kind, passes.ns, name)).dirty_ms is not None
