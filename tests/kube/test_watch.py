"""A watch under every fault: each ends in time, with its events delivered and a reason to act on."""

from __future__ import annotations

import threading
import time

import orjson
import pytest

from osb.errors import ApiError, Gone, Unavailable
from osb.kube import watch
from osb.kube.watch import _take_chunks
from tests.doubles.http_fault import drop, lines, raw, silent, status, stream
from tests.doubles.waiting import wait_until


def pod(version, name="p"):
    return {"metadata": {"name": name, "resourceVersion": version}}


def error(code, reason):
    return lines([("ERROR", {"kind": "Status", "code": code, "reason": reason, "message": "its words"})])


def drained(kube, **kwargs):
    return [event for batch in kube.watch("pod", version="1", **kwargs) for event in batch]


def test_events_and_bookmarks_come_in_order_and_a_clean_end_just_ends(serving):
    server, kube = serving(
        [
            stream(
                lines([("ADDED", pod("2")), ("MODIFIED", pod("3"))]),
                lines([("BOOKMARK", pod("9")), ("DELETED", pod("10"))]),
            )
        ]
    )
    events = drained(kube, labels="a=b")
    assert [(event.type, event.version) for event in events] == [
        ("ADDED", "2"),
        ("MODIFIED", "3"),
        ("BOOKMARK", "9"),
        ("DELETED", "10"),
    ]
    assert "watch=true&allowWatchBookmarks=true&resourceVersion=1" in server.requests[0].path
    assert "labelSelector=a%3Db" in server.requests[0].path


def test_the_server_is_asked_to_end_after_a_random_time_between_50_and_70_seconds(serving):
    server, kube = serving([stream()])
    for _ in range(12):
        drained(kube)
    asked = {int(request.path.split("timeoutSeconds=")[1].split("&")[0]) for request in server.requests}
    assert all(50 <= seconds <= 70 for seconds in asked)
    assert len(asked) > 1


def test_events_that_arrive_together_come_as_one_batch(serving):
    _, kube = serving([stream(*(lines([("ADDED", pod(str(n)))]) for n in range(200)))])
    batches = list(kube.watch("pod", version="1"))
    assert sum(map(len, batches)) == 200
    assert all(batches)
    assert len(batches) < 200


def test_an_event_cut_into_many_chunks_is_put_together_again(serving):
    line = lines([("ADDED", pod("2", "x" * 300))])
    _, kube = serving([stream(*(line[at : at + 7] for at in range(0, len(line), 7)))])
    assert [event.version for event in drained(kube)] == ["2"]


def test_an_answer_without_chunks_is_read_too(serving):
    _, kube = serving([raw(lines([("ADDED", pod("2")), ("ADDED", pod("3"))]))])
    assert [event.version for event in drained(kube)] == ["2", "3"]


@pytest.mark.parametrize("answer", [status(410, "Expired"), stream(error(410, "Expired")), stream(error(410, "Gone"))])
def test_an_expired_version_as_status_or_as_event_is_gone(serving, answer):
    _, kube = serving([answer])
    with pytest.raises(Gone):
        drained(kube)


def test_events_before_an_error_event_are_delivered_first(serving):
    step = threading.Event()
    _, kube = serving([stream(lines([("ADDED", pod("2"))]), step, error(410, "Expired"))])
    watching = kube.watch("pod", version="1")
    assert next(watching)[0].version == "2"
    step.set()
    with pytest.raises(Gone):
        next(watching)


def test_any_other_error_event_is_an_api_error(serving):
    _, kube = serving([stream(error(500, "InternalError"))])
    with pytest.raises(ApiError, match="its words"):
        drained(kube)


@pytest.mark.parametrize(
    "broken",
    [
        stream(b'{"type":"ADDED","object":{"meta'),
        stream(b"not json\n"),
        stream(b'{"no":"type"}\n'),
        stream(b"[]\n"),
    ],
    ids=["half a line", "no JSON", "no event", "a list"],
)
def test_a_line_that_cannot_be_read_ends_the_watch_as_unavailable(serving, broken):
    _, kube = serving([broken])
    with pytest.raises(Unavailable):
        drained(kube)


def test_a_server_that_closes_without_the_last_chunk_has_just_ended(serving):
    _, kube = serving([stream(lines([("ADDED", pod("2"))]), ends=False)])
    assert [event.version for event in drained(kube)] == ["2"]


def test_a_server_that_closes_at_once_is_unavailable(serving):
    _, kube = serving([drop()])
    with pytest.raises(Unavailable):
        drained(kube)


@pytest.mark.parametrize("answer", [silent(), stream(lines([("ADDED", pod("2"))]), None, ends=False)])
def test_silence_longer_than_the_servers_own_time_ends_the_watch(serving, monkeypatch, answer):
    monkeypatch.setattr(watch, "SERVER_TIMEOUT", (0, 0))
    monkeypatch.setattr(watch, "GRACE", 0.4)
    _, kube = serving([answer])
    start = time.monotonic()
    with pytest.raises(Unavailable):
        drained(kube)
    assert time.monotonic() - start < 20  # a watch lasts a minute


def test_a_server_that_dribbles_past_its_time_is_left(serving, monkeypatch):
    monkeypatch.setattr(watch, "SERVER_TIMEOUT", (0, 0))
    monkeypatch.setattr(watch, "GRACE", 0.3)
    tick = threading.Event()
    tick.wait = lambda _: threading.Event.wait(tick, 0.1)  # type: ignore[method-assign]  # a clock for the double
    parts = [part for n in range(30) for part in (tick, lines([("BOOKMARK", pod(str(n)))]))]
    _, kube = serving([stream(*parts)])
    with pytest.raises(Unavailable, match="not ended"):
        drained(kube)


def test_a_stop_ends_a_silent_watch_within_a_second_and_quietly(serving):
    # Given a watch that got one event and then silence
    _, kube = serving([stream(lines([("ADDED", pod("2"))]), None, ends=False)])
    stop = threading.Event()
    got: list[str] = []

    def follow() -> None:
        for batch in kube.watch("pod", version="1", stop=stop):
            got.extend(event.version for event in batch)
        got.append("ended")

    reader = threading.Thread(target=follow)
    reader.start()
    wait_until(lambda: got)

    # When it is asked to stop
    stop.set()
    reader.join(10)

    # Then it ends long before the server would end it, without an error
    assert got == ["2", "ended"]


def test_a_watch_that_is_stopped_before_it_starts_asks_nothing(serving):
    server, kube = serving([stream()])
    stop = threading.Event()
    stop.set()
    assert drained(kube, stop=stop) == []
    assert server.requests == []


def test_watches_do_not_use_up_the_connections_of_other_calls(serving):
    def script(request):
        return stream(None, ends=False) if "watch=true" in request.path else raw(orjson.dumps({"ok": True}))

    server, kube = serving(script)
    stop = threading.Event()
    watches = [threading.Thread(target=lambda: list(kube.watch("pod", version="1", stop=stop))) for _ in range(20)]
    for one in watches:
        one.start()
    assert server.wait_for(20)
    assert kube.get("pod", "n", "p") == {"ok": True}
    stop.set()
    for one in watches:
        one.join(5)
    assert not any(one.is_alive() for one in watches)


@pytest.mark.parametrize("cut", range(1, 24))
def test_chunks_are_found_wherever_the_bytes_are_cut(cut):
    wire = b"3\r\nabc\r\n5;x=y\r\nde\r\nf\r\n0\r\n\r\n"
    first, held, done = _take_chunks(wire[:cut])
    second, rest, finished = _take_chunks(held + wire[cut:]) if not done else (b"", b"", True)
    assert first + second == b"abcde\r\nf"
    assert finished
    assert rest == b""
