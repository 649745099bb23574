"""Create, update, patch and delete with the rules of Kubernetes on top of `osb.sim.storage`.

In: a resource, a name and a decoded body. Out: the stored `Record`, or a `Refusal`. The HTTP side is
`osb.sim.server`; what follows a deletion (dependents, namespaces) is `osb.sim.collect`.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from osb.sim import podtypes, refusals
from osb.sim.kinds import NAMESPACE, Resource
from osb.sim.patches import clone
from osb.sim.storage import Record, Ref, Storage
from osb.sim.strategy import prepare_create, prepare_update

Obj = dict[str, Any]

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"  # noqa: E501 -- the server's own words
_LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?")
_LABEL_RULE = "a valid label value has at most 63 alphanumeric characters, '-', '_' or '.'"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_FREE_NAMES = {"roles", "rolebindings", "clusterroles", "clusterrolebindings"}


def timestamp(when: datetime | None = None) -> str:
    """RFC 3339 in whole seconds, as every Kubernetes time."""
    return (when or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a DELETE asks for. `grace` None means the object's own."""

    grace: int | None = None
    uid: str = ""
    version: str = ""
    propagation: str = ""
    dry_run: bool = False


class Writes:
    """The write side of the simulated server.

    `auto_namespaces` creates a missing namespace at its first use.
    """

    def __init__(self, storage: Storage, *, auto_namespaces: bool = True) -> None:
        self.storage = storage
        self.auto_namespaces = auto_namespaces

    # -- reading ---------------------------------------------------------------------------------------------

    def get(self, res: Resource, namespace: str, name: str) -> Record:
        found = self.storage.bucket(res.bucket).get(namespace, name)
        if found is None:
            raise refusals.not_found(res, name)
        return found

    # -- create ----------------------------------------------------------------------------------------------

    def create(self, res: Resource, namespace: str, body: Obj, *, dry_run: bool = False) -> Record:
        """A new object.

        `body` becomes ours. 409 AlreadyExists, 422 Invalid, 403 in a terminating namespace.
        """
        meta = self._envelope(res, namespace, body)
        if meta.get("resourceVersion"):
            raise refusals.Refusal(500, "", "resourceVersion should not be set on objects to be created")
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"][:58] + "".join(random.choices(_LETTERS, k=5))
        self._check_name(res, meta)
        self._enter_namespace(res, namespace, meta["name"], dry_run=dry_run)
        for key in ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            meta.pop(key, None)
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = timestamp()
        causes = prepare_create(res, body)
        if causes:
            raise refusals.invalid(res, meta["name"], causes)
        if self.storage.bucket(res.bucket).get(namespace, meta["name"]):
            raise refusals.already_exists(res, meta["name"])
        return Record(body, 0) if dry_run else self.storage.put(res, body)

    def _envelope(self, res: Resource, namespace: str, body: Any) -> Obj:
        """Check kind and namespace of a body; returns its metadata."""
        if not isinstance(body, dict) or not isinstance(body.setdefault("metadata", {}), dict):
            raise refusals.bad_request("the object provided is unrecognized (must be a JSON object with metadata)")
        if res.custom:
            _check_named(res, body)
        kind, version = body.setdefault("kind", res.kind), body.setdefault("apiVersion", res.api_version)
        if kind != res.kind and res.custom:
            cause = ("kind", "FieldValueInvalid", f'Invalid value: "{kind}": must be {res.kind}')
            raise refusals.invalid(res, str(body["metadata"].get("name", "")), [cause])
        if kind != res.kind:
            raise refusals.bad_request(f'{kind} in version "{version}" cannot be handled as a {res.kind}')
        if version != res.api_version:
            wrong = f"the API version in the data ({version}) does not match the expected API version"
            raise refusals.bad_request(f"{wrong} ({res.api_version})")
        podtypes.check(res, body)
        meta: Obj = body["metadata"]
        if res.namespaced:
            if meta.setdefault("namespace", namespace) != namespace:
                raise refusals.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
        else:
            meta.pop("namespace", None)
        return meta

    def _check_name(self, res: Resource, meta: Obj) -> None:
        name = meta.get("name")
        if not name:
            cause = (
                "metadata.name",
                "FieldValueRequired",
                "Required value: name or generateName is required",
            )
            raise refusals.invalid(res, "", [cause])
        if res.plural in _FREE_NAMES:
            return
        if not isinstance(name, str) or len(name) > 253 or not _NAME.fullmatch(name):
            cause = ("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {_NAME_RULE}')
            raise refusals.invalid(res, str(name), [cause])
        for value in (meta.get("labels") or {}).values():
            if not isinstance(value, str) or not _LABEL.fullmatch(value):
                cause = ("metadata.labels", "FieldValueInvalid", f'Invalid value: "{value}": {_LABEL_RULE}')
                raise refusals.invalid(res, name, [cause])

    def _enter_namespace(self, res: Resource, namespace: str, name: str, *, dry_run: bool) -> None:
        if not res.namespaced:
            return
        space = self.storage.bucket(NAMESPACE.bucket).get("", namespace)
        if space is None:
            if not self.auto_namespaces:
                raise refusals.not_found(NAMESPACE, namespace)
            if not dry_run:
                self.create(NAMESPACE, "", {"metadata": {"name": namespace}})
        elif "deletionTimestamp" in space.obj["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise refusals.forbidden(res, name, why)

    # -- update ----------------------------------------------------------------------------------------------

    def replace(
        self, res: Resource, namespace: str, name: str, body: Obj, *, sub: str = "", dry_run: bool = False
    ) -> Record:
        """PUT. A resourceVersion in the body is a precondition; custom objects and Leases must carry one."""
        meta = self._envelope(res, namespace, body)
        if meta.setdefault("name", name) != name:
            raise refusals.bad_request(
                f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
            )
        old = self.get(res, namespace, name)
        if not meta.get("resourceVersion") and (res.custom or res.kind in ("Lease", "CustomResourceDefinition")):
            cause = (
                "metadata.resourceVersion",
                "FieldValueInvalid",
                "Invalid value: 0x0: must be specified for an update",
            )
            raise refusals.invalid(res, name, [cause])
        if meta.get("uid") not in (None, "", old.obj["metadata"]["uid"]):
            raise refusals.conflict(res, name, _precondition("UID", meta["uid"], old.obj["metadata"]["uid"]))
        return self._store(res, old, body, sub=sub, dry_run=dry_run)

    def change(self, res: Resource, namespace: str, name: str, edit: Callable[[Obj], Obj], *, sub: str = "",
               dry_run: bool = False) -> Record:  # fmt: skip
        """PATCH: `edit` gets the stored object (not to be changed) and returns the wanted one."""
        old = self.get(res, namespace, name)
        try:
            new = clone(edit(old.obj))
        except (AttributeError, KeyError, TypeError) as error:  # a patch whose values are of other types than ours
            raise refusals.bad_request(f"cannot apply the patch to {res.kind} {name}: {error}") from error
        self._envelope(res, namespace, new)
        if new["metadata"].get("name") != name:
            raise refusals.bad_request("the name of the object does not match the name on the URL")
        return self._store(res, old, new, sub=sub, dry_run=dry_run)

    def _store(self, res: Resource, old: Record, new: Obj, *, sub: str, dry_run: bool) -> Record:
        name, before, meta = old.obj["metadata"]["name"], old.obj["metadata"], new["metadata"]
        if meta.get("resourceVersion") not in (None, "", before["resourceVersion"]):
            raise refusals.conflict(res, name)
        if meta.get("uid") not in (None, "", before["uid"]) and not (res.custom and sub):
            immutable = f'Invalid value: "{meta["uid"]}": field is immutable'
            raise refusals.invalid(res, name, [("metadata.uid", "FieldValueInvalid", immutable)])
        meta["resourceVersion"] = before["resourceVersion"]
        for key in (
            "uid",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
        ):
            if key in before:
                meta[key] = before[key]
            else:
                meta.pop(key, None)
        self._check_name(res, meta)
        causes = prepare_update(res, old.obj, new, sub=sub) + _new_finalizers(before, new["metadata"])
        if causes:
            raise refusals.invalid(res, name, causes)
        if new == old.obj:
            return old
        if dry_run:
            return Record(new, old.version)
        if _may_go(new):
            return self.storage.remove(res, new)
        return self.storage.put(res, new)

    # -- delete ----------------------------------------------------------------------------------------------

    def delete(self, res: Resource, namespace: str, name: str, options: DeleteOptions) -> tuple[Record, bool]:
        """Returns the object as it is now, and whether it is gone already."""
        old = self.get(res, namespace, name)
        meta = old.obj["metadata"]
        for label, wanted, real in (("UID", options.uid, meta["uid"]),
                                    ("ResourceVersion", options.version,
                                    meta["resourceVersion"])):  # fmt: skip
            if wanted and wanted != real:
                raise refusals.conflict(res, name, _precondition(label, wanted, real))
        if options.dry_run:
            return old, False
        new = clone(old.obj)
        _mark(new, _grace(res, old.obj, options), options.propagation)
        if _may_go(new) and res.kind != "Namespace":
            return self.storage.remove(res, new), True
        if new == old.obj:
            return old, False
        if res.kind == "Namespace":
            new["status"] = {"phase": "Terminating"}
        return self.storage.put(res, new), False

    def forget(self, ref: Ref, res: Resource) -> None:
        """Remove without asking anyone; for the server's own controllers."""
        record = self.storage.get(ref)
        if record is not None:
            self.storage.remove(res, record.obj)


def _check_named(res: Resource, body: Obj) -> None:
    """Core kinds are decoded as what their path says; custom ones must say what they are."""
    if not body.get("kind"):
        raise refusals.bad_request(f"Object 'Kind' is missing in '{orjson.dumps(body).decode()[:500]}'")
    if not body.get("apiVersion"):
        wrong = "the API version in the data () does not match the expected API version"
        raise refusals.bad_request(f"{wrong} ({res.api_version})")


def _precondition(what: str, wanted: str, real: str) -> str:
    return f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {real}"


def _new_finalizers(before: Obj, after: Obj) -> list[tuple[str, str, str]]:
    if "deletionTimestamp" not in before:
        return []
    added = [item for item in after.get("finalizers") or () if item not in (before.get("finalizers") or ())]
    if not added:
        return []
    listed = ", ".join(f'"{item}"' for item in added)
    why = "no new finalizers can be added if the object is being deleted, found new finalizers"
    why = f"{why} []string{{{listed}}}"
    return [("metadata.finalizers", "FieldValueForbidden", f"Forbidden: {why}")]


def _may_go(obj: Obj) -> bool:
    """Nothing holds a deleted object any more: no finalizer, no grace left."""
    meta = obj["metadata"]
    return (
        "deletionTimestamp" in meta
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
        and not (obj.get("kind") == "Namespace" and (obj.get("spec") or {}).get("finalizers"))
    )


def _grace(res: Resource, obj: Obj, options: DeleteOptions) -> int:
    """Only Pods are deleted gracefully, and only those that a kubelet may be running."""
    if res.kind != "Pod":
        return 0
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
        return 0
    if options.grace is not None:
        return max(0, options.grace)
    return int(spec.get("terminationGracePeriodSeconds", 30))


def _mark(obj: Obj, grace: int, propagation: str) -> None:
    meta = obj["metadata"]
    extra = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(propagation)
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = timestamp(datetime.now(UTC) + timedelta(seconds=grace))
        meta["deletionGracePeriodSeconds"] = grace
        if "generation" in meta:
            meta["generation"] += 1
    elif grace < meta.get("deletionGracePeriodSeconds", 0):
        meta["deletionTimestamp"] = timestamp(datetime.now(UTC) + timedelta(seconds=grace))
        meta["deletionGracePeriodSeconds"] = grace
    else:
        extra = None
    if extra and extra not in (meta.get("finalizers") or ()):
        meta["finalizers"] = [*(meta.get("finalizers") or ()), extra]
