"""CustomResourceDefinitions: a stored definition becomes routes, schema and columns at once; its deletion
takes the objects.

Conversion is not simulated: every served version shows the same fields under its own apiVersion.
"""

from __future__ import annotations

from typing import Any

from osb.sim import refusals
from osb.sim.kinds import CRD, Registry, Resource
from osb.sim.patches import clone
from osb.sim.storage import Change, Ref
from osb.sim.writes import Writes, timestamp

Obj = dict[str, Any]


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
        if res.bucket != CRD.bucket:
            return
        obj = change.record.obj
        group, plural = obj["spec"]["group"], obj["spec"]["names"]["plural"]
        if change.type == "DELETED":
            self._remove_objects(group, plural)
            self._registry.drop(group, plural)
            return
        if change.old is None or change.old.obj["spec"] != obj["spec"]:
            self._registry.drop(group, plural)
            for version in obj["spec"]["versions"]:
                if version.get("served"):
                    self._registry.add(resource(obj["spec"], version))
        if (obj.get("status") or {}).get("acceptedNames") != obj["spec"]["names"]:
            self._establish(obj)

    def _establish(self, obj: Obj) -> None:
        new = clone(obj)
        now = timestamp()
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

    def _remove_objects(self, group: str, plural: str) -> None:
        bucket = self._writes.storage.bucket((group, plural))
        res = next((res for res in self._registry.all() if res.bucket == (group, plural)), None)
        for record in list(bucket.records(None)):
            meta = record.obj["metadata"]
            if res is not None:
                self._writes.forget(Ref(res.bucket, meta.get("namespace", ""), meta["name"]), res)


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
