"""What follows a deletion: dependents by owner reference, foreground and orphan finalizers, namespaces emptied.

Listens to every change, works through a queue of objects to look at. Same outcomes as the garbage collector and
the namespace controller of a real control plane, only sooner.
"""

from __future__ import annotations

import asyncio
from typing import Any

from osb.sim.kinds import NAMESPACE, Registry, Resource
from osb.sim.patches import clone
from osb.sim.refusals import Refusal
from osb.sim.storage import Change, Record, Ref
from osb.sim.writes import DeleteOptions, Writes

Obj = dict[str, Any]

_BACKGROUND = DeleteOptions(propagation="Background")


class Collector:
    """The garbage collector of the simulated cluster."""

    def __init__(self, registry: Registry, writes: Writes) -> None:
        self._registry = registry
        self._writes = writes
        self._storage = writes.storage
        self._queue: dict[Ref, None] = {}  # ordered, each object once
        self._wake = asyncio.Event()
        self._storage.listeners.append(self._changed)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                batch, self._queue = list(self._queue), {}
                for ref in batch:
                    self._look(ref)
                await asyncio.sleep(0)

    def _add(self, ref: Ref) -> None:
        self._queue[ref] = None
        self._wake.set()

    def _changed(self, res: Resource, change: Change) -> None:
        meta = change.record.obj["metadata"]
        ref = Ref(res.bucket, meta.get("namespace", ""), meta["name"])
        if change.type == "DELETED":
            for dependent in self._storage.dependents.get(meta["uid"], ()):
                self._add(dependent)
            for owner in meta.get("ownerReferences") or ():
                if (holder := self._storage.by_uid.get(owner.get("uid", ""))) is not None:
                    self._add(holder)
            if ref.namespace:
                self._add_terminating(ref.namespace)
        elif change.old is None:
            if meta.get("ownerReferences"):
                self._add(ref)
        elif "deletionTimestamp" in meta:
            self._add(ref)

    def _add_terminating(self, namespace: str) -> None:
        space = self._storage.bucket(NAMESPACE.bucket).get("", namespace)
        if space is not None and "deletionTimestamp" in space.obj["metadata"]:
            self._add(Ref(NAMESPACE.bucket, "", namespace))

    def _look(self, ref: Ref) -> None:
        record, res = self._storage.get(ref), self._registry.buckets().get(ref.bucket)
        if record is None or res is None:
            return
        meta = record.obj["metadata"]
        if "deletionTimestamp" in meta:
            if res.kind == "Namespace":
                self._empty(record)
            finalizers = meta.get("finalizers") or ()
            if "foregroundDeletion" in finalizers:
                self._foreground(res, ref, meta)
            elif "orphan" in finalizers:
                self._orphan(res, ref, meta)
        elif meta.get("ownerReferences"):
            self._owners(res, ref, record)

    # -- dependents ------------------------------------------------------------------------------------------

    def _owners(self, res: Resource, ref: Ref, record: Record) -> None:
        """Delete an object all of whose owners are gone or wait for it; drop references to dead ones."""
        owners = record.obj["metadata"]["ownerReferences"]
        solid = [owner for owner in owners if self._alive(owner, ref)]
        if len(solid) == len(owners):
            return
        if not solid:
            self._delete(res, ref)
        else:
            new = clone(record.obj)
            new["metadata"]["ownerReferences"] = solid
            self._storage.put(res, new)

    def _alive(self, owner: Obj, ref: Ref) -> bool:
        holder = self._storage.by_uid.get(owner.get("uid", ""))
        if holder is None or holder.name != owner.get("name") or holder.namespace not in ("", ref.namespace):
            return False
        record = self._storage.get(holder)
        meta = record.obj["metadata"] if record else {}
        return not ("deletionTimestamp" in meta and "foregroundDeletion" in (meta.get("finalizers") or ()))

    def _delete(self, res: Resource, ref: Ref) -> None:
        try:
            self._writes.delete(res, ref.namespace, ref.name, _BACKGROUND)
        except Refusal:
            return  # gone meanwhile

    def _foreground(self, res: Resource, ref: Ref, meta: Obj) -> None:
        dependents = list(self._storage.dependents.get(meta["uid"], ()))
        for dependent in dependents:
            kind = self._registry.buckets().get(dependent.bucket)
            record = self._storage.get(dependent)
            if kind and record and "deletionTimestamp" not in record.obj["metadata"]:
                self._owners(kind, dependent, record)
        if not self._storage.dependents.get(meta["uid"]):
            self._drop_finalizer(res, ref, "foregroundDeletion")

    def _orphan(self, res: Resource, ref: Ref, meta: Obj) -> None:
        for dependent in list(self._storage.dependents.get(meta["uid"], ())):
            kind, record = self._registry.buckets().get(dependent.bucket), self._storage.get(dependent)
            if kind is None or record is None:
                continue
            new = clone(record.obj)
            new["metadata"]["ownerReferences"] = [
                owner for owner in new["metadata"]["ownerReferences"] if owner.get("uid") != meta["uid"]
            ]
            self._storage.put(kind, new)
        self._drop_finalizer(res, ref, "orphan")

    def _drop_finalizer(self, res: Resource, ref: Ref, finalizer: str) -> None:
        def edit(obj: Obj) -> Obj:
            new: Obj = clone(obj)
            new["metadata"]["finalizers"] = [item for item in new["metadata"]["finalizers"] if item != finalizer]
            return new

        self._writes.change(res, ref.namespace, ref.name, edit)

    # -- namespaces ------------------------------------------------------------------------------------------

    def _empty(self, record: Record) -> None:
        """Delete what is in a terminating namespace; the namespace itself goes when nothing is left."""
        name = record.obj["metadata"]["name"]
        left = False
        for res in self._registry.buckets().values():
            if not res.namespaced:
                continue
            for item in list(self._storage.bucket(res.bucket).records(name)):
                left = True
                if "deletionTimestamp" not in item.obj["metadata"]:
                    self._delete(res, Ref(res.bucket, name, item.obj["metadata"]["name"]))
        if left and any(self._storage.bucket(res.bucket).items.get(name) for res in self._registry.buckets().values()):
            return
        new = clone(record.obj)
        new["spec"]["finalizers"] = []
        if new["metadata"].get("finalizers"):
            self._storage.put(NAMESPACE, new) if new != record.obj else None
        else:
            self._storage.remove(NAMESPACE, new)
