"""One random history of a namespace: users who change their minds, pods that come and go, workers that meet faults."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from osb.api import batchsandbox, claims, names
from osb.api.key import POOL
from osb.errors import ApiError
from osb.reconcile.handle import handle
from tests.doubles.following import dirty, rest, undone
from tests.doubles.stepping import At, Stepping, kill

POOLS = ("warm", "cold")
SIZE = (1, 3, 0, 30)
NO_FINALIZERS = {"finalizers": None}


class Walk:
    """`steps(n)` plays n events, checking after every pass; `end()` stops all faults and looks at the fixed point.

    `asked`: only the queue's own passes run, without faults, so that `rests()` shows whether a wake-up was lost.
    """

    def __init__(self, run: Stepping, seed: int, *, asked: bool = False) -> None:
        self.run, self.passes, self.dice, self.asked = run, run.passes, random.Random(seed), asked
        self.count = 0
        self.erased: set[str] = set()  # pods that a sandbox had before somebody edited its marks
        self.told: list[str] = []
        for pool in POOLS:
            self.passes.pool(pool, *SIZE)

    def steps(self, number: int) -> None:
        for _ in range(number):
            event = self.dice.choice(EVENTS + EDITS)
            self.told.append(event.__name__.strip("_"))
            try:
                event(self)
            except ApiError as error:  # a user's request that came too late
                self.told[-1] += f" ({type(error).__name__})"
            self._turn()

    def rests(self) -> None:
        """When nothing asks for a pass any more, no pass would do anything."""
        self.told += [f"asked: {one}" for one in rest(self.passes)]
        self.run.check()
        left = undone(self.passes)
        assert not left, "nobody asks for a pass that would do this:\n" + "\n".join(left) + "\n" + self.run.told()

    def end(self) -> None:
        self.run.sim.clear_faults()
        there = {raw["metadata"]["name"] for raw in self.passes.kube.all("pool", self.passes.ns)[0]}
        for pool in POOLS:
            if pool not in there:
                self.passes.pool(pool, *SIZE)
            self.passes.annotate("pool", pool, hold=None)
            self._size(pool, *SIZE)
        for raw in self.passes.pods():
            if (raw.get("status") or {}).get("phase") == "Running":
                self._condition(raw, "True")
        self.run.settle()
        wanted = [spec for spec in self._boxes() if spec.deleting is None and not claims.given_back(spec)]
        self.run.served(*(spec.name for spec in wanted if spec.replicas))
        assert not [spec.name for spec in self._boxes() if spec.deleting is not None], self.run.told()

    # -- passes and what they meet ----------------------------------------------------------------------------------

    def _passes(self) -> None:
        """A few passes of random keys, on facts that may be old, under a fault now and then."""
        for _ in range(self.dice.randint(1, 3)):
            keys = self.run.keys()
            kind, name = self.dice.choice(keys or [(POOL, "warm")])
            hook = At(self.dice.randint(0, 6), self._fault()) if self.dice.random() < 0.4 else At()
            self.run.once(kind, name, hook, deep=self.dice.random() < 0.6, sync=self.dice.random() < 0.7)
            self.told.append(f"{kind} {name}" + (f" with a fault at {hook.seen[-1]}" if hook.done else ""))
            self.run.sim.clear_faults()

    def _turn(self) -> None:
        if self.asked:
            self._asked_passes()
        else:
            self._passes()

    def _asked_passes(self) -> None:
        """Some of those that the queue wants now, in any order."""
        self.passes.sync()
        wanted = dirty(self.passes)
        for one in self.dice.sample(wanted, self.dice.randint(0, len(wanted))):
            self.told.append(f"asked: {one.key.text}: {one.reason} -> {handle(self.passes.world, one.key)}")
            self.run.check()

    def _fault(self) -> Callable[[], None]:
        writes: dict[str, Any] = {"methods": ["PATCH", "POST", "DELETE"], "count": self.dice.randint(1, 2)}
        return self.dice.choice([
            kill, self._other_worker, self._other_worker, self.redis_is_emptied,
            lambda: self._add(drop=True, **writes), lambda: self._add(close=True, **writes),
            lambda: self._add(status=409, reason="Conflict", **writes), lambda: self._add(status=503, **writes),
        ])  # fmt: skip

    def _add(self, **fault: Any) -> None:
        self.run.sim.add_fault(**fault)

    def _other_worker(self) -> None:
        """This worker stands still while another one goes on."""
        twin = self.run.twin()
        try:
            keys = self.run.keys()
            for kind, name in keys:
                twin.once(kind, name)
        finally:
            twin.passes.close()

    # -- events -------------------------------------------------------------------------------------------------------

    def _boxes(self) -> list[Any]:
        return [batchsandbox.parse(raw) for raw in self.run.boxes()]

    def _box(self) -> Any:
        """One of the sandboxes; None when there is none."""
        found = [spec for spec in self._boxes() if spec.deleting is None]
        return self.dice.choice(found) if found else None

    def a_new_sandbox(self) -> None:
        if len(self._boxes()) < 6:
            self.count += 1
            self.passes.box(f"b{self.count}", poolRef=self.dice.choice(POOLS), replicas=self.dice.randint(0, 3))

    def a_sandbox_is_deleted(self) -> None:
        if box := self._box():
            self.passes.delete("batchsandbox", box.name)

    def a_sandbox_wants_another_size(self) -> None:
        if box := self._box():
            self.passes.patch("batchsandbox", box.name, {"spec": {"replicas": self.dice.randint(0, 3)}})

    def a_pod_is_given_back(self) -> None:
        box = self._box()
        if box and box.record and (held := [pod for pod, _ in claims.slots(box).values()]):
            pods = [*box.release, self.dice.choice(held)]
            self.passes.annotate("batchsandbox", box.name, alloc_release={"pods": pods})

    def a_label_changes(self) -> None:
        if box := self._box():
            self.passes.patch("batchsandbox", box.name, {"metadata": {"labels": {"x": str(self.dice.random())}}})

    # -- edits of what the controller keeps on a sandbox -----------------------------------------------------------

    def _edited(self) -> Any:
        """A sandbox whose marks somebody edits: what it had is no longer sure to be its."""
        box = self._box()
        if box and box.record is not None:
            self.run.lost.update(pod for pod in box.record.pods if pod)
            self.erased.update(pod for pod in box.record.pods if pod)
        return box

    def a_record_is_removed(self) -> None:
        if box := self._edited():
            self.passes.annotate("batchsandbox", box.name, alloc_status=None, endpoints=None)

    def a_record_gets_unreadable(self) -> None:
        if (box := self._edited()) and box.record is not None:
            good = box.annotations[names.ALLOC_STATUS]
            self.passes.annotate("batchsandbox", box.name, alloc_status=["no record"])
            self._turn()
            if self.dice.random() < 0.5:
                self.passes.annotate("batchsandbox", box.name, alloc_status=None)
            else:
                body = {"metadata": {"annotations": {names.ALLOC_STATUS: good}}}
                self.passes.patch("batchsandbox", box.name, body)

    def a_finalizer_is_removed(self) -> None:
        """It may then be deleted at once, and nothing of it is left."""
        if box := self._box():
            self.erased.update(pod for pod in (box.record.pods if box.record else ()) if pod)
            self.passes.patch("batchsandbox", box.name, {"metadata": {"resourceVersion": box.version, **NO_FINALIZERS}})

    def a_manifest_is_sent_again(self) -> None:
        if box := self._edited():
            meta = {"resourceVersion": box.version, "annotations": None, **NO_FINALIZERS}
            self.passes.patch("batchsandbox", box.name, {"metadata": meta})

    def endpoints_are_edited(self) -> None:
        if box := self._box():
            text = self.dice.choice([None, ["6.6.6.6"], "nonsense"])
            self.passes.annotate("batchsandbox", box.name, endpoints=text)

    def a_release_is_edited(self) -> None:
        if box := self._edited():
            pods = self.dice.choice([[], ["nobodys"], list(box.release[:1])])
            self.passes.annotate("batchsandbox", box.name, alloc_release={"pods": pods})

    def a_release_is_forgotten(self) -> None:
        if box := self._edited():
            self.passes.annotate("batchsandbox", box.name, alloc_release=None, alloc_released=None)

    def a_sandbox_changes_pools(self) -> None:
        if box := self._box():
            self.passes.patch("batchsandbox", box.name, {"spec": {"poolRef": self.dice.choice(POOLS)}})

    # -- pods and pools --------------------------------------------------------------------------------------------

    def pods_get_ready(self) -> None:
        self.passes.ready()

    def a_pod_goes(self) -> None:
        if pods := self.passes.pods():
            name = self.dice.choice(pods)["metadata"]["name"]
            self.run.lost.add(name)
            self.passes.delete("pod", name)

    def a_pod_fails(self) -> None:
        if running := self._running():
            raw = self.dice.choice(running)
            self.run.lost.add(raw["metadata"]["name"])
            self._pod_status(raw, {"phase": "Failed"})

    def a_pod_flaps(self) -> None:
        if running := self._running():
            self._condition(self.dice.choice(running), self.dice.choice(["True", "False"]))

    def _running(self) -> list[Any]:
        return [raw for raw in self.passes.pods() if (raw.get("status") or {}).get("phase") == "Running"]

    def _condition(self, raw: Any, ready: str) -> None:
        self._pod_status(raw, {"conditions": [{"type": "Ready", "status": ready}]})

    def _pod_status(self, raw: Any, status: dict[str, Any]) -> None:
        meta = raw["metadata"]
        body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
        self.passes.patch("pod", meta["name"], body, sub="status")

    def a_pool_gets_another_size(self) -> None:
        low = self.dice.randint(0, 2)
        self._size(self.dice.choice(POOLS), low, low + self.dice.randint(0, 2), 0, self.dice.choice([0, 4, 30]))

    def _size(self, pool: str, low: int, high: int, floor: int, top: int) -> None:
        size = {"bufferMin": low, "bufferMax": high, "poolMin": floor, "poolMax": top}
        self.passes.patch("pool", pool, {"spec": {"capacitySpec": size}})

    def a_template_changes(self) -> None:
        containers = [{"name": "main", "image": f"img:{self.dice.randint(1, 3)}"}]
        self.passes.patch("pool", self.dice.choice(POOLS), {"spec": {"template": {"spec": {"containers": containers}}}})

    def a_pool_is_held(self) -> None:
        self.passes.annotate("pool", self.dice.choice(POOLS), hold=self.dice.choice(["true", None]))

    def redis_is_emptied(self) -> None:
        """What was erased from a sandbox was in Redis alone: nothing need tell any more that its pods were used."""
        self.passes.store.redis.flushall()
        for pod in self.erased:
            self.run.owners.pop(pod, None)
        self.erased.clear()

    def a_pool_goes_and_comes(self) -> None:
        if self.dice.random() < 0.3:
            pool = self.dice.choice(POOLS)
            self.run.lost.update(raw["metadata"]["name"] for raw in self.passes.pods(pool))
            self.passes.delete("pool", pool)
            if self.dice.random() < 0.7:
                self.passes.pool(pool, *SIZE)


EVENTS: list[Callable[[Walk], None]] = [
    Walk.a_new_sandbox, Walk.a_new_sandbox, Walk.a_new_sandbox, Walk.a_sandbox_is_deleted,
    Walk.a_sandbox_wants_another_size, Walk.a_pod_is_given_back, Walk.a_label_changes, Walk.pods_get_ready,
    Walk.pods_get_ready, Walk.pods_get_ready, Walk.a_pod_goes, Walk.a_pod_fails, Walk.a_pod_flaps,
    Walk.a_pool_gets_another_size, Walk.a_template_changes, Walk.a_pool_is_held, Walk.redis_is_emptied,
    Walk.a_pool_goes_and_comes,
]  # fmt: skip
EDITS: list[Callable[[Walk], None]] = [
    Walk.a_record_is_removed, Walk.a_record_gets_unreadable, Walk.a_finalizer_is_removed, Walk.a_manifest_is_sent_again,
    Walk.endpoints_are_edited, Walk.a_release_is_edited, Walk.a_release_is_forgotten, Walk.a_sandbox_changes_pools,
]  # fmt: skip
