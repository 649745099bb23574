"""Exact interleavings over the real ledger: each plays one way to lose a pod, and each shows that it would notice.

A scenario takes a `World` and must go through without `Violation`; `BROKEN` names the rules without which it must not.
Random search is too weak for these (test_ledger_machine.py): most need one worker frozen at one exact step.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from osb.store.client import Store
from osb.store.ledger import Ledger
from tests.doubles.ledger_worker import POOL, Worker
from tests.doubles.ledger_world import UID, Violation, World
from tests.doubles.mutant import Mutant

Scenario = Callable[[World], None]

EARLY = "a-waits"  # is served before `b-first` when both wait


def free_pod(world: World, count: int = 1) -> list[str]:
    """Pods that nobody ever had, clean in a ready ledger."""
    pods = [world.pod_appears() for _ in range(count)]
    Worker(world).go()
    assert world.ledger.counts()["free"] == count
    return pods


def stopped(world: World, at: str, *, doom: bool = False) -> Worker:
    """A worker that stands still before its step `at`."""
    worker = Worker(world, doom=doom)
    assert worker.go(at) == at
    return worker


def holder(world: World, pod: str) -> str:
    return world.ledger.holders([pod])[pod].box


def served(world: World, pod: str, name: str) -> None:
    """The pod ends with exactly this sandbox, in ledger and record."""
    for _ in range(3):
        Worker(world).go()
    assert (holder(world, pod), world.ledger.holders([pod])[pod].state) == (name, "held")
    assert [pod_name for pod_name, _ in world.boxes[name].claims()] == [pod]


# -- claims ------------------------------------------------------------


def a_claim_without_answer_lands_late(world: World) -> None:
    (pod,) = free_pod(world)
    world.user_creates("b-first")
    worker = stopped(world, "claim")
    world.outcome = "late"
    worker.go()
    world.user_creates(EARLY)
    Worker(world).go()  # rolls the reservation forward
    world.land()
    served(world, pod, "b-first")


def a_frozen_worker_sends_its_claim_after_the_pod_moved_on(world: World) -> None:
    (pod,) = free_pod(world)
    world.user_creates("b-first")
    frozen = stopped(world, "claim")
    Worker(world).go()
    world.user_gives_back("b-first")
    Worker(world).go()
    world.user_creates(EARLY)
    Worker(world).go()
    assert holder(world, pod) == EARLY
    frozen.go()
    served(world, pod, EARLY)


def a_frozen_worker_cancels_what_was_rolled_forward(world: World) -> None:
    (pod,) = free_pod(world)
    world.user_creates("b-first")
    frozen = stopped(world, "claim")
    world.user_edits("b-first")
    assert frozen.go("cancel") == "cancel"  # refused: the sandbox changed; not in its record
    other = stopped(world, "claim")
    world.outcome = "lost"
    other.go()  # the same claim landed, and nobody knows
    frozen.go()
    served(world, pod, "b-first")


def a_sandbox_had_the_pod_and_is_gone_before_its_claim_is_settled(world: World) -> None:
    (pod,) = free_pod(world)
    world.user_creates("b-first")
    worker = stopped(world, "claim")
    world.outcome = "lost"
    worker.go()
    world.user_deletes("b-first", force=True)
    world.user_creates(EARLY)
    served(world, pod, EARLY)


def the_second_request_is_refused_because_the_first_one_landed(world: World) -> None:
    (pod,) = free_pod(world)
    world.user_creates("b-first")
    worker = stopped(world, "claim")
    world.outcome = "late"
    worker.go()
    second = stopped(world, "claim")
    world.land()
    world.user_deletes("b-first", force=True)
    second.go()
    world.user_creates(EARLY)
    served(world, pod, EARLY)


def a_frozen_worker_reads_afresh_and_resends(world: World) -> None:
    first, second = free_pod(world, 2)
    world.user_creates("b-first", 2)
    worker = stopped(world, "claim")
    world.outcome = "late"
    worker.go()  # two open reservations
    frozen = stopped(world, "read")  # has seen both, stands before the first
    world.user_scales("b-first", 0)
    Worker(world).go()  # not wanted any more: dirty, cleaned
    Worker(world).go()
    world.user_creates(EARLY, 2)
    Worker(world).go()
    assert {holder(world, first), holder(world, second)} == {EARLY}
    world.user_scales("b-first", 2)
    frozen.go()
    assert {holder(world, first), holder(world, second)} == {EARLY}


# -- releases ------------------------------------------------------------


def a_pod_is_given_back(world: World) -> None:
    (pod,) = free_pod(world)
    world.user_creates("b-first")
    Worker(world).go()
    world.user_gives_back("b-first")
    Worker(world).go()
    assert world.boxes["b-first"].released == {pod}
    world.user_creates(EARLY)
    served(world, pod, EARLY)


def a_frozen_worker_recycles_after_the_next_owner_came(world: World) -> None:
    pods = free_pod(world, 2)
    world.user_creates("b-first", 2)
    Worker(world).go()
    world.user_deletes("b-first", force=True)
    world.store.redis.flushall()
    frozen = stopped(world, "prove")  # has rebuilt, stands at the first dirty pod, the second one is next
    for _ in range(2):
        Worker(world).go()
    world.user_creates(EARLY, 2)
    Worker(world).go()
    assert {holder(world, pod) for pod in pods} == {EARLY}
    frozen.go()


# -- deletes ------------------------------------------------------------


def a_planned_delete_is_late(world: World) -> None:
    (pod,) = free_pod(world)
    worker = stopped(world, "delete", doom=True)
    world.outcome = "late"
    worker.go()
    world.user_creates("b-first")
    Worker(world).go("bury")
    if world.flight:
        world.land()
    assert pod not in world.pods


def a_delete_decided_before_a_flush_is_late(world: World) -> None:
    (pod,) = free_pod(world)
    worker = stopped(world, "delete", doom=True)
    world.outcome = "late"
    worker.go()
    world.store.redis.flushall()
    world.user_creates("b-first")
    Worker(world).go()  # unknown history: recycled, which makes another version of the pod
    Worker(world).go()
    assert holder(world, pod) == "b-first"
    world.land()
    served(world, pod, "b-first")


# -- losses ------------------------------------------------------------


def a_claim_from_before_a_flush_lands_after_the_rebuild(world: World) -> None:
    (pod,) = free_pod(world)
    world.user_creates("b-first")
    worker = stopped(world, "claim")
    world.outcome = "late"
    worker.go()
    world.store.redis.flushall()
    world.user_creates(EARLY)
    Worker(world).go()
    Worker(world).go()
    assert holder(world, pod) == EARLY
    world.land()
    served(world, pod, EARLY)


def a_sandbox_vanishes_while_nobody_remembers_it(world: World) -> None:
    (pod,) = free_pod(world)
    world.user_creates("b-first")
    Worker(world).go()
    world.store.redis.flushall()
    world.user_deletes("b-first", force=True)
    world.user_creates(EARLY)
    served(world, pod, EARLY)


def a_pod_without_entry_is_found(world: World) -> None:
    (pod,) = free_pod(world)
    world.user_creates("b-first")
    Worker(world).go()
    world.user_deletes("b-first", force=True)
    entry = world.ledger.holders([pod])[pod]
    taking = stopped(world, "read")
    taking._move("gone", pod, entry)  # a reading that was wrong: it lives
    world.user_creates(EARLY)
    served(world, pod, EARLY)


def two_records_claim_one_pod(world: World) -> None:
    (pod,) = free_pod(world)
    world.user_creates("b-first")
    Worker(world).go()
    world.user_creates("c-forged")
    world.user_forges("c-forged", pod)
    world.store.redis.flushall()
    Worker(world).go()
    world.user_deletes("c-forged", force=True)
    for _ in range(3):
        Worker(world).go()
    assert world.ledger.holders([pod])[pod].state == "conf"


def redis_goes_back_to_a_time_when_the_pod_was_free(world: World) -> None:
    (pod,) = free_pod(world)
    redis = world.store.redis
    before = {key: redis.dump(key) for key in redis.keys("osb:l:*")}
    world.user_creates("b-first")
    Worker(world).go()
    world.user_creates(EARLY)
    frozen = stopped(world, "view")
    for key, value in before.items():
        redis.restore(key, 0, value, replace=True)
    redis.hset("osb:l:ns/warm:meta", "boot", "the one before")
    frozen.go()
    served(world, pod, "b-first")


BROKEN: dict[str, Scenario] = {
    "timeout frees the pod": a_claim_without_answer_lands_late,
    "not in the record frees the pod": a_claim_without_answer_lands_late,
    "patches without version": a_frozen_worker_sends_its_claim_after_the_pod_moved_on,
    "settled by another worker as clean": a_sandbox_had_the_pod_and_is_gone_before_its_claim_is_settled,
    "a second refusal is clean": the_second_request_is_refused_because_the_first_one_landed,
    "resend without prove": a_frozen_worker_reads_afresh_and_resends,
    "record before recycle": a_pod_is_given_back,
    "ledger before record": a_pod_is_given_back,
    "recycle without prove": a_frozen_worker_recycles_after_the_next_owner_came,
    "delete without doom": a_planned_delete_is_late,
    "delete without version": a_delete_decided_before_a_flush_is_late,
    "adoption without a write": a_delete_decided_before_a_flush_is_late,
    "no touch": a_claim_from_before_a_flush_lands_after_the_rebuild,
    "unclaimed is clean": a_sandbox_vanishes_while_nobody_remembers_it,
    "orphan freed without recycling": a_pod_without_entry_is_found,
    "last claim wins": two_records_claim_one_pod,
}

BROKEN_SCRIPTS: dict[str, tuple[str, str, str, Scenario]] = {
    "the token is not checked": (
        "ledger_move_v1",
        "if ledger_fenced() then",
        "if false then",
        a_frozen_worker_cancels_what_was_rolled_forward,
    ),
    "the boot is not checked": (
        "ledger_allocate_v1",
        "or m[2] ~= ledger_boot()",
        "",
        redis_goes_back_to_a_time_when_the_pod_was_free,
    ),
}
SCENARIOS = {
    scenario.__name__: scenario for scenario in (*BROKEN.values(), *(row[3] for row in BROKEN_SCRIPTS.values()))
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_lost_when(store: Store, name: str) -> None:
    SCENARIOS[name](World(store))


@pytest.mark.parametrize("rule", BROKEN)
def test_a_pass_that_breaks_this_rule_is_noticed(store: Store, rule: str) -> None:
    with pytest.raises(Violation):
        BROKEN[rule](World(store, broken=frozenset([rule])))


@pytest.mark.parametrize("name", BROKEN_SCRIPTS)
def test_a_script_that_does_not_check_is_noticed(store: Store, name: str) -> None:
    script, old, new, scenario = BROKEN_SCRIPTS[name]
    broken = Ledger(store.redis, Mutant(store, script, old, new), "ns", "warm")
    with pytest.raises(Violation):
        scenario(World(store, ledger=broken))


def test_the_pool_of_these_worlds_is_the_one_their_passes_hold(store: Store) -> None:
    worker = stopped(World(store), "rebuild")
    assert (worker.proof.member, worker.proof.pool_uid) == (POOL.member, UID)
