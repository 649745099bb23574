"""Put something between any two steps of a pass: a death, a loss, another worker, a fault of the API server.

`Stepping` drives one namespace (`Passes`) to its fixed point and checks after every pass what must always hold: no pod
has two owners, no used pod of the Delete policy gets a second one, nobody loses a pod he did not give back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from osb.api import batchsandbox, claims, names
from osb.api.key import BATCHSANDBOX, POOL
from osb.errors import OsbError
from osb.sim import SimCluster
from tests.doubles.passworld import Passes

Obj = dict[str, Any]
Step = Callable[[str], None]
WRITES = ("create", "update", "patch", "delete", "deletecollection")


class Killed(BaseException):
    """The process ends here: nothing may catch it."""


@dataclass
class At:
    """A hook that does `action` once, before step number `number`; without an action it only counts."""

    number: int = -1
    action: Callable[[], None] = lambda: None
    seen: list[str] = field(default_factory=list)
    done: bool = False
    skip: Callable[[str, list[str]], bool] = lambda name, seen: False

    def __call__(self, name: str) -> None:
        if self.skip(name, [*self.seen, name]):
            return
        self.seen.append(name)
        if len(self.seen) - 1 == self.number and not self.done:
            self.done = True
            self.action()


def kill() -> None:
    raise Killed


@dataclass
class Stepping:
    """`lost`: pods that the test itself took away; `given`: pods by the sandboxes that ever had them."""

    passes: Passes
    sim: SimCluster
    reuse: bool = False
    lost: set[str] = field(default_factory=set)
    owners: dict[str, set[str]] = field(default_factory=dict)

    # -- what happens -----------------------------------------------------------------------------------------------

    def once(self, kind: str, name: str, hook: Step = lambda _: None, *, deep: bool = True, sync: bool = True) -> bool:
        """One pass over fresh facts; True when it ended without an error.

        A death or a refusal is the next pass's business.
        """
        if sync:
            self.passes.sync()
        try:
            self.passes.run(kind, name, step=hook, deep=deep)
        except (OsbError, Killed):
            return False
        finally:
            self.check()
        return True

    def settle(self, rounds: int = 40, *, still: int = 2) -> None:
        """Passes of everything, pods getting ready in between, until `still` rounds wrote nothing and had no error."""
        quiet = 0
        for _ in range(rounds):
            before = self.writes()
            self.passes.sync()
            fine = [self.once(kind, name, sync=False) for kind, name in self.keys()]
            wrote = self.writes() - before
            self.passes.ready()
            quiet = quiet + 1 if not wrote and all(fine) else 0
            if quiet == still:
                return
            self.passes.turned += 3.0
        raise AssertionError(f"no fixed point: {self.told()}")

    def twin(self) -> Stepping:
        """Another worker process on the same namespace; close its `passes`."""
        other = Passes(self.passes.store, self.passes.kube)
        other.kube.delete("namespace", None, other.ns)
        other.ns, other.turned = self.passes.ns, self.passes.turned
        return Stepping(other, self.sim, self.reuse, self.lost, self.owners)

    def keys(self) -> list[tuple[str, str]]:
        """Everything that a sweep would offer, pools that are gone but still have a ledger or a sandbox included."""
        pools = {raw["metadata"]["name"] for raw in self.passes.kube.all("pool", self.passes.ns)[0]}
        boxes = self.boxes()
        pools |= {claims.effective_pool(batchsandbox.parse(raw))[0] for raw in boxes} - {"", "*"}
        keys = [(POOL, name) for name in sorted(pools)]
        return keys + [(BATCHSANDBOX, raw["metadata"]["name"]) for raw in boxes]

    def writes(self) -> int:
        """Requests that changed something, but for the kubelet's and events."""
        return sum(
            count
            for key, count in self.sim.stats().items()
            if key.split()[0] in WRITES and "pods/status" not in key and "event" not in key
        )

    # -- what must hold ---------------------------------------------------------------------------------------------

    def boxes(self) -> list[Obj]:
        return list(self.passes.kube.all("batchsandbox", self.passes.ns)[0])

    def check(self) -> None:
        """Read from the API server, as it is now."""
        held: dict[str, str] = {}
        pods = {raw["metadata"]["name"]: raw for raw in self.passes.pods()}
        for raw in self.boxes():
            spec = batchsandbox.parse(raw)
            if spec.record_error is not None:
                continue
            for slot, (pod, uid) in claims.claims(spec).items():
                there = pods.get(pod)
                if there is not None and uid and not there["metadata"]["uid"].startswith(uid):
                    continue
                assert pod not in held, f"{pod} has two owners: {held[pod]} and {spec.name}"
                held[pod] = spec.name
                had = self.owners.setdefault(pod, set())
                had.add(spec.uid)
                assert self.reuse or len(had) == 1, f"{pod} was used before it came to {spec.name}"
                self._kept(spec, slot, pod, there)

    def _kept(self, spec: Any, slot: int, pod: str, there: Obj | None) -> None:
        """A live sandbox that wants its pod still has it, unless the test itself took it away."""
        going = spec.deleting is not None or pod in spec.release or slot >= spec.replicas or spec.detaching
        if going or pod in self.lost or not spec.pool_ref:
            return
        assert there is not None, f"{pod} of {spec.name} is gone"
        assert not there["metadata"].get("deletionTimestamp"), f"{pod} of {spec.name} is being deleted"

    def served(self, *boxes: str) -> None:
        """Each of these has a live pod and a published address per slot."""
        pods = {raw["metadata"]["name"]: raw for raw in self.passes.pods()}
        for name in boxes:
            spec = batchsandbox.parse(self.passes.get("batchsandbox", name))
            held = claims.slots(spec)
            assert sorted(held) == list(range(spec.replicas)), f"{name} has slots {sorted(held)}: {self.told()}"
            addresses = [(pods[pod].get("status") or {}).get("podIP") for pod, _ in held.values()]
            assert list(spec.endpoints or ()) == addresses, f"{name}: {spec.endpoints} is not {addresses}"
            assert spec.phase == names.SUCCEED, f"{name} is {spec.phase}"

    def ledger_agrees(self, pool: str = "warm") -> None:
        """Every record's pod is held by its sandbox, everything else is free; nothing is unfinished."""
        held = {}
        for raw in self.boxes():
            spec = batchsandbox.parse(raw)
            held |= {pod: spec.uid for pod, _ in claims.claims(spec).values()}
        entries = self.passes.entries(pool)
        assert {n: e.box_uid for n, e in entries.items() if e.state == "held"} == held, self.told()
        assert {e.state for n, e in entries.items() if n not in held} <= {"free"}, self.told()
        assert set(entries) == {raw["metadata"]["name"] for raw in self.passes.pods(pool)}, self.told()

    def told(self) -> str:
        lines = []
        for raw in self.boxes():
            meta = raw["metadata"]
            marks = {k.rpartition("/")[2]: v for k, v in (meta.get("annotations") or {}).items()}
            lines.append(f"{meta['name']} {marks} {meta.get('finalizers')} {(raw.get('status') or {}).get('phase')}")
        lines += [f"{name}: {entry}" for name, entry in self.passes.entries().items()]
        lines += [
            f"pod {raw['metadata']['name']} {(raw.get('status') or {}).get('phase')}" for raw in self.passes.pods()
        ]
        return "\n".join(lines)
