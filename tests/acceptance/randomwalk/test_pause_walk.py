"""Random walks over what users do to sandboxes that can pause, while commits fail, pods vanish and processes die.

Afterwards the whole history is replayed in the order of writes: no snapshot was missing while a sandbox needed it, no
sandbox had two pods in a slot, and every sandbox comes to rest in the state that was asked for last.
"""

from __future__ import annotations

import os
import random
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import yaml

from osb.api import names
from osb.errors import ApiError, NotFound
from tests.acceptance.test_pause import phase
from tests.acceptance.test_tasks import fake, task, with_executor
from tests.doubles.cluster import Obj, Space, condition, record, refs, template
from tests.doubles.controller import Controller
from tests.doubles.executors import Executors, executors
from tests.doubles.recorder import Seen

STEPS = int(os.environ.get("OSB_WALK_STEPS", "60"))
SEED = int(os.environ.get("OSB_WALK_SEED", "0")) or random.randrange(1, 1 << 30)
BOUND = 75.0  # seconds until everything is at rest after the last action
BOXES = ("own-1", "own-2", "pool-1", "pool-2", "task-1", "task-2")


@pytest.fixture
def runs(space: Space, tmp_path: Path) -> Iterator[Executors]:
    with executors(space, tmp_path) as one:
        yield one


class Walk:
    """One walk. Every choice comes from `rng`, so that a seed repeats it as far as timing allows."""

    def __init__(self, space: Space, controller: Controller, rng: random.Random) -> None:
        self.space = space
        self.controller = controller
        self.rng = rng
        self.did: list[str] = []

    def make(self, name: str) -> None:
        kind = name.partition("-")[0]
        if kind == "own":
            self.space.box(name, pool=None, template=template())
        elif kind == "pool":
            self.space.box(name)
        else:
            self.space.box(name, pool="warm", taskTemplate=task(fake(3600 if name == "task-1" else 0.5)))

    def step(self) -> None:
        name = self.rng.choice(BOXES)
        act = self.rng.choices(
            (
                self.wish,
                self.bridge,
                self.renew,
                self.relabel,
                self.scale,
                self.again,
                self.spoil,
                self.lose,
                self.kill,
            ),
            (8, 4, 3, 2, 2, 1, 3, 1, 1),
        )[0]
        self.did.append(f"{act.__name__} {name}")
        try:
            act(name)
        except ApiError as error:
            self.did[-1] += f": {type(error).__name__}"
        self.pause_between()

    def pause_between(self) -> None:
        """Mostly act at once, sometimes let the controller get ahead."""
        threading.Event().wait(self.rng.choice((0, 0, 0.05, 0.2, 0.5, 0.8)))

    # -- what users do -------------------------------------------------------------------------------------------

    def set(self, name: str, **spec: object) -> None:
        self.space.patch("batchsandbox", name, {"spec": spec})

    def wish(self, name: str) -> None:
        self.set(name, pause=self.rng.choice((True, True, True, False, False, None)))

    def bridge(self, name: str) -> None:
        self.set(name, pause=None)
        self.set(name, pause=self.rng.choice((True, False)))

    def renew(self, name: str) -> None:
        self.set(name, expireTime=f"2099-01-01T00:00:{self.rng.randrange(60):02d}Z")

    def relabel(self, name: str) -> None:
        self.space.patch("batchsandbox", name, {"metadata": {"labels": {"n": str(self.rng.random())}}})

    def scale(self, name: str) -> None:
        self.set(name, replicas=self.rng.choice((1, 2)))

    def again(self, name: str) -> None:
        self.space.delete("batchsandbox", name)
        self.space.gone("batchsandbox", name, seconds=30)
        self.make(name)

    # -- what goes wrong -----------------------------------------------------------------------------------------

    def pods(self, name: str) -> list[str]:
        box = self.space.get("batchsandbox", name)
        return [p["metadata"]["name"] for p in self.space.pods_of(name)] + (record(box) if box else [])

    def spoil(self, name: str) -> None:
        for pod in self.pods(name):
            self.space.mark(pod, commit=self.rng.choice(("fail", "{}", None, None, None)))

    def lose(self, name: str) -> None:
        for pod in self.pods(name)[:1]:
            self.space.delete("pod", pod, grace=0)

    def kill(self, name: str) -> None:
        victim = self.rng.choice(("worker-1", "worker-2", "watcher-1", "beat-1"))
        self.did[-1] = f"kill {victim}"
        self.controller.kill(victim)
        self.controller.spawn(victim)

    def disturb(self) -> None:
        """A few of the writes are refused or lose their answer, ours included (simulated cluster only)."""
        path = f"/namespaces/{self.space.name}/"
        for effect in ({"drop": True}, {"status": 503}):
            fault = {"path": path, "methods": ["PATCH", "POST", "DELETE"], "probability": 0.03, **effect}
            simulate(self.space, "POST", "/_sim/faults", fault)

    # -- the end -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Mend everything, make a last wish for each, and see all of them come true."""
        last = {}
        for name in BOXES:
            if self.space.get("batchsandbox", name) is None:
                self.make(name)
            for pod in self.pods(name):
                try:
                    self.space.mark(pod, commit=None)
                except NotFound:
                    continue
            last[name] = self.rng.choice((True, False))
            self.set(name, replicas=1)
        self.space.until("no operation under way", lambda: all(self._idle(n) for n in BOXES), seconds=BOUND)
        for name in BOXES:
            for pod in self.pods(name):
                try:
                    self.space.mark(pod, commit=None)
                except NotFound:
                    continue
            self.set(name, pause=None)
            self.set(name, pause=last[name])
        for name, wish in last.items():
            wanted = ("Paused",) if wish else ("Succeed",)
            self.space.until_box(name, lambda b, w=wanted, n=name: self._rests(b, w, n), seconds=BOUND)

    def _idle(self, name: str) -> bool:
        box = self.space.get("batchsandbox", name)
        return box is not None and phase(box) in ("Paused", "Succeed")

    def _rests(self, box: Obj, wanted: tuple[str, ...], name: str) -> bool:
        answered = box["status"].get("pauseObservedGeneration", 0) >= box["metadata"]["generation"]
        if wanted == ("Succeed",):
            return phase(box) == "Succeed" and answered and condition(box, "Ready") is not None
        return phase(box) == "Paused" and answered and not self.space.pods_of(name)


def simulate(space: Space, method: str, path: str, body: Obj | None = None) -> None:
    """A call to the simulated cluster's own door."""
    url = yaml.safe_load(space.cluster.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    data = orjson.dumps(body) if body is not None else None
    with urllib.request.urlopen(urllib.request.Request(f"{url}{path}", data, method=method), timeout=5) as answer:
        assert answer.status < 300


@pytest.mark.timeout(120 + STEPS)
def test_whatever_users_do_no_snapshot_is_lost_no_sandbox_has_two_pods_and_none_is_stuck(
    space: Space, controller: Controller, runs: Executors
) -> None:
    walk = Walk(space, controller, random.Random(SEED))
    space.warm("warm", 6, 8, 0, 40, template=with_executor("fake"))
    for name in BOXES:
        walk.make(name)
    if not space.cluster.real:
        walk.disturb()
    try:
        for _ in range(STEPS):
            walk.step()
        if not space.cluster.real:
            simulate(space, "DELETE", "/_sim/faults")
        walk.settle()
    except AssertionError as error:
        raise AssertionError(f"seed {SEED}: {walk.did[-12:]}\n{error}") from None
    history = sorted(space.cluster.recorder.events[space.name], key=lambda s: s.version)
    assert lost_snapshots(history) == [], f"seed {SEED}"
    assert twins(history) == [], f"seed {SEED}"
    reached = sum(1 for _, now in changes(history) if now == "Paused")
    print(f"seed {SEED}: {STEPS} steps, {reached} pauses completed")
    for name in BOXES:
        space.delete("batchsandbox", name)
    space.gone("batchsandbox", seconds=30)
    space.gone("snapshot", seconds=30)


def changes(history: list[Seen]) -> list[tuple[str, str]]:
    """(sandbox, phase) whenever a sandbox's phase changed."""
    last: dict[str, str] = {}
    found = []
    for seen in history:
        if seen.kind == "batchsandbox" and last.get(seen.name) != phase(seen.obj):
            last[seen.name] = phase(seen.obj)
            found.append((seen.name, last[seen.name]))
    return found


def lost_snapshots(history: list[Seen]) -> list[str]:
    """Moments at which a paused or resuming sandbox had no good snapshot of its own."""
    snapshots: dict[str, Obj] = {}
    needing: dict[str, Obj] = {}
    found = []
    for seen in history:
        if seen.kind == "snapshot":
            if seen.type == "DELETED" or seen.obj["metadata"].get("deletionTimestamp"):
                snapshots.pop(seen.name, None)
            else:
                snapshots[seen.name] = seen.obj
        elif seen.kind == "batchsandbox":
            alive = seen.type != "DELETED" and not seen.obj["metadata"].get("deletionTimestamp")
            if alive and phase(seen.obj) in ("Paused", "Resuming"):
                needing[seen.name] = seen.obj
            else:
                needing.pop(seen.name, None)
        else:
            continue
        for name, box in needing.items():
            saved = snapshots.get(f"{name}-pause")
            ours = saved is not None and any(r["uid"] == box["metadata"]["uid"] for r in refs(saved))
            if not ours or phase(saved or {}) != "Succeed":
                found.append(f"{name} is {phase(box)} at {seen.version} without a good snapshot")
    return found[:3]


def twins(history: list[Seen]) -> list[str]:
    """Moments at which a sandbox had two pods of its own in one slot, both meant to stay."""
    live: dict[str, tuple[str, str]] = {}
    found = []
    for seen in history:
        if seen.kind != "pod":
            continue
        meta = seen.obj["metadata"]
        owner = next((r["uid"] for r in refs(seen.obj) if r.get("controller") and r["kind"] == "BatchSandbox"), "")
        over = (seen.obj.get("status") or {}).get("phase") in ("Failed", "Succeeded")
        if not owner or over or seen.type == "DELETED" or meta.get("deletionTimestamp"):
            live.pop(meta["uid"], None)
            continue
        slot = (meta.get("labels") or {}).get(names.LABEL_POD_INDEX, meta["name"])
        if any(at == (owner, slot) and uid != meta["uid"] for uid, at in live.items()):
            found.append(f"{meta['name']} at {seen.version}")
        live[meta["uid"]] = (owner, slot)
    return found[:3]
