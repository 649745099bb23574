"""Bodies of new pool pods."""

from __future__ import annotations

import pytest

from osb.api import names
from osb.api.pool import PoolSpec
from osb.decide.poolpod import pool_pod
from osb.errors import InvalidInput


def test_a_new_pod_is_the_template_as_it_is_plus_what_is_ours() -> None:
    template = {
        "metadata": {
            "labels": {"app": "x", names.LABEL_EVICT: "true", names.LABEL_POOL_NAME: "other"},
            "annotations": {"note": "y"},
            "finalizers": ["z"],
        },
        "spec": {"containers": [], "fieldOfTheFuture": {"a": 1}},
    }
    spec = PoolSpec(namespace="ns", name="warm", uid="pool-uid", template=template)
    body = pool_pod(spec, "rev", "warm-abcde")
    assert body["metadata"]["labels"] == {
        "app": "x",
        names.LABEL_POOL_NAME: "warm",
        names.LABEL_POOL_REVISION: "rev",
    }
    assert (body["metadata"]["name"], body["metadata"]["annotations"]) == ("warm-abcde", {"note": "y"})
    assert body["metadata"]["finalizers"] == ["z"]
    assert body["spec"] == template["spec"]
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("pool-uid", True, True)


def test_without_a_template_there_is_no_body() -> None:
    with pytest.raises(InvalidInput, match=r"spec\.template"):
        pool_pod(PoolSpec(namespace="ns", name="warm"), "rev", "warm-abcde")
