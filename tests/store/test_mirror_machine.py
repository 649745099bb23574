"""Random users, two watchers, lists, write-throughs and flushes over the real mirror and queue.

At every step: no name shows an older version than it showed before (but after a flush). At the end, when everything was
delivered: the mirror is the cluster, and a reconcile ran (or would run) on the last version of every name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from osb.api.key import Key
from osb.decide.route_raw import Context
from osb.errors import Gone
from osb.facts.adds import Add
from osb.facts.index import Entry
from osb.store.client import Store, connect
from osb.store.forward import Forwarder

NAMES = ("a", "b")
KIND = "job"  # a kind that routing asks nothing more about


@dataclass(frozen=True)
class Page:
    items: list[dict[str, Any]]
    version: str


def entry_of(kind: str, obj: dict[str, Any]) -> Entry:
    meta = obj["metadata"]
    doc = b'{"metadata":{"name":"%s"}}' % meta["name"].encode()
    return Entry(f"ns/{meta['name']}", meta["uid"], meta["resourceVersion"], doc, (("owner", meta["uid"], 1.0),))


def route(kind: str, old: Any, new: Any, ctx: Context) -> tuple[Add, ...]:
    return (Add(key=Key("snapshot", "ns", (new or old)["metadata"]["name"])),)


class MirrorMachine(RuleBasedStateMachine):
    store: Store  # set by the test
    forwarder = Forwarder  # exchanged to show that the search notices

    def __init__(self) -> None:
        super().__init__()
        self.store.redis.flushall()
        self.forward = self.forwarder(self.store, entry=entry_of, route=route)
        self.version = 8  # so that versions soon differ in length
        self.cluster: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[str, dict[str, Any]]] = []
        self.at: list[int | None] = [None, None]  # each watcher's place in the log; None: it must list
        self.answers: list[dict[str, Any]] = []
        self.shown: dict[str, int] = {}
        self.acted_on: dict[str, str] = {}

    # -- the cluster ----------------------------------------------------------------------------------------------

    def _write(self, name: str) -> dict[str, Any]:
        self.version += 1
        uid = self.cluster[name]["metadata"]["uid"] if name in self.cluster else f"u{self.version}"
        obj = {"metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": str(self.version)}}
        self.cluster[name] = obj
        self.log.append(("PUT", obj))
        return obj

    @rule(name=st.sampled_from(NAMES))
    def user_writes(self, name: str) -> None:
        self._write(name)

    @rule(name=st.sampled_from(NAMES))
    def user_deletes(self, name: str) -> None:
        if old := self.cluster.pop(name, None):
            self.version += 1
            meta = {**old["metadata"], "resourceVersion": str(self.version)}
            self.log.append(("DELETED", {"metadata": meta}))

    # -- watchers -------------------------------------------------------------------------------------------------

    @rule(who=st.sampled_from([0, 1]), events=st.integers(1, 4))
    def watcher_reads(self, who: int, events: int) -> None:
        for _ in range(events):
            at = self.at[who]
            if at is None:
                return self._list(who)
            if at >= len(self.log):
                return None
            what, obj = self.log[at]
            done = (self.forward.put(KIND, [obj]) if what == "PUT" else self.forward.delete(KIND, obj)).unsynced
            self.at[who] = None if done else at + 1
        return None

    @rule(who=st.sampled_from([0, 1]))
    def watcher_restarts(self, who: int) -> None:
        self.at[who] = None

    @rule(who=st.sampled_from([0, 1]), flush=st.integers(0, 5), name=st.sampled_from(NAMES))
    def watcher_lists_while_things_happen(self, who: int, flush: int, name: str) -> None:
        def meanwhile() -> None:
            self._write(name)
            self.watcher_reads(1 - who, 4) if self.at[1 - who] is not None else None
            if flush == 0:
                self.redis_is_flushed()

        self._list(who, meanwhile)

    def _list(self, who: int, meanwhile: Any = None) -> None:
        version, place = str(self.version), len(self.log)
        items = [self.cluster[name] for name in sorted(self.cluster)]

        def pages() -> Iterator[Page]:
            yield Page(items[:1], version)
            if meanwhile is not None:
                meanwhile()
            yield Page(items[1:], version)

        try:
            self.forward.relist(KIND, pages())
            self.at[who] = place
        except Gone:
            self.at[who] = None

    # -- workers --------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def worker_runs(self, name: str) -> None:
        self._run(name)

    def _run(self, name: str) -> None:
        key, token = Key("snapshot", "ns", name), f"t{self.version}"
        if self.store.queue.begin(key, token).state == "run":
            entry = self.store.mirror.read(KIND, [f"ns/{name}"]).entries[f"ns/{name}"]
            self.acted_on[name] = entry.version if entry else ""
            self.store.queue.end(key, token, "done", progress=True)

    @rule(name=st.sampled_from(NAMES), late=st.booleans())
    def worker_writes_on_the_current_version(self, name: str, late: bool) -> None:
        """With the version it decided on: nothing foreign can be in the answer, so its own key is left out."""
        entry = self.store.mirror.read(KIND, [f"ns/{name}"]).entries[f"ns/{name}"]
        live = self.cluster.get(name)
        if entry is None or live is None or live["metadata"]["resourceVersion"] != entry.version:
            return
        if self.acted_on.get(name) != entry.version:
            return
        answer = self._write(name)
        self.acted_on[name] = answer["metadata"]["resourceVersion"]
        if late:
            self.answers.append(answer)
        else:
            self._through(answer)

    def _through(self, answer: dict[str, Any]) -> None:
        key = Key("snapshot", "ns", answer["metadata"]["name"])
        self.forward.put(KIND, [answer], own=key, versioned=True)

    @rule()
    def a_late_answer_is_put(self) -> None:
        if self.answers:
            self._through(self.answers.pop(0))

    @rule()
    def redis_is_flushed(self) -> None:
        """What is deleted before the next list leaves no trace: its pool, listed, gets a full pass instead."""
        self.store.redis.flushall()
        self.shown.clear()
        self.acted_on.clear()

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def the_mirror_never_goes_back(self) -> None:
        for name, entry in self.store.mirror.read(KIND, [f"ns/{n}" for n in NAMES]).entries.items():
            if entry is None:
                continue
            assert int(entry.version) >= self.shown.get(name, 0), f"{name} went back to {entry.version}"
            assert int(entry.version) <= self.version
            self.shown[name] = int(entry.version)

    def teardown(self) -> None:
        while self.answers:
            self._through(self.answers.pop(0))
        for _ in range(3):  # watchers look for a lost mirror every 2 s
            if not self.store.mirror.synced(KIND):
                self.at = [None, None]
            for who in (0, 1):
                self.watcher_reads(who, len(self.log) + 2)
                self.watcher_reads(who, len(self.log) + 2)
        expected = {f"ns/{name}": obj["metadata"]["resourceVersion"] for name, obj in self.cluster.items()}
        found = self.store.mirror.read(KIND, [f"ns/{name}" for name in NAMES])
        assert found.known
        assert {n: e.version for n, e in found.entries.items() if e is not None} == expected
        for obj in self.cluster.values():
            assert self.store.mirror.index(KIND, "owner", obj["metadata"]["uid"]) != []
        for name in NAMES:
            self._run(name)
            if name in self.cluster or name in self.acted_on:
                last = expected.get(f"ns/{name}", "")
                assert self.acted_on.get(name) == last, f"{name} is {last or 'gone'}: nobody was told"


def search(url: str, machine: type[MirrorMachine], examples: int) -> None:
    machine.store = connect(url)
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        machine.store.close()


def test_the_mirror_ends_as_the_cluster_and_every_change_was_announced(redis_url: str) -> None:
    search(redis_url, MirrorMachine, 60)
