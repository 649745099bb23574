"""Events are merged, limited and capped, show no objects, and never get in the way."""

from __future__ import annotations

import threading

import pytest

from osb.kube import events
from osb.kube.events import BURST, EventRecorder, capped
from osb.obs import metrics
from tests.doubles.http_fault import json, status

POOL = {
    "kind": "Pool",
    "apiVersion": "sandbox.opensandbox.io/v1alpha1",
    "metadata": {"name": "warm", "namespace": "n", "uid": "u1"},
}


@pytest.fixture
def recording(serving):
    made: list[EventRecorder] = []

    def make(script, **kwargs):
        server, kube = serving(script)
        made.append(EventRecorder(kube, "someone", **kwargs))
        return server, made[-1]

    yield make
    for recorder in made:
        recorder.close()


def test_an_event_names_its_object_and_the_references_source(recording):
    server, recorder = recording([json({})])
    recorder.emit(POOL, "Normal", "SuccessfulCreate", "Created pool pod a")
    assert recorder.flush()
    body = server.requests[0].json
    assert server.requests[0].path == "/api/v1/namespaces/n/events"
    assert body["involvedObject"] == {
        "kind": "Pool",
        "apiVersion": "sandbox.opensandbox.io/v1alpha1",
        "namespace": "n",
        "name": "warm",
        "uid": "u1",
    }
    assert (body["source"], body["count"]) == ({"component": "pool-controller"}, 1)
    assert (body["type"], body["reason"], body["message"]) == (
        "Normal",
        "SuccessfulCreate",
        "Created pool pod a",
    )


def test_repeats_are_merged_into_one_event_with_a_count(recording):
    server, recorder = recording([json({})])
    for _ in range(50):
        recorder.emit(POOL, "Warning", "FailedCreate", "quota")
    assert recorder.flush()
    assert [request.method for request in server.requests] == ["POST", "PATCH"]
    assert server.requests[1].json["count"] == 50
    assert server.requests[1].path.endswith(server.requests[0].json["metadata"]["name"])


def test_a_repeat_is_written_at_most_every_thirty_seconds(recording):
    now = [0.0]
    server, recorder = recording([json({})], clock=lambda: now[0])
    recorder._tell(said := said_of(POOL, "x"))
    for second in (1, 29, 31, 40, 62):
        now[0] = float(second)
        recorder._tell(said)
    assert [request.method for request in server.requests] == ["POST", "PATCH", "PATCH"]
    assert [request.json["count"] for request in server.requests[1:]] == [4, 6]


def said_of(obj, message):
    from datetime import UTC, datetime

    return events._Said(events._reference(obj), "Normal", "R", message, "c", datetime.now(UTC))


def test_an_event_that_expired_meanwhile_is_created_anew(recording):
    server, recorder = recording([json({}), status(404, "NotFound"), json({})])
    recorder.emit(POOL, "Normal", "R", "m")
    recorder.emit(POOL, "Normal", "R", "m")
    assert recorder.flush()
    assert [request.method for request in server.requests] == ["POST", "PATCH", "POST"]


def test_one_object_cannot_flood_and_others_are_still_heard(recording):
    server, recorder = recording([json({})], clock=lambda: 0.0)
    other = {"kind": "Pool", "namespace": "n", "name": "calm", "uid": "u2"}
    dropped = metrics.value("opensandbox_events_total", result="dropped")
    for number in range(100):
        recorder.emit(POOL, "Normal", "R", f"message {number}")
    recorder.emit(other, "Normal", "R", "here I am")
    assert recorder.flush()
    assert len(server.requests) == BURST + 1
    assert server.requests[-1].json["involvedObject"]["name"] == "calm"
    assert metrics.value("opensandbox_events_total", result="dropped") == dropped + 100 - BURST


@pytest.mark.parametrize("answer", [status(403, "Forbidden"), status(404, "NotFound"), status(500, "InternalError")])
def test_a_refused_event_is_dropped_and_counted_and_nothing_is_raised(recording, answer):
    _, recorder = recording([answer])
    dropped = metrics.value("opensandbox_events_total", result="dropped")
    recorder.emit(POOL, "Normal", "R", "m")
    assert recorder.flush()
    assert metrics.value("opensandbox_events_total", result="dropped") == dropped + 1


def test_a_full_queue_drops_instead_of_blocking(recording):
    hold = threading.Event()

    def script(request):
        hold.wait(5)
        return json({})

    _, recorder = recording(script, limit=3)
    dropped = metrics.value("opensandbox_events_total", result="dropped")
    for number in range(20):
        recorder.emit(POOL, "Normal", "R", f"m{number}")
    assert metrics.value("opensandbox_events_total", result="dropped") >= dropped + 16
    hold.set()


def test_a_long_list_of_names_is_cut_to_1000_bytes_and_says_how_many_are_missing():
    names = [f"pod-{number:04}" for number in range(300)]
    text = capped(f"Allocated 300 pod(s) to sandbox b: [{', '.join(names)}]")
    assert len(text) <= 1000
    shown = text.count("pod-")
    assert text.endswith(f"... and {300 - shown} more")


def test_a_long_text_is_cut_and_says_so():
    text = capped("ü" * 5000)
    assert len(text.encode()) <= 1000
    assert text.endswith("more characters")


def test_an_event_never_shows_a_token_or_a_whole_pod(recording):
    server, recorder = recording([json({})])
    recorder.emit(POOL, "Warning", "FailedCreate", "failed: Authorization: Bearer abcdef123456 " + "pod {...} " * 500)
    assert recorder.flush()
    message = server.requests[0].json["message"]
    assert "abcdef123456" not in message
    assert len(message.encode()) <= 1024
