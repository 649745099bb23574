"""CustomResourceDefinitions: a stored one becomes routes, schema and columns at once.

Its deletion takes the objects. Conversion is not simulated: every served version shows the same fields under
its own apiVersion.
"""

from __future__ import annotations

from typing import Any

from osb.sim import refusals
from osb.sim.kinds import CRD, Registry, Resource
from osb.sim.patches import clone, merge
from osb.sim.storage import Change, Ref
from osb.sim.writes import DeleteOptions, Writes, timestamp

Obj = dict[str, Any]

_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


class Definitions:
    """Listens to stored CRDs; `check` refuses nonsense before it is stored."""

    def __init__(self, registry: Registry, writes: Writes) -> None:
        self._registry = registry
        self._writes = writes
        writes.storage.listeners.append(self._changed)

    def check(self, res: Resource, body: Obj) -> None:
        """A CRD must be named plural.group and have a schema and exactly one storage version."""
        if res.bucket != CRD.bucket or not isinstance(body.get("spec"), dict):
            return
        spec, name = body["spec"], body.get("metadata", {}).get("name", "")
        names = spec.setdefault("names", {})
        causes = []
        if name != f"{names.get('plural')}.{spec.get('group')}":
            causes.append(
                (
                    "metadata.name",
                    "FieldValueInvalid",
                    f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group',
                )
            )
        versions = spec.get("versions") or []
        if sum(1 for version in versions if version.get("storage")) != 1:
            causes.append(
                (
                    "spec.versions",
                    "FieldValueInvalid",
                    "Invalid value: must have exactly one version marked as storage version",
                )
            )
        for index, version in enumerate(versions):
            if not (version.get("schema") or {}).get("openAPIV3Schema"):
                causes.append(
                    (
                        f"spec.versions[{index}].schema.openAPIV3Schema",
                        "FieldValueRequired",
                        "Required value: schemas are required",
                    )
                )
        if causes:
            raise refusals.invalid(CRD, name, causes)
        names.setdefault("singular", str(names.get("kind", "")).lower())
        names.setdefault("listKind", f"{names.get('kind')}List")
        spec.setdefault("conversion", {"strategy": "None"})

    def _changed(self, res: Resource, change: Change) -> None:
        obj = change.record.obj
        if res.custom and change.type == "DELETED":
            self._finish(res.bucket)
        if res.bucket != CRD.bucket:
            return
        bucket = (obj["spec"]["group"], obj["spec"]["names"]["plural"])
        if change.type == "DELETED":
            self._registry.drop(*bucket)
            return
        if "deletionTimestamp" in obj["metadata"]:
            self._remove_objects(bucket)
            self._finish(bucket)
            return
        if change.old is None or change.old.obj["spec"] != obj["spec"]:
            self._registry.drop(*bucket)
            for version in obj["spec"]["versions"]:
                if version.get("served"):
                    self._registry.add(resource(obj["spec"], version))
        if (obj.get("status") or {}).get("acceptedNames") != obj["spec"]["names"]:
            self._establish(obj)

    def _establish(self, obj: Obj) -> None:
        new = clone(obj)
        now = timestamp()
        finalizers = new["metadata"].setdefault("finalizers", [])
        if _CLEANUP not in finalizers:
            finalizers.append(_CLEANUP)
        new["status"] = {
            "acceptedNames": obj["spec"]["names"],
            "storedVersions": [item["name"] for item in obj["spec"]["versions"] if item.get("storage")],
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "lastTransitionTime": now,
                "reason": "NoConflicts",
                 "message": "no conflicts found"},
                {"type": "Established", "status": "True", "lastTransitionTime": now,
                "reason": "InitialNamesAccepted",
                 "message": "the initial names have been accepted"},
            ],
        }  # fmt: skip
        self._writes.storage.put(CRD, new)

    def _remove_objects(self, bucket: tuple[str, str]) -> None:
        """Delete every object of a kind that goes; those with finalizers hold its definition."""
        res = next((res for res in self._registry.all() if res.bucket == bucket), None)
        for record in list(self._writes.storage.bucket(bucket).records(None)):
            meta = record.obj["metadata"]
            if res is not None and "deletionTimestamp" not in meta:
                self._writes.delete(res, meta.get("namespace", ""), meta["name"], DeleteOptions())

    def _finish(self, bucket: tuple[str, str]) -> None:
        """A definition that is being deleted goes when its last object is gone."""
        ref = Ref(CRD.bucket, "", f"{bucket[1]}.{bucket[0]}")
        record = self._writes.storage.get(ref)
        if record is None or "deletionTimestamp" not in record.obj["metadata"]:
            return
        if not self._writes.storage.bucket(bucket).items:
            rest = [item for item in record.obj["metadata"].get("finalizers") or () if item != _CLEANUP]
            self._writes.change(CRD, "", ref.name, lambda old: merge(old, {"metadata": {"finalizers": rest}}))


def resource(spec: Obj, version: Obj) -> Resource:
    """One served version of a CRD."""
    names = spec["names"]
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    preserve = {"x-kubernetes-preserve-unknown-fields": True} if spec.get("preserveUnknownFields") else {}
    return Resource(
        spec["group"], version["name"], names["plural"], names["kind"],
        namespaced=spec.get("scope", "Namespaced") == "Namespaced",
        singular=names.get("singular") or names["kind"].lower(),
        short=tuple(names.get("shortNames") or ()), categories=tuple(names.get("categories") or ()),
        subresources=frozenset(key for key in ("status",) if key in (version.get("subresources") or {})),
        columns=tuple(version.get("additionalPrinterColumns") or ()),
        schema={**schema, **preserve} if schema else None, custom=True, counts_generation=True,
    )  # fmt: skip
