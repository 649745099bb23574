"""Any order of events, messages, runs, crashes, freezes and losses, against the invariants Q1 to Q6.

Scripts are atomic, so a process can die or stand still only between two of them: a crash is a run that never ends, a
freeze one that ends late, a lost message one that nobody takes. The clock stands still between the steps
(spec/protocols.md 3, Invariants).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from osb.api.key import Key
from osb.facts.adds import Add
from osb.store import keys as names
from osb.store.client import Store
from osb.store.queue import LEASE_SECONDS, new_token

KEYS = [Key("pool", "default", "a"), Key("pool", "default", "b")]
FATES = ["once", "once", "once", "twice", "lost", "reply lost"]
ENDS = ["done", "after", "retry", "stop", "part", "part", "crash", "renew"]
WAITS = [0, 0, 0.1, 0.1, 1, 1, 5, 5, 10, 12, 31, 320, 600]
DUTIES = ["", "due", "due", "rescue", "rescue", "due rescue", "rescue due"]
HASHES = ("tok", "seen", "why", "wakec", "wtry")
LEASE_MS = int(LEASE_SECONDS * 1000)


@dataclass
class Run:
    key: Key
    token: str
    until: int
    live: bool = True


@dataclass
class Model:
    """What must be true of one key, kept without looking at Redis."""

    asked: bool = False  # something asked for a run since the last one started
    run: Run | None = None  # the run that Redis should know
    wanted: int | None = None  # the earliest time asked for that has neither fired nor been paid by a full run
    touched: bool = False  # a time was asked for during the run
    debt: bool = False  # a full pass is owed
    taken: bool = False  # the run took that debt


@dataclass
class Message:
    key: Key
    hand: str = ""


@dataclass
class Counters:
    hand: int = 0
    runs: int = 0
    seen: set[str] = field(default_factory=set)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self, store: Store, clock: Any, broker: Any) -> None:
        super().__init__()
        store.redis.flushall()
        clock.set(1_800_000_000_000)
        self.store, self.queue, self.clock, self.broker = store, store.queue, clock, broker
        self.models = {key: Model() for key in KEYS}
        self.flight: list[Message] = []
        self.workers: list[Run] = []
        self.count = Counters()

    # -- events and messages -------------------------------------------------------------------------------

    @rule(
        key=st.sampled_from(KEYS),
        cls=st.sampled_from(["now", "later"]),
        deep=st.booleans(),
        gone=st.booleans(),
    )
    def add(self, key: Key, cls: Any, deep: bool, gone: bool) -> None:
        self.models[key].asked = True
        self.models[key].debt |= deep
        self.queue.add([Add(key=key, cls=cls, deep=deep, deletion=gone, reason="event")])
        self.collect()

    @rule(key=st.sampled_from(KEYS), seconds=st.sampled_from([0.0, 0.25, 5.0, 60.0]))
    def add_after(self, key: Key, seconds: float) -> None:
        self.queue.add([Add(key=key, after=seconds)])
        self.want(key, self.clock.ms + int(seconds * 1000))
        self.models[key].touched = True

    @rule(key=st.sampled_from(KEYS))
    def send_by_hand(self, key: Key) -> None:
        self.count.hand += 1
        self.flight.append(Message(key, f"hand{self.count.hand}"))

    @precondition(lambda self: self.flight)
    @rule(which=st.integers(0, 99), fate=st.sampled_from(FATES))
    def deliver(self, which: int, fate: str) -> None:
        message = self.flight[which % len(self.flight)]
        if fate != "twice":
            self.flight.remove(message)
        if fate != "lost":
            self.take(message, reply_lost=fate == "reply lost")
        elif message.hand:
            self.flight.append(message)  # nobody could bring that one back but the person

    def take(self, message: Message, *, reply_lost: bool = False) -> Run | None:
        key, token, model = message.key, new_token(), self.models[message.key]
        if message.hand and message.hand not in self.count.seen:
            self.count.seen.add(message.hand)
            model.asked = model.debt = True
        if model.run and model.run.until <= self.clock.ms:
            self.lost(model)
        hand = {"hand": bool(message.hand), "task_id": message.hand}
        begin = self.queue.begin(key, token, **hand)
        if reply_lost:
            assert self.queue.begin(key, token, **hand).state == begin.state
        self.collect()
        if begin.state != "run":
            return None
        assert model.run is None, "Q1: a run starts while another's lease lives"
        assert model.asked, "Q4: a run that nobody asked for"
        assert begin.deep == model.debt, "the debt of a full pass is lost, or made up"
        run = Run(key, token, self.clock.ms + LEASE_MS)
        self.models[key] = Model(run=run, wanted=model.wanted, taken=begin.deep)
        self.workers.append(run)
        self.count.runs += 1
        return run

    # -- workers -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 99), fate=st.sampled_from(ENDS), flags=st.integers(0, 3))
    def go_on(self, which: int, fate: Any, flags: int) -> None:
        run = self.workers[which % len(self.workers)]
        if fate == "crash":
            self.workers.remove(run)
        elif fate == "renew":
            assert self.queue.renew(run.key, run.token) == (self.models[run.key].run is run)
            run.until = self.clock.ms + LEASE_MS
        else:
            self.finish(run, fate, progress=bool(flags & 1), staying=bool(flags & 2))

    def finish(self, run: Run, outcome: Any, *, progress: bool = False, staying: bool = False) -> None:
        self.workers.remove(run)
        model = self.models[run.key]
        ended = self.queue.end(run.key, run.token, outcome, seconds=5, progress=progress, staying=staying)
        self.collect()
        assert ended.ours == (model.run is run), "a token that is not current ends nothing, the current one does"
        if not ended.ours:
            return
        model.run = None
        model.debt |= outcome == "part" and model.taken
        if outcome not in ("part", "retry") and not model.touched:
            model.wanted = None
        if outcome == "after":
            self.want(run.key, self.clock.ms + 5000)
        if outcome == "retry":
            self.want(run.key, self.clock.ms + ended.wait_ms)

    @rule(what=st.sampled_from([*["nothing"] * 9, "flush", *KEYS]))
    def disaster(self, what: Any) -> None:
        if what == "nothing":
            return
        if what == "flush":
            self.flush()
            return
        for _ in range(5):  # workers in a row: the way into quarantine
            self.add(what, "now", deep=False, gone=False)
            if run := self.take(Message(what)):
                self.workers.remove(run)
            self.clock.forward(12)
            self.rescue()

    # -- time ----------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from(WAITS), duties=st.sampled_from(DUTIES))
    def time_passes(self, seconds: float, duties: str) -> None:
        self.clock.forward(seconds)
        for duty in duties.split():
            getattr(self, duty)()

    def due(self) -> None:
        fired = self.store.redis.zrangebyscore(names.queue("pool", "due"), "-inf", self.clock.ms)
        assert self.queue.due("pool") == len(fired)
        for member in fired:
            model = self.models[Key("pool", *member.decode().split("/"))]
            model.asked, model.debt, model.wanted, model.touched = True, True, None, True
        self.collect()

    def rescue(self) -> None:
        for model in self.models.values():
            if model.run and model.run.until <= self.clock.ms:
                self.lost(model)
        self.queue.rescue("pool")
        self.collect()

    def flush(self) -> None:
        """Redis is flushed, and the relist offers every key again."""
        self.store.redis.flushall()
        self.clock.set(self.clock.ms)
        self.models = {key: Model(asked=True, debt=True) for key in KEYS}
        self.flight = [message for message in self.flight if not message.hand]
        self.queue.add([Add(key=key, cls="later", deep=True) for key in KEYS])
        self.collect()

    # -- the model -----------------------------------------------------------------------------------------

    def collect(self) -> None:
        """What the scripts published is in flight now."""
        self.flight += [Message(wake.key) for wake in self.broker.drain()]

    def want(self, key: Key, at: int) -> None:
        model = self.models[key]
        model.wanted = at if model.wanted is None else min(at, model.wanted)

    @staticmethod
    def lost(model: Model) -> None:
        model.run, model.asked, model.debt = None, True, True

    def state(self) -> dict[str, dict[str, float]]:
        """Every part of the queue; members of sets and hashes with 0."""
        pipe = self.store.redis.pipeline(transaction=False)
        zsets, hashes, sets = ("dirty", "later", "run", "due", "wake", "quar"), HASHES, ("deep", "taken")
        for part in zsets:
            pipe.zrange(names.queue("pool", part), 0, -1, withscores=True)
        for part in hashes:
            pipe.hkeys(names.queue("pool", part))
        for part in sets:
            pipe.smembers(names.queue("pool", part))
        return {
            part: {(x[0] if part in zsets else x).decode(): x[1] if part in zsets else 0.0 for x in found}
            for part, found in zip((*zsets, *hashes, *sets), pipe.execute(), strict=True)
        }

    @invariant()
    def what_redis_holds_is_sound(self) -> None:
        state = self.state()
        now = {part: set(found) for part, found in state.items()}
        assert now["dirty"] <= now["run"] | now["wake"] | now["due"], "Q2: a dirty key that nothing brings back"
        blocked = {name for name, at in state["quar"].items() if at > self.clock.ms}
        assert blocked <= now["due"], "Q3: quarantine without a way out"
        assert now["run"] == now["tok"] and now["seen"] | now["taken"] <= now["run"]
        assert now["later"] | now["why"] <= now["dirty"]
        assert now["wake"] == now["wakec"] and now["wtry"] <= now["wake"]
        assert now["deep"] <= now["dirty"] | now["due"], "the debt of a full pass that nobody will pay"
        for key, model in self.models.items():
            if model.wanted is not None:
                assert state["due"].get(key.member, 1e18) <= model.wanted, "Q6: a time asked for was dropped"
            if model.run and model.run.until > self.clock.ms:
                assert key.member in now["run"], "Q1: a living lease is unknown"

    def teardown(self) -> None:
        """Q5: faults stop; every event gets its run, and the queue becomes empty."""
        self.workers.clear()
        for _ in range(8):
            self.clock.forward(330)
            self.rescue()
            self.due()
            while self.flight:
                run = self.take(self.flight.pop(0))
                if run:
                    self.finish(run, "done", progress=True)
                self.what_redis_holds_is_sound()
        assert not any(model.asked for model in self.models.values()), "Q5: an event without a run after it"
        self.rescue()
        left = [name for name in self.store.redis.keys("osb:q:*") if b":hand:" not in name]
        assert left == [], "an idle key leaves nothing behind"


def test_no_order_of_steps_breaks_the_promise(store: Store, clock: Any, broker: Any) -> None:
    bounds = settings(
        max_examples=60, stateful_step_count=60, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: QueueMachine(store, clock, broker), settings=bounds
    )


@pytest.mark.parametrize("seed", range(6))
def test_long_walks_do_not_break_it_either(store: Store, clock: Any, broker: Any, seed: int) -> None:
    """The same steps, but many of them in a row: hypothesis prefers short histories."""
    dice, machine = random.Random(seed), QueueMachine(store, clock, broker)
    for _ in range(1500):
        step = dice.choice(["add", "add", "after", "hand", "deliver", "deliver", "go on", "go on", "time", "disaster"])
        if step == "add":
            machine.add(dice.choice(KEYS), dice.choice(["now", "later"]), dice.random() < 0.3, dice.random() < 0.1)
        elif step == "after":
            machine.add_after(dice.choice(KEYS), dice.choice([0.0, 0.25, 5.0, 60.0]))
        elif step == "hand":
            machine.send_by_hand(dice.choice(KEYS))
        elif step == "deliver" and machine.flight:
            machine.deliver(dice.randrange(99), dice.choice(FATES))
        elif step == "go on" and machine.workers:
            machine.go_on(dice.randrange(99), dice.choice(ENDS), dice.randrange(4))
        elif step == "time":
            machine.time_passes(dice.choice(WAITS), dice.choice(DUTIES))
        elif step == "disaster" and dice.random() < 0.15:
            machine.disaster(dice.choice(["flush", *KEYS]))
        machine.what_redis_holds_is_sound()
    machine.teardown()
