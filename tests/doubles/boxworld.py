"""One sandbox in a tiny world without a server: plans are carried out on plain dicts, and may be cut short anywhere.

Only what pause and resume touch: the sandbox, its pods, its snapshot, a pool that takes a pod back. Patches are JSON
merge patches; a spec change raises the generation, as an API server does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from osb.api import batchsandbox, claims, names, record
from osb.api.record import format_endpoints
from osb.decide import batch, claim
from osb.decide.plan import (
    Action,
    CreateObject,
    CreatePod,
    DeleteObject,
    DeletePod,
    EmitEvent,
    PatchObject,
    Plan,
    PublishEndpoints,
)
from osb.facts.boxview import BatchView, BoxOptions, SnapshotFact
from osb.facts.pod import PodFact
from tests.doubles.boxes import NOW, UID, pod, snapshot

Obj = dict[str, Any]


def merge(target: Any, patch: Mapping[str, Any]) -> Obj:
    """RFC 7386."""
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = merge(result.get(key), value)
        else:
            result[key] = value
    return result


class World:
    """`pods` are the sandbox's own, `pool_pods` the pool's. `cut` stops the next pass after that many writes."""

    def __init__(self, **spec: Any) -> None:
        self.now = NOW
        self.box: Obj = {
            "metadata": {"namespace": "ns", "name": "box", "uid": UID, "resourceVersion": "1", "generation": 1},
            "spec": spec,
            "status": {},
        }
        self.pods: dict[str, PodFact] = {}
        self.pool_pods: dict[str, PodFact] = {}
        self.snapshot: SnapshotFact | None = None
        self.pool_deleted = False
        self.events: list[str] = []
        self.bodies: dict[str, Obj] = {}
        self.cut: int | None = None
        self.options = BoxOptions()
        self.uids = 0

    # -- what tests look at ---------------------------------------------------------------------------------------

    @property
    def status(self) -> Obj:
        return self.box["status"]

    @property
    def phase(self) -> str:
        return str(self.status.get("phase") or "")

    def reason(self, kind: str) -> str:
        found = [c for c in self.status.get("conditions") or () if c["type"] == kind]
        return str(found[0]["reason"]) if found else ""

    def view(self) -> BatchView:
        spec = batchsandbox.parse(self.box)
        slots: dict[int, PodFact] = {}
        if claims.pooled(spec):
            slots = {s: self.pool_pods[n] for s, (n, _) in claims.slots(spec).items() if n in self.pool_pods}
        return BatchView(
            now=self.now,
            spec=spec,
            pods=tuple(self.pods.values()),
            slots=slots,
            snapshot=self.snapshot,
            pool_deleted=self.pool_deleted,
            options=self.options,
        )

    # -- what happens ---------------------------------------------------------------------------------------------

    def edit(self, **spec: Any) -> None:
        self._patch({"spec": spec})

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def ready(self, name: str = "box-0", **changes: Any) -> None:
        self.uids += 1
        self.pods[name] = pod(name, **{"uid": f"pod-{self.uids}", **changes})

    def saved(self, **changes: Any) -> None:
        """The snapshot controller has saved the images."""
        assert self.snapshot is not None
        digest = "sha256:" + f"{self.uids:064x}"
        image = f"reg.example/ns/box/main:snap-{self.snapshot.uid}"
        done = {"phase": names.SUCCEED, "containers": (("main", image, digest),), "source_pod": "box-0"}
        self.snapshot = replace(self.snapshot, **(done | changes))

    def gone(self) -> None:
        """Terminating pods and a terminating snapshot are gone now."""
        self.pods = {n: p for n, p in self.pods.items() if not p.deleting}
        if self.snapshot is not None and self.snapshot.deleting:
            self.snapshot = None

    def pool_pass(self) -> None:
        """The pool deletes pods that a detaching sandbox gives back, then frees the sandbox."""
        spec = batchsandbox.parse(self.box)
        if spec.detaching:
            for name in spec.force:
                self.pool_pods.pop(name, None)
            self._patch(claim.detached(spec).patch(spec.version))

    def run(self, passes: int = 1) -> Plan:
        """Reconcile that often, with time going on a little."""
        plan = Plan()
        for _ in range(passes):
            plan = batch.plan(self.view())
            self._carry_out(plan)
            self.wait(1)
        return plan

    def _carry_out(self, plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, EmitEvent):
                self.events.append(action.reason)
            elif not self._allowed():
                return
            else:
                self._do(action)
        if plan.status is not None and self._allowed():
            self.box["status"] = dict(plan.status)
            self._version()

    def _allowed(self) -> bool:
        if self.cut is None:
            return True
        self.cut -= 1
        return self.cut >= 0

    def _do(self, action: Action) -> None:
        match action:
            case CreatePod():
                assert action.name not in self.pods, "a second pod of that name"
                image = action.body["spec"]["containers"][0]["image"]
                self.bodies[action.name] = dict(action.body)
                self.ready(action.name, phase="Pending", ready=False, ip="", main_image=image)
            case DeletePod():
                found = self.pods[action.name]
                assert found.uid == action.uid
                self.pods[action.name] = _changed(found, deleting=int(self.now.timestamp() * 1000), ready=False)
                if action.grace == 0:
                    del self.pods[action.name]
            case PatchObject():
                assert isinstance(action.patch, Mapping)
                self._patch(action.patch)
            case CreateObject():
                assert self.snapshot is None, "a second snapshot"
                self.uids += 1
                self.snapshot = snapshot("Pending", uid=f"snap-{self.uids}", containers=())
            case DeleteObject():
                assert self.snapshot is not None
                assert self.snapshot.uid == action.uid
                self.snapshot = replace(self.snapshot, deleting=True)
            case PublishEndpoints():
                text = format_endpoints(action.addresses)
                self._patch({"metadata": {"annotations": {names.ENDPOINTS: text}}})

    def _patch(self, patch: Mapping[str, Any]) -> None:
        before = self.box["spec"]
        kept = self.box["metadata"]["resourceVersion"]
        self.box = merge(self.box, patch)
        self.box["metadata"]["resourceVersion"] = kept
        if self.box["spec"] != before:
            self.box["metadata"]["generation"] += 1
        self._version()

    def _version(self) -> None:
        meta = self.box["metadata"]
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)


def _changed(fact: PodFact, **changes: Any) -> PodFact:
    return PodFact(**({field: getattr(fact, field) for field in fact.__struct_fields__} | changes))


def running(**spec: Any) -> World:
    """A sandbox with one ready pod of its own, phase Succeed."""
    template = {"spec": {"containers": [{"name": "main", "image": "img:1"}]}}
    world = World(**{"replicas": 1, "template": template, **spec})
    world.run()
    world.ready()
    world.run()
    return world


def pooled(**spec: Any) -> World:
    """A sandbox that holds one ready pod of a pool, phase Succeed."""
    world = World(**{"replicas": 1, "poolRef": "warm", **spec})
    world.pool_pods["warm-1"] = pod("warm-1", uid="warm-uid", owner_uid="pool-uid", owner_kind=names.KIND_POOL)
    box = batchsandbox.parse(world.box)
    given = claim.granted(box, "warm", "pool-uid", [(0, "warm-1", "warm-uid")], endpoints=["10.0.0.9"])
    world._patch(given.patch("1"))
    world.run()
    return world


def pause(world: World) -> World:
    """Pause it, all the way."""
    world.edit(pause=True)
    world.run(2)
    world.saved()
    for _ in range(6):
        world.run()
        world.pool_pass()
        world.gone()
    assert world.phase == names.PAUSED
    return world


__all__ = ["World", "merge", "pause", "pooled", "record", "running"]
