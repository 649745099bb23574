"""Endpoints of a sandbox whose record grows grant by grant."""

from __future__ import annotations

from typing import Any

import pytest

from osb.api import names
from osb.api.batchsandbox import BoxSpec
from osb.decide.batch import plan
from osb.decide.endpoints import endpoints
from osb.decide.plan import EmitEvent, PublishEndpoints
from tests.doubles.boxes import box, of, pod, view


def test_a_second_grant_publishes_the_addresses_of_the_slots_it_adds() -> None:
    # Given a sandbox of three whose record names two pods, and a third pod that is granted now
    record = {"pods": ["w0", "w1"], "poolRef": "warm", "seq": 1}
    spec = box(poolRef="warm", replicas=3, record=record)
    slots = {n: pod(f"w{n}", ip=f"10.0.0.{n}") for n in range(3)}
    # Then all three addresses are published in the same patch
    assert endpoints(view(spec, slots=slots)) == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]


def test_a_recorded_slot_without_its_pod_keeps_its_place_as_an_empty_address() -> None:
    record = {"pods": ["w0", "w1"], "poolRef": "warm", "seq": 1}
    spec = box(poolRef="warm", replicas=3, record=record)
    assert endpoints(view(spec, slots={0: pod("w0", ip="10.0.0.1")})) == ["10.0.0.1", ""]


SERVED = {"poolRef": "warm", "record": {"pods": ["w0"], "poolRef": "warm"}, "status": {"phase": "Succeed", "ready": 1}}


def warned(spec: BoxSpec, *addresses: str) -> bool:
    """Whether the next pass publishes and tells that somebody edited the endpoints."""
    slots = {n: pod(f"w{n}", ip=ip) for n, ip in enumerate(addresses)}
    done = plan(view(spec, slots=slots))
    assert of(done, PublishEndpoints)
    return any(event.reason == names.EVENT_ENDPOINTS_REPAIRED for event in of(done, EmitEvent))


@pytest.mark.parametrize(
    "edited",
    [{"endpoints": ["6.6.6.6"]}, {}, {"annotations": {names.ENDPOINTS: "{broken"}}],
    ids=["another address", "removed", "unreadable"],
)
def test_endpoints_that_somebody_edited_are_told(edited: dict[str, Any]) -> None:
    assert warned(box(**SERVED, **edited), "10.0.0.1")


def test_a_first_or_a_missing_address_is_no_edit() -> None:
    starting = {**SERVED, "status": {"phase": "Pending"}}
    assert not warned(box(**starting), "10.0.0.1")
    assert not warned(box(**SERVED, endpoints=[""]), "10.0.0.1")
    assert not warned(box(**SERVED, endpoints=["10.0.0.1"]))
