"""Small objects that tests start from; `JSON` is anything that may stand in a field."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import strategies as st

from osb.api import names

CREATED = "2026-01-31T08:00:00Z"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def pool(name: str = "warm", *, spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """A sound Pool; `spec` members replace the default ones."""
    base: dict[str, Any] = {
        "template": {"spec": {"containers": [{"name": "main", "image": "img:1"}]}},
        "capacitySpec": {"bufferMin": 1, "bufferMax": 4, "poolMin": 0, "poolMax": 10},
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND_POOL,
        "metadata": {
            "name": name,
            "namespace": "boxes",
            "uid": "pool-uid",
            "resourceVersion": "7",
            "generation": 2,
            "creationTimestamp": CREATED,
            **meta,
        },
        "spec": {**base, **(spec or {})},
    }


def box(
    name: str = "b7",
    *,
    spec: dict[str, Any] | None = None,
    record: dict[str, Any] | str | None = None,
    release: list[str] | None = None,
    released: list[str] | None = None,
    endpoints: list[str] | None = None,
    status: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    **meta: Any,
) -> dict[str, Any]:
    """A pooled sandbox of 3; records are given as data or as raw text."""
    noted = dict(annotations or {})
    if record is not None:
        noted[names.ALLOC_STATUS] = record if isinstance(record, str) else orjson.dumps(record).decode()
    for key, value in (
        (names.ALLOC_RELEASE, {"pods": release} if release is not None else None),
        (names.ALLOC_RELEASED, {"pods": released} if released is not None else None),
        (names.ENDPOINTS, endpoints),
    ):
        if value is not None:
            noted[key] = orjson.dumps(value).decode()
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND_BOX,
        "metadata": {
            "name": name,
            "namespace": "boxes",
            "uid": "box-uid",
            "resourceVersion": "11",
            "generation": 4,
            "creationTimestamp": CREATED,
            "annotations": noted,
            **meta,
        },
        "spec": {"replicas": 3, "poolRef": "warm", **(spec or {})},
        "status": status or {},
    }
