"""The body of a new pool pod: the template as it is, plus what is ours (spec/pool.md 9.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osb.api import names
from osb.api.pool import PoolSpec
from osb.errors import InvalidInput

_OWN_LABELS = (
    names.LABEL_BOX_NAME,
    names.LABEL_POD_INDEX,
    names.LABEL_SUSPECT,
    names.LABEL_EVICT,
)
_OWN_ANNOTATIONS = (names.RESTART_RECORD, names.ADOPTED)


def pool_pod(pool: PoolSpec, revision: str, name: str) -> dict[str, Any]:
    """Labels, annotations, finalizers and spec of the template; our name, labels and owner. Shares its values.

    Labels and annotations that say who owns a pod or what happened to it cannot come from a template. Raises
    InvalidInput when there is no template.
    """
    if pool.template is None:
        raise InvalidInput("spec.template", "is missing, so no pod can be made")
    meta = _part(pool.template, "metadata")
    labels = {k: v for k, v in _part(meta, "labels").items() if k not in _OWN_LABELS}
    labels[names.LABEL_POOL_NAME] = pool.name
    labels[names.LABEL_POOL_REVISION] = revision
    metadata: dict[str, Any] = {"name": name, "namespace": pool.namespace, "labels": labels}
    annotations = {k: v for k, v in _part(meta, "annotations").items() if k not in _OWN_ANNOTATIONS}
    if annotations:
        metadata["annotations"] = annotations
    if meta.get("finalizers"):
        metadata["finalizers"] = meta["finalizers"]
    metadata["ownerReferences"] = [owner_reference(pool)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": pool.template.get("spec") or {},
    }


def owner_reference(pool: PoolSpec) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND_POOL,
        "name": pool.name,
        "uid": pool.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _part(obj: Mapping[str, Any], member: str) -> Mapping[str, Any]:
    value = obj.get(member)
    return value if isinstance(value, dict) else {}
