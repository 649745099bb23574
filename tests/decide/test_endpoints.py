"""Endpoints of a sandbox whose record grows grant by grant."""

from __future__ import annotations

from osb.decide.status import endpoints
from tests.doubles.boxes import box, pod, view


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
