"""Bodies of pods that a sandbox makes itself, and the template that a pooled pod leaves behind when paused.

In: a spec and a slot; or a raw pod. Out: plain dicts, fresh copies. Order of a body: template, the slot's
strategic patch, images of a resume, then everything that is ours (spec/batchsandbox.md 9.3, 9.4;
spec/pause-resume-snapshot.md). Next: `osb.decide.batchpods` puts a body into a `CreatePod`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import orjson

from osb.api import names, podtemplate, smp
from osb.api.batchsandbox import BoxSpec
from osb.api.record import derived
from osb.decide.boxslots import pod_name
from osb.errors import InvalidInput

LABEL_LIMIT = 63
# Labels that say who owns a pod; a template or patch cannot claim them.
OWN_LABELS = (
    names.LABEL_BOX_NAME,
    names.LABEL_POD_INDEX,
    names.LABEL_POOL_NAME,
    names.LABEL_POOL_REVISION,
    names.LABEL_SUSPECT,
    names.LABEL_EVICT,
)
_TOKEN_VOLUME = "kube-api-access-"
_LIVE_ONLY = (
    "nodeName",
    "ephemeralContainers",
    "priority",
    "hostname",
    "schedulingGates",
    "serviceAccount",
    "preemptionPolicy",
)
_DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def label_value(box: str) -> str:
    """The sandbox's name as a label value, derived when longer than 63."""
    return derived(box, LABEL_LIMIT)


def build(spec: BoxSpec, slot: int) -> dict[str, Any]:
    """The pod of `slot`.

    Raises InvalidInput (`spec.template` or `spec.shardPatches[i]`) when it cannot be built.
    """
    template = spec.template
    if template is None:
        raise InvalidInput("spec.template", "is not set, so no pod can be made")
    meta = _part(template, "metadata")
    pod: dict[str, Any] = {
        "metadata": {k: deepcopy(meta[k]) for k in ("labels", "annotations", "finalizers") if meta.get(k)},
        "spec": deepcopy(_part(template, "spec")),
    }
    pod = _patched(spec, slot, pod)
    _use_images(pod["spec"], resumed_images(spec))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _own_metadata(spec, slot, pod),
        "spec": pod["spec"],
    }


def patched(spec: BoxSpec, slot: int) -> bool:
    """True when a shard patch changes the pod of `slot`."""
    return slot < len(spec.shard_patches) and spec.shard_patches[slot] not in (None, {})


def owner_reference(spec: BoxSpec) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND_BOX,
        "name": spec.name,
        "uid": spec.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def resumed_images(spec: BoxSpec) -> Mapping[str, str]:
    """Container -> image of the annotation `resumed-from`; empty when absent or unreadable."""
    images = resumed_from(spec).get("images")
    if not isinstance(images, dict):
        return {}
    return {k: v for k, v in images.items() if isinstance(v, str) and v}


def resumed_from(spec: BoxSpec) -> dict[str, Any]:
    """The annotation `resumed-from` as an object; empty when absent or unreadable."""
    try:
        data = orjson.loads(spec.annotations.get(names.RESUMED_FROM) or "{}")
    except orjson.JSONDecodeError:
        return {}
    return data if isinstance(data, dict) else {}


def solidify(
    pod: Mapping[str, Any], *, pool_template: Mapping[str, Any] | None = None, pool_revision: str = ""
) -> dict[str, Any]:
    """The template of a pooled pod that is being paused.

    It is the pool's own template while the pod carries the pool's current revision; else it is the live pod
    without what the API server, admission and we have put into it: submitted again, such fields are refused,
    injected twice or stale.
    """
    meta = _part(pod, "metadata")
    labels: Mapping[str, str] = _part(meta, "labels")
    if pool_template is not None and pool_revision and labels.get(names.LABEL_POOL_REVISION) == pool_revision:
        source = deepcopy(dict(pool_template))
        return _without_empty(source, _part(_part(source, "metadata"), "labels"), _part(source, "metadata"))
    known: Mapping[str, Any] = _part(_part(pool_template or {}, "metadata"), "annotations")
    annotations = {
        key: value
        for key, value in _part(meta, "annotations").items()
        if key in known or "/" not in key or key.startswith("opensandbox.io/")
    }
    body = {"spec": sanitised(_part(pod, "spec"))}
    return _without_empty(body, labels, {"annotations": annotations})


def sanitised(live: Mapping[str, Any]) -> dict[str, Any]:
    """A live pod spec as something that may be created again."""
    spec = {k: deepcopy(v) for k, v in live.items() if k not in _LIVE_ONLY}
    volumes = [v for v in spec.get("volumes") or () if not str(v.get("name", "")).startswith(_TOKEN_VOLUME)]
    _keep(spec, "volumes", volumes)
    for group in ("containers", "initContainers"):
        for container in spec.get(group) or ():
            mounts = container.get("volumeMounts") or ()
            mounts = [m for m in mounts if not str(m.get("name", "")).startswith(_TOKEN_VOLUME)]
            _keep(container, "volumeMounts", mounts)
    _keep(spec, "tolerations", [t for t in spec.get("tolerations") or () if not _injected(t)])
    return spec


def _injected(toleration: Mapping[str, Any]) -> bool:
    return toleration.get("key") in _DEFAULT_TOLERATIONS and toleration.get("tolerationSeconds") == 300


def _keep(holder: dict[str, Any], key: str, items: list[Any]) -> None:
    if items:
        holder[key] = items
    else:
        holder.pop(key, None)


def _without_empty(body: Mapping[str, Any], labels: Mapping[str, str], meta: Mapping[str, Any]) -> dict[str, Any]:
    """`body` with our labels taken out; empty maps become absent."""
    kept = {key: value for key, value in labels.items() if key not in OWN_LABELS}
    metadata: dict[str, Any] = {}
    if kept:
        metadata["labels"] = kept
    if meta.get("annotations"):
        metadata["annotations"] = dict(meta["annotations"])
    if meta.get("finalizers"):
        metadata["finalizers"] = list(meta["finalizers"])
    return {**({"metadata": metadata} if metadata else {}), "spec": body.get("spec") or {}}


def _patched(spec: BoxSpec, slot: int, pod: dict[str, Any]) -> dict[str, Any]:
    if not patched(spec, slot):
        return pod
    patch, where = spec.shard_patches[slot], f"spec.shardPatches[{slot}]"
    for field, message in podtemplate.misfits(smp.read(patch, at=where), podtemplate.PATCH, where):
        raise InvalidInput(field, message)
    merged = smp.merge(pod, patch, schema="pod", at=where)
    if not isinstance(merged.get("spec"), dict) or not isinstance(merged.get("metadata") or {}, dict):
        raise InvalidInput(where, "leaves no pod: metadata and spec must be objects")
    return merged


def _use_images(spec: dict[str, Any], images: Mapping[str, str]) -> None:
    """Snapshot images win over template and patch, or the sandbox would start from its original content."""
    for container in spec.get("containers") or ():
        if isinstance(container, dict) and container.get("name") in images:
            container["image"] = images[container["name"]]


def _own_metadata(spec: BoxSpec, slot: int, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Labels, annotations and finalizers as given; name, owner and our labels as they must be."""
    meta = _part(pod, "metadata")
    labels = {k: v for k, v in _part(meta, "labels").items() if k not in OWN_LABELS}
    labels |= {names.LABEL_BOX_NAME: label_value(spec.name), names.LABEL_POD_INDEX: str(slot)}
    annotations = dict(_part(meta, "annotations"))
    name = pod_name(spec.name, slot)
    if label_value(spec.name) != spec.name or name != f"{spec.name}-{slot}":
        annotations[names.FULL_NAME] = f"{spec.name}-{slot}"
    own: dict[str, Any] = {
        "name": name,
        "namespace": spec.namespace,
        "labels": labels,
        "ownerReferences": [*_other_owners(spec, meta), owner_reference(spec)],
    }
    if annotations:
        own["annotations"] = annotations
    if meta.get("finalizers"):
        own["finalizers"] = list(meta["finalizers"])
    return own


def _other_owners(spec: BoxSpec, meta: Mapping[str, Any]) -> list[Any]:
    """Owners that a patch added, except a second controller: with two, the API server refuses the pod for ever."""
    return [
        o
        for o in meta.get("ownerReferences") or ()
        if isinstance(o, dict) and not o.get("controller") and o.get("uid") != spec.uid
    ]


def _part(obj: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = obj.get(key)
    return value if isinstance(value, dict) else {}
