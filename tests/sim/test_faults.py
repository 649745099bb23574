"""Faults on request: each effect, its matchers and its end."""

from __future__ import annotations

import threading
import time

import pytest
import urllib3

from osb.sim import SimCluster
from tests.sim.conftest import MERGE, Api, Obj, pod, until, widget


def test_a_status_fault_answers_instead_of_executing_and_is_counted(sim: SimCluster, sim_api: Api) -> None:
    sim.add_fault(methods=["POST"], path="/configmaps", status=429, retry_after=3, count=2)
    for _ in range(2):
        answer = sim_api.call("POST", sim_api.maps(), {"metadata": {"name": "m"}})
        assert (answer.status, answer.body["reason"], answer.headers["Retry-After"]) == (429, "TooManyRequests", "3")
    assert sim_api.call("POST", sim_api.maps(), {"metadata": {"name": "m"}}).status == 201


def test_a_fault_may_be_added_and_removed_over_http(sim_api: Api) -> None:
    fault = sim_api.call("POST", "/_sim/faults", {"path": "/configmaps", "status": 503}).ok()
    assert sim_api.call("GET", sim_api.maps()).status == 503
    assert sim_api.call("GET", sim_api.pods()).status == 200
    assert sim_api.call("GET", "/_sim/faults").ok()["faults"][0]["hits"] == 1
    sim_api.call("DELETE", f"/_sim/faults/{fault['id']}").ok()
    assert sim_api.call("GET", sim_api.maps()).status == 200


@pytest.mark.parametrize("body", [{"colour": 1}, {"status": "503"}, {"path": "("}, []])
def test_a_nonsense_fault_is_refused(sim_api: Api, body: object) -> None:
    assert sim_api.call("POST", "/_sim/faults", body).status == 400


def test_latency_delays_the_answer(sim: SimCluster, sim_api: Api) -> None:
    sim.add_fault(path="/configmaps", latency=0.3)
    begun = time.monotonic()
    sim_api.call("GET", sim_api.maps()).ok()
    assert time.monotonic() - begun >= 0.3


def test_a_dropped_answer_leaves_the_write_done(sim: SimCluster, sim_api: Api) -> None:
    sim.add_fault(methods=["POST"], path="/configmaps", drop=True, count=1)
    with pytest.raises(urllib3.exceptions.HTTPError):
        sim_api.call("POST", sim_api.maps(), {"metadata": {"name": "m"}})
    assert sim_api.call("GET", sim_api.maps("m")).status == 200


def test_a_closed_connection_leaves_nothing_done(sim: SimCluster, sim_api: Api) -> None:
    sim.add_fault(methods=["POST"], path="/configmaps", close=True, count=1)
    with pytest.raises(urllib3.exceptions.HTTPError):
        sim_api.call("POST", sim_api.maps(), {"metadata": {"name": "m"}})
    assert sim_api.call("GET", sim_api.maps("m")).status == 404


def test_a_frozen_watch_is_silent_and_then_catches_up(sim: SimCluster, sim_api: Api) -> None:
    version = sim_api.call("GET", sim_api.widgets()).ok()["metadata"]["resourceVersion"]
    path = sim_api.widgets() + f"?watch=1&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=20"
    fault = sim.add_fault(path="/widgets", verbs=["watch"], freeze=True)
    lines: list[bytes] = []
    stream = sim_api.stream(path)
    reader = threading.Thread(target=lambda: lines.extend(_lines(stream)), daemon=True)
    reader.start()
    sim_api.call("POST", sim_api.widgets(), widget("w")).ok()
    reader.join(timeout=0.6)
    assert lines == []
    sim.clear_faults(fault)
    reader.join(timeout=5)
    assert b"ADDED" in lines[0]
    stream.close()


def _lines(stream: urllib3.BaseHTTPResponse) -> list[bytes]:
    return [next(stream.stream(65536))]


def test_watches_can_be_told_that_history_is_gone(sim: SimCluster, sim_api: Api) -> None:
    version = sim_api.call("POST", sim_api.widgets(), widget("w")).ok()["metadata"]["resourceVersion"]
    events: list[Obj] = []
    reader = threading.Thread(
        target=lambda: events.extend(sim_api.watch(sim_api.widgets(), seconds=20, resourceVersion=version))
    )
    reader.start()
    until(lambda: sim.stats().get("watch widgets"), "the watch is open")
    sim.add_fault(path="/widgets", verbs=["watch"], gone=True)
    reader.join(timeout=5)
    assert [event["object"]["code"] for event in events] == [410]
    (event,) = sim_api.watch(sim_api.widgets(), seconds=5, resourceVersion=version)
    assert event["object"]["reason"] == "Expired"


def test_a_stale_list_shows_the_past(sim: SimCluster, sim_api: Api) -> None:
    sim_api.call("POST", sim_api.maps(), {"metadata": {"name": "m"}, "data": {"a": "old"}}).ok()
    sim.add_fault(path="/configmaps", stale=True)
    sim_api.call("PATCH", sim_api.maps("m"), {"data": {"a": "new"}}, content=MERGE).ok()
    sim_api.call("POST", sim_api.maps(), {"metadata": {"name": "later"}}).ok()
    got = sim_api.call("GET", sim_api.maps()).ok()
    assert [item["data"] for item in got["items"]] == [{"a": "old"}]
    assert sim_api.call("GET", sim_api.maps("m")).ok()["data"] == {"a": "new"}


def test_faults_spare_the_kubelet_unless_they_name_it(sim: SimCluster, sim_api: Api) -> None:
    # Given a fault that refuses every write to pods but creation
    fault = sim.add_fault(path="/pods/", methods=["POST", "PATCH"], status=500)
    sim_api.call("POST", sim_api.pods(), pod("a")).ok()
    # Then the kubelet still makes them Ready
    until(lambda: sim_api.call("GET", sim_api.pods("a")).ok()["status"]["phase"] == "Running", "a runs")
    # And when it names the kubelet, they wait until the fault is gone
    sim.clear_faults(fault)
    fault = sim.add_fault(path="/pods/", methods=["POST"], agent="osb-sim-kubelet", status=500)
    sim_api.call("POST", sim_api.pods(), pod("b")).ok()
    until(lambda: sim_api.call("GET", "/_sim/faults").ok()["faults"][0]["hits"], "the kubelet meets the fault")
    assert "nodeName" not in sim_api.call("GET", sim_api.pods("b")).ok()["spec"]
    sim.clear_faults(fault)
    until(lambda: sim_api.call("GET", sim_api.pods("b")).ok()["status"]["phase"] == "Running", "b runs")


def test_requests_are_counted_by_verb_and_resource(sim: SimCluster, sim_api: Api) -> None:
    sim_api.call("DELETE", "/_sim/stats").ok()
    sim_api.call("POST", sim_api.widgets(), widget("w")).ok()
    sim_api.call("PATCH", sim_api.widgets("w/status"), {"status": {"phase": "Up"}}, content=MERGE).ok()
    stats = sim_api.call("GET", "/_sim/stats").ok()
    assert (stats["create widgets"], stats["patch widgets/status"]) == (1, 1)
    assert sim.stats()["create widgets"] == 1
    assert not any("binding" in key for key in stats if not key.startswith("kubelet "))


def test_running_watches_can_be_ended(sim: SimCluster, sim_api: Api) -> None:
    version = sim_api.call("GET", sim_api.widgets()).ok()["metadata"]["resourceVersion"]
    reader = threading.Thread(target=lambda: sim_api.watch(sim_api.widgets(), seconds=60, resourceVersion=version))
    reader.start()
    until(lambda: sim.stats().get("watch widgets"), "the watch is open")
    sim.disconnect()
    reader.join(timeout=5)
    assert not reader.is_alive()
