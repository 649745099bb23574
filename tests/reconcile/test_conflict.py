"""Two records claim one pod: nobody else gets it, the older sandbox keeps the address, and the conflict ends."""

from __future__ import annotations

from typing import Any

import pytest

from osb.api import names
from osb.kube.client import Kube
from osb.store.client import Store
from tests.doubles.passworld import Passes


@pytest.fixture
def disputed(store: Store, client: Kube) -> Any:
    """`a` and `b` both name the pod that `b` has; Redis was lost, so only the records tell."""
    one = Passes(store, client)
    one.warm(count=1)
    one.box("a", replicas=1, poolRef="other")
    one.box("b")
    one.pool_pass()
    record = one.get("batchsandbox", "b")["metadata"]["annotations"][names.ALLOC_STATUS]
    forged = {"metadata": {"annotations": {names.ALLOC_STATUS: record}}, "spec": {"poolRef": "warm"}}
    one.patch("batchsandbox", "a", forged)
    store.redis.flushall()
    one.sync()
    one.pool_pass()
    one.box_pass("a", turn=2.0)
    one.box_pass("b")
    yield one
    one.close()


def test_while_two_claim_a_pod_it_is_reserved_and_the_older_keeps_the_address(disputed: Passes) -> None:
    assert [entry.state for entry in disputed.entries().values() if entry.state != "free"] == ["conf"]
    for name in ("a", "b"):
        condition = disputed.condition("batchsandbox", name, names.QUARANTINED)
        assert condition is not None
        assert condition["reason"] == names.REASON_ALLOCATION_CONFLICT
    shown = [any(disputed.note(names.ENDPOINTS, name) or ()) for name in ("a", "b")]
    assert sum(shown) == 1


def test_when_one_claimant_is_gone_the_other_has_its_pod_again(disputed: Passes) -> None:
    disputed.delete("batchsandbox", "a")
    disputed.sync()
    disputed.pool_pass(times=2)
    disputed.sync()
    disputed.pool_pass(times=2)
    disputed.box_pass("b")
    held = list(disputed.entries().values())
    assert [(entry.state, entry.box.rpartition("/")[2]) for entry in held if entry.state == "held"] == [("held", "b")]
    assert disputed.condition("batchsandbox", "b", names.QUARANTINED) is None
    assert any(disputed.note(names.ENDPOINTS, "b") or ())
