"""Random users, nodes, networks, crashes and losses over the real ledger: the invariants hold at every step.

The rules below may stop a worker between any two of its steps, start another one, let writes land late or
never, and take Redis away. What the random search is too weak to find is played step by step in
test_ledger_interleavings.py.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from osb.store.client import Store, connect
from tests.doubles.ledger_worker import Worker
from tests.doubles.ledger_world import Violation, World, wants

BOXES = st.sampled_from(["a", "b", "c"])
OUTCOMES = st.sampled_from(["ok", "ok", "ok", "ok", "lost", "late"])


class LedgerMachine(RuleBasedStateMachine):
    store: Store  # set by the test: one connection for all examples

    def __init__(self) -> None:
        super().__init__()
        self.store.redis.flushall()
        self.world = World(self.store)
        self.workers: list[Worker] = []
        for _ in range(2):
            self.world.pod_appears()

    @rule(name=BOXES, replicas=st.sampled_from([1, 1, 2]))
    def user_creates(self, name: str, replicas: int) -> None:
        self.world.user_creates(name, replicas)

    @rule(name=BOXES, what=st.sampled_from(["delete", "force", "give back", "edit"]))
    def user_changes(self, name: str, what: str) -> None:
        if what == "give back":
            self.world.user_gives_back(name)
        elif what == "edit":
            self.world.user_edits(name)
        else:
            self.world.user_deletes(name, force=what == "force")

    @rule(data=st.data())
    def a_pod_comes_or_goes(self, data: st.DataObject) -> None:
        if len(self.world.pods) < 3:
            self.world.pod_appears()
        else:
            self.world.pod_dies(data.draw(st.sampled_from(sorted(self.world.pods))))

    @rule(doom=st.booleans(), create=st.integers(0, 1))
    def a_whole_pass_runs(self, doom: bool, create: int) -> None:
        Worker(self.world, doom=doom, create=create).go()

    @precondition(lambda self: len(self.workers) < 3)
    @rule(doom=st.booleans(), create=st.integers(0, 1))
    def worker_starts(self, doom: bool, create: int) -> None:
        self.workers.append(Worker(self.world, doom=doom, create=create))

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), steps=st.sampled_from([1, 2, 3, 5, 8, 99, 99]), outcome=OUTCOMES)
    def worker_goes_on(self, data: st.DataObject, steps: int, outcome: str) -> None:
        worker = data.draw(st.sampled_from(range(len(self.workers))))
        self.world.outcome = outcome
        for _ in range(steps):
            if not self.workers[worker].step():
                self.workers.pop(worker)
                break
        self.world.outcome = "ok"

    @precondition(lambda self: self.workers)
    @rule(data=st.data())
    def worker_dies(self, data: st.DataObject) -> None:
        self.workers.pop(data.draw(st.sampled_from(range(len(self.workers)))))

    @precondition(lambda self: self.world.flight)
    @rule(data=st.data(), lands=st.booleans())
    def a_write_lands_or_is_lost(self, data: st.DataObject, lands: bool) -> None:
        index = data.draw(st.sampled_from(range(len(self.world.flight))))
        if lands:
            self.world.land(index)
        else:
            self.world.flight.pop(index)

    @rule(flushed=st.booleans())
    def redis_is_lost_or_restarted(self, flushed: bool) -> None:
        if flushed:
            self.store.redis.flushall()
        elif self.world.ledger.meta().state:
            self.store.redis.hset("osb:l:ns/warm:meta", "boot", "the one before")

    def teardown(self) -> None:
        """Once faults stop, passes end with everybody served, everything finished and nothing left over."""
        self.workers.clear()
        self.world.flight.clear()
        self.world.outcome = "ok"
        for _ in range(6):
            Worker(self.world).go()
        seen = self.world.ledger.state(entries=True)
        if not seen.meta.ready or seen.todo:
            raise Violation(f"L7: unfinished: {seen}")
        free = seen.counts["free"]
        for box in self.world.boxes.values():
            if box.deleting or (free and wants(self.world, box)):
                raise Violation(f"L7: {box} still waits, {free} pods are free: {seen.entries}")
        if set(seen.entries) != set(self.world.pods):
            raise Violation(f"L7: ledger {sorted(seen.entries)}, cluster {sorted(self.world.pods)}")


def test_no_pod_is_ever_shared_lost_or_handed_out_unclean(redis_url: str) -> None:
    LedgerMachine.store = connect(redis_url)
    try:
        run_state_machine_as_test(
            LedgerMachine,
            settings=settings(
                max_examples=60,
                stateful_step_count=50,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        LedgerMachine.store.close()
