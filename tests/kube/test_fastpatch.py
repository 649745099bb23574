"""The hand-spoken PATCH answers and fails exactly like the ordinary way, and never sends anything twice."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from urllib3.exceptions import ProtocolError
from urllib3.util.connection import is_connection_dropped

from osb.errors import ApiError, Refused, Unavailable
from osb.kube.fastpatch import receive
from tests.doubles.http_fault import FaultServer, drop, json, status, stream
from tests.doubles.together import together
from tests.doubles.waiting import wait_until

BODY = {"metadata": {"annotations": {"a": "b"}}}


def patch(kube, name="p", **kwargs):
    return kube.patch("pod", "n", name, BODY, **kwargs)


@pytest.fixture(params=["own", "urllib3"])
def way(request):
    return request.param


@pytest.fixture
def going(serving, way):
    def make(script, **kwargs):
        server, kube = serving(script, **kwargs)
        session = kube.transport.session()
        assert session._fast, "the scripted server is reached directly"
        session._fast = way == "own"
        return server, kube

    return make


@pytest.mark.parametrize(
    "answer",
    [json({"ok": True}), stream(b'{"ok"', b":true}"), stream(b'{"ok":true}', ends=True)],
    ids=["length", "chunks", "one chunk"],
)
def test_an_answer_is_read_in_every_form(going, answer):
    server, kube = going([answer])
    assert patch(kube) == {"ok": True}
    request = server.requests[0]
    assert (request.method, request.path, request.json) == ("PATCH", "/api/v1/namespaces/n/pods/p", BODY)
    assert request.headers["Content-Type"] == "application/merge-patch+json"
    assert request.headers["Authorization"] == "Bearer t0ken"
    assert request.headers["User-Agent"] == "sandbox-k8s-controller/1.0"
    assert request.headers["Host"] == server.url.removeprefix("http://")


@pytest.mark.parametrize(
    "answer",
    [status(409, "Conflict", "words"), status(422, "Invalid", "words"), status(429, "x", Retry_After="0.2"), drop()],
)
def test_an_error_has_the_same_meaning_either_way(going, way, answer):
    server, kube = going([answer])
    with pytest.raises(ApiError) as caught:
        patch(kube)
    assert len(server.requests) == 1
    assert caught.value.definite == (caught.value.status != 0)
    assert caught.value.retry_after == (0.2 if caught.value.status == 429 else None)


def test_a_connection_is_used_again_and_shared_with_other_calls(going):
    ports = set()

    def script(request):
        def answer(handler):
            ports.add(handler.client_address)
            json({"ok": True})(handler)

        return answer

    _, kube = going(script)
    for _ in range(5):
        patch(kube)
        kube.get("pod", "n", "p")
    assert len(ports) == 1


def test_a_connection_that_the_server_closed_while_idle_is_not_used(going):
    def close_after(handler):
        json({"ok": True})(handler)
        handler.close_connection = True

    server, kube = going([close_after])
    pool = kube.transport.session()._pool
    for _ in range(5):
        assert patch(kube) == {"ok": True}
        wait_until(lambda: is_connection_dropped(pool.pool.queue[-1]))  # the end of the connection has arrived
    assert len(server.requests) == 5


def test_a_connection_that_the_server_says_it_closes_is_not_used_again(going):
    server, kube = going([json({"ok": True}, Connection="close")])
    assert patch(kube) == {"ok": True}
    assert patch(kube) == {"ok": True}
    assert len(server.requests) == 2


def test_a_401_takes_the_new_token_here_too(going, settings_for):
    def script(request):
        return json({"ok": True}) if request.headers["Authorization"] == "Bearer new" else status(401, "Unauthorized")

    server, kube = going(script)
    settings_for(server.url, token="new")
    assert patch(kube) == {"ok": True}


def test_a_server_that_is_not_there_is_definite(going):
    server, kube = going([json({})])
    server.close()
    with pytest.raises(Unavailable) as caught:
        patch(kube)
    assert caught.value.definite


def test_many_threads_patch_at_once(going):
    _, kube = going(lambda request: json({"path": request.path}))
    wrong = []

    def work(number: int) -> None:
        for index in range(20):
            if not patch(kube, f"p{number}-{index}")["path"].endswith(f"p{number}-{index}"):
                wrong.append(number)

    together(work, range(10))
    assert not wrong


def test_a_line_break_in_a_token_cannot_add_headers(going):
    _, kube = going([json({})])
    kube.transport.session().token = lambda: "Bearer a\r\nX-Evil: 1"
    with pytest.raises((ValueError, Refused)):
        patch(kube)


def test_behind_a_proxy_patches_go_the_ordinary_way(serving, monkeypatch):
    proxy = FaultServer([json({"ok": True})])
    monkeypatch.setenv("http_proxy", proxy.url)
    try:
        server, kube = serving([json({})])
        monkeypatch.setenv("no_proxy", "")
        assert not kube.transport.session()._fast
        assert patch(kube) == {"ok": True}
        assert proxy.requests[0].path == f"{server.url}/api/v1/namespaces/n/pods/p"
    finally:
        proxy.close()


# -- the wire ----------------------------------------------------------------------------------------------------


@pytest.fixture
def wire() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.settimeout(5)
    yield left, right
    left.close()
    right.close()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nTrailer: 1\r\n\r\n"
COUNTED = b"HTTP/1.1 201 Created\r\ncontent-length: 5\r\nRETRY-AFTER: 3\r\n\r\nabcde"


@pytest.mark.parametrize("whole", [CHUNKED, COUNTED, b"HTTP/1.1 100 Continue\r\n\r\n" + COUNTED])
def test_an_answer_may_arrive_cut_anywhere(wire, whole):
    ours, theirs = wire
    for cut in range(1, len(whole)):
        theirs.sendall(whole[:cut])
        threading.Timer(0, theirs.sendall, (whole[cut:],)).start()
        reply = receive(ours)
        assert reply.data == b"abcde"
        assert reply.keep


@pytest.mark.parametrize(
    "broken",
    [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", CHUNKED[:-8], b"SSH-2.0 hello\r\n\r\n"],
)
def test_an_answer_that_breaks_off_or_is_none_is_an_error(wire, broken):
    ours, theirs = wire
    theirs.sendall(broken)
    theirs.close()
    with pytest.raises(ProtocolError):
        receive(ours)


@pytest.mark.parametrize(
    "odd",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 5\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcdeHTTP/1.1 200 stray",
    ],
)
def test_after_anything_doubtful_the_connection_is_not_kept(wire, odd):
    ours, theirs = wire
    theirs.sendall(odd)
    reply = receive(ours)
    assert (reply.data, reply.keep) == (b"abcde", False)


def test_an_answer_without_length_ends_with_the_connection(wire):
    ours, theirs = wire
    theirs.sendall(b"HTTP/1.1 200 OK\r\n\r\nabcde")
    theirs.close()
    assert receive(ours).data == b"abcde"
