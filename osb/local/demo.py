"""The demo's story: a pool, a batch of ten, ten batches of one, a lost pod, an expiry, a scale-down, five tasks.

Each step prints what a person would have typed, waits for the result, and prints what was decided and why (from the
journal, the status and the Events) and how long it took from create to published endpoints. It is written against
`Stage`: the cluster, the journal and a clock that is somebody else's (`osb.cli.demoworld`). Any step that does not get
its result in time raises `StoryFailed`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import yaml

from osb.errors import OsbError

Obj = dict[str, Any]

POOL = "warm"
BATCH = "ten"
STEP_SECONDS = 30.0
GROUP = "sandbox.opensandbox.io"


class StoryFailed(OsbError):
    """A step of the demo did not reach its result; the message says which and what was seen last."""


class Stage(Protocol):
    """What the story plays on. All objects are in one namespace."""

    def create(self, kind: str, body: Obj) -> None: ...
    def patch(self, kind: str, name: str, body: Obj) -> None: ...
    def delete(self, kind: str, name: str) -> None: ...
    def get(self, kind: str, name: str) -> Obj | None: ...
    def served_ms(self, name: str) -> float | None:
        """From the create of a sandbox to its endpoints, all of them; None while they are not all published."""

    def decisions(self, since_ms: int, boxes: Sequence[str]) -> Sequence[str]:
        """Journal entries after that time about the pool or these sandboxes, oldest first, as lines."""

    def events(self, name: str) -> Sequence[str]:
        """`Reason: message` of the Events about an object."""

    def now_ms(self) -> int: ...
    def tick(self) -> None:
        """Called while the story waits: look after the processes, redraw the table. May raise."""


@dataclass(slots=True)
class Story:
    """`say(style, line)`: style is title, command, more (of that command), fact, why or plain."""

    stage: Stage
    say: Callable[[str, str], None]
    measured: dict[str, float] = field(default_factory=dict)
    about: list[str] = field(default_factory=list)  # sandboxes of the present step
    tasks: bool = True  # task executors listen in the pods
    pod_ready: str = "2s"  # of the simulated pods, as it was asked for

    def run(self) -> None:
        steps = [(title, step) for title, step in STEPS if self.tasks or step is not _tasks]
        for number, (title, step) in enumerate(steps, 1):
            self.say("title", f"{number}. {title}")
            since = self.stage.now_ms()
            self.about = []
            step(self)
            for line in self._capped(self.stage.decisions(since, self.about)):
                self.say("why", f"decided  {line}")

    @staticmethod
    def _capped(lines: Sequence[str], limit: int = 6) -> list[str]:
        shown = list(lines[:limit])
        return shown + ([f"... and {len(lines) - limit} more (osbctl journal)"] if len(lines) > limit else [])

    # -- what steps are made of ----------------------------------------------------------------------------

    def typed(self, first: str, *more: str) -> None:
        """One command, its further lines without a prompt."""
        self.say("command", first)
        for line in more:
            self.say("more", line)

    def applied(self, body: Obj) -> None:
        self.typed(*apply_lines(body))

    def until(self, what: str, condition: Callable[[], Any], *, seconds: float = STEP_SECONDS) -> float:
        """Wait for it; how long it took."""
        started = time.monotonic()
        while not condition():
            self.stage.tick()
            if time.monotonic() - started > seconds:
                raise StoryFailed(f"after {seconds:g} s still not: {what}")
            time.sleep(0.02)
        return time.monotonic() - started

    def status(self, kind: str, name: str) -> Mapping[str, Any]:
        found = self.stage.get(kind, name)
        return (found or {}).get("status") or {}

    def tell_events(self, name: str, *reasons: str) -> None:
        for line in self.stage.events(name):
            if line.partition(":")[0] in reasons:
                self.say("why", f"event    {line}")

    def served(self, *names: str) -> list[float]:
        """Wait for these sandboxes' endpoints; the times in ms, in order."""
        self.until(f"endpoints of {', '.join(names)}",
                   lambda: all(self.stage.served_ms(name) is not None for name in names))  # fmt: skip
        return [self.stage.served_ms(name) or 0.0 for name in names]


def pool_body() -> Obj:
    container = {"name": "main", "image": "registry.example/sandbox:1", "command": ["sleep", "infinity"]}
    return {
        "apiVersion": f"{GROUP}/v1alpha1", "kind": "Pool", "metadata": {"name": POOL},
        "spec": {
            "template": {"spec": {"containers": [container]}},
            "capacitySpec": {"bufferMin": 5, "bufferMax": 20, "poolMin": 0, "poolMax": 50},
        },
    }  # fmt: skip


def box_body(name: str, replicas: int, **spec: Any) -> Obj:
    return {
        "apiVersion": f"{GROUP}/v1alpha1", "kind": "BatchSandbox", "metadata": {"name": name},
        "spec": {"poolRef": POOL, "replicas": replicas, **spec},
    }  # fmt: skip


def apply_lines(body: Obj, *, word: str = "'EOF'") -> list[str]:
    """What a person pastes to create it. Block style: kubectl takes a document that begins with `{` for JSON."""
    text = yaml.safe_dump(body, default_flow_style=None, sort_keys=False, width=100)
    return [f"kubectl apply -f - <<{word}", *text.splitlines(), "EOF"]


# -- the steps -------------------------------------------------------------------------------------------------


def _warm(story: Story) -> None:
    story.applied(pool_body())
    story.typed(f"kubectl wait --for=condition=Ready pool/{POOL}")
    story.stage.create("pool", pool_body())
    took = story.until("five ready idle pods", lambda: (story.status("pool", POOL).get("available") or 0) >= 5)
    story.say("fact", f"5 pods are warm after {took:.1f} s (simulated pods become Ready after {story.pod_ready})")


def _ten(story: Story) -> None:
    story.applied(box_body(BATCH, 10))
    story.about = [BATCH]
    story.stage.create("batchsandbox", box_body(BATCH, 10))
    story.until("the first pods", lambda: story.status("batchsandbox", BATCH).get("allocated"))
    (ms,) = story.served(BATCH)
    story.measured["batch of 10"] = ms
    story.say("fact", f"create → all 10 endpoints in {ms:,.0f} ms: 5 from the warm pods at once, 5 had to be started")
    story.tell_events(BATCH, "Scheduled")


def _ones(story: Story) -> None:
    story.until("warm pods again", lambda: (story.status("pool", POOL).get("available") or 0) >= 5)
    names = [f"one-{number}" for number in range(10)]
    story.typed(*ones_lines())
    story.about = names
    for name in names:
        story.stage.create("batchsandbox", box_body(name, 1))
    times = sorted(story.served(*names))
    warm = [ms for ms in times if ms < 1000] or times
    story.measured["one sandbox, warm"] = statistics.median(warm)
    story.say("fact", f"create → endpoints: {len(warm)} of 10 from warm pods in {warm[0]:.0f} to {warm[-1]:.0f} ms "
                      f"(median {statistics.median(warm):.0f}), the last of all after {times[-1]:,.0f} ms")  # fmt: skip


def _lost(story: Story) -> None:
    before = _pods(story, BATCH)
    victim, story.about = before[0], [BATCH]
    story.typed(f"kubectl delete pod {victim} --grace-period=0")
    story.stage.delete("pod", victim)
    took = story.until("a substitute in the same slot", lambda: _replaced(story, victim))
    story.say("fact", f"slot 0 of {BATCH}: {victim} → {_pods(story, BATCH)[0]} after {took * 1000:,.0f} ms, "
                      "the other nine untouched")  # fmt: skip
    lost = _condition(story.status("batchsandbox", BATCH), "PodLost")
    if lost:
        story.say("why", f"status   PodLost {lost.get('reason')}: {lost.get('message')}")


def ones_lines() -> list[str]:
    first, *more = apply_lines(box_body("one-$i", 1), word="EOF")
    return [f"for i in $(seq 0 9); do {first}", *more, "done"]


def _replaced(story: Story, victim: str) -> bool:
    pods = _pods(story, BATCH)
    ready = story.status("batchsandbox", BATCH).get("ready")
    return bool(pods) and pods[0] not in ("", victim) and ready == 10


def _expiry(story: Story) -> None:
    when = (datetime.now(UTC) + timedelta(seconds=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    story.typed(f'kubectl patch batchsandbox one-0 --type merge -p \'{{"spec":{{"expireTime":"{when}"}}}}\'')
    pods, story.about = _pods(story, "one-0"), ["one-0"]
    story.stage.patch("batchsandbox", "one-0", {"spec": {"expireTime": when}})
    took = story.until("one-0 is gone", lambda: story.stage.get("batchsandbox", "one-0") is None)
    story.until("its pod was recycled", lambda: all(story.stage.get("pod", pod) is None for pod in pods))
    story.say("fact", f"one-0 expired and is gone after {took:.1f} s, its pod {', '.join(pods)} was recycled (deleted)")
    story.tell_events("one-0", "Expired")


def _down(story: Story) -> None:
    before = story.status("pool", POOL).get("allocated")
    story.typed(f'kubectl patch batchsandbox {BATCH} --type merge -p \'{{"spec":{{"replicas":4}}}}\'')
    story.stage.patch("batchsandbox", BATCH, {"spec": {"replicas": 4}})
    took = story.until("four pods are left", lambda: len(_pods(story, BATCH)) == 4 and _settled(story, 13))
    status = story.status("pool", POOL)
    story.say("fact", f"{BATCH} went from 10 to 4 in {took:.1f} s: allocated {before} → {status.get('allocated')}, "
                      "the six pods were recycled")  # fmt: skip


def _settled(story: Story, allocated: int) -> bool:
    return story.status("pool", POOL).get("allocated") == allocated


WORK = ("sleep 1", "sleep 2; echo done", "exit 3", "sleep 5", "sleep 7")


def work_body() -> Obj:
    return box_body(
        "work", len(WORK), taskResourcePolicyWhenCompleted="Release",
        taskTemplate={"spec": {"process": {"command": ["/bin/sh", "-c"]}}},
        shardTaskPatches=[{"spec": {"process": {"args": [script]}}} for script in WORK],
    )  # fmt: skip


def _tasks(story: Story) -> None:
    """Five different tasks on warm pods; each gives its pod back when it is over."""
    story.until("warm pods again", lambda: (story.status("pool", POOL).get("available") or 0) >= len(WORK))
    story.applied(work_body())
    story.about = ["work"]
    held = story.status("pool", POOL).get("allocated") or 0
    story.stage.create("batchsandbox", work_body())
    told: list[str] = []

    def over() -> bool:
        status = story.status("batchsandbox", "work")
        line = (f"{status.get('taskRunning', 0)} run, {status.get('taskSucceed', 0)} succeeded, "
                f"{status.get('taskFailed', 0)} failed; pods held: {status.get('replicas', 0)}")  # fmt: skip
        if "taskRunning" in status and line not in told:
            told.append(line)
            story.say("fact", line)
        return (status.get("taskSucceed"), status.get("taskFailed"), status.get("replicas")) == (4, 1, 0)

    took = story.until("all tasks are over and all pods are back", over)
    story.until("the pool has them", lambda: _settled(story, held))
    story.say("fact", f"all five over and back in the pool after {took:.1f} s; tasks are looked at every 3 s, "
                      "and each pod went back with the look that found its task over")  # fmt: skip
    story.tell_events("work", "PodReleased")


STEPS: tuple[tuple[str, Callable[[Story], None]], ...] = (
    ("A pool that keeps at least 5 pods warm", _warm),
    ("A batch of ten sandboxes", _ten),
    ("Ten batches of one", _ones),
    ("A pod is lost", _lost),
    ("A sandbox expires", _expiry),
    ("A batch is scaled down", _down),
    ("Five tasks, each giving its pod back when it is over", _tasks),
)


def _pods(story: Story, name: str) -> list[str]:
    """Names by slot, from the record."""
    import orjson

    found = story.stage.get("batchsandbox", name)
    text = ((found or {}).get("metadata", {}).get("annotations") or {}).get(f"{GROUP}/alloc-status")
    return list(orjson.loads(text)["pods"]) if text else []


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    return next((c for c in status.get("conditions") or () if c.get("type") == kind), None)
