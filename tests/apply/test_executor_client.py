"""The executor client against real sockets: good, hung, garbage, huge, redirecting and absent executors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from osb.apply.taskhttp import authority
from osb.apply.tasks import ExecutorClient, Order, read_answer
from osb.decide.tasknode import RUNNING, SUCCEED
from osb.local.redis import free_port

OK = "HTTP/1.1 200 OK\r\n"


class Scripted:
    """A server that answers every connection with the same bytes, or never; it records what it was asked."""

    def __init__(self, reply: bytes | None, *, host: str = "127.0.0.1") -> None:
        self.reply, self.host = reply, host
        self.asked: list[bytes] = []
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._up.wait(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, self.host, 0))
        self.port = server.sockets[0].getsockname()[1]
        self._up.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"Content-Length: (\d+)", head)
            self.asked.append(head + (await reader.readexactly(int(length[1])) if length else b""))
            if self.reply is None:
                await asyncio.sleep(60)
            else:
                writer.write(self.reply)
                await writer.drain()
        writer.transport.abort()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


@pytest.fixture
def scripted() -> Iterator[Callable[..., Scripted]]:
    made: list[Scripted] = []

    def make(reply: bytes | None, **changes: str) -> Scripted:
        made.append(Scripted(reply, **changes))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def client_of() -> Iterator[Callable[..., ExecutorClient]]:
    made: list[ExecutorClient] = []

    def make(port: int, *, timeout: float = 1.0, token: str = "") -> ExecutorClient:
        made.append(ExecutorClient(port=port, timeout=timeout, token=token))
        return made[-1]

    yield make
    for client in made:
        client.close()


def body(text: bytes, head: str = OK) -> bytes:
    return f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text


def no_objection(order: Order) -> str:
    return ""


TASK = b'[{"name":"b-0","process":{"command":["x"]},"processStatus":{"running":{"startedAt":"2026-06-15T08:00:00Z"}}}]'
ENDED = b'{"exitCode":0,"reason":"Succeeded","startedAt":null,"finishedAt":null}'
DONE = b'[{"name":"b-0","process":{"command":["x"]},"processStatus":{"terminated":' + ENDED + b"}}]\n"


@pytest.mark.parametrize(
    "reply",
    [
        body(TASK),
        f"{OK}Transfer-Encoding: chunked\r\n\r\n{len(TASK):x}\r\n".encode() + TASK + b"\r\n0\r\n\r\n",
        f"{OK}Connection: close\r\n\r\n".encode() + TASK,
    ],
    ids=["length", "chunked", "until close"],
)
def test_a_list_is_read_however_it_is_framed(
    scripted: Callable[..., Scripted], client_of: Callable[..., ExecutorClient], reply: bytes
) -> None:
    server = scripted(reply)
    answer = client_of(server.port).ask({0: "127.0.0.1"}, budget=5)[0]
    assert answer.ok, answer.error
    assert [(t.name, t.state) for t in answer.tasks] == [("b-0", RUNNING)]
    assert server.asked[0].startswith(b"GET /getTasks HTTP/1.1\r\n")


def test_set_sends_the_complete_desired_set_and_clear_an_empty_list(
    scripted: Callable[..., Scripted], client_of: Callable[..., ExecutorClient]
) -> None:
    server = scripted(body(DONE))
    client = client_of(server.port, token="secret")
    task = {"name": "b-0", "process": {"command": ["echo"], "args": ["hi"]}}
    for wanted in (task, None):
        order = Order(index=0, pod="p", pod_uid="u", ip="127.0.0.1", task=wanted)
        answer = client.send([order], check=no_objection, budget=5)[0]
        assert answer.tasks[0].state == SUCCEED
    assert server.asked[0].endswith(b'\r\n\r\n[{"name":"b-0","process":{"command":["echo"],"args":["hi"]}}]')
    assert server.asked[1].endswith(b"\r\n\r\n[]")
    assert server.asked[1].startswith(b"POST /setTasks HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret\r\n" in server.asked[0]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (body(b"{}", "HTTP/1.1 500 Internal Server Error\r\n"), "status=500 {}"),
        (body(b'{"code":"x","message":"no folder"}', "HTTP/1.1 500 Internal Server Error\r\n"), "status=500 no folder"),
        (body(b'{"message":7}', "HTTP/1.1 500 Internal Server Error\r\n"), 'status=500 {"message":7}'),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "status=302"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", "not HTTP"),
        (body(b"{"), "not JSON"),
        (body(b'{"a":1}'), "not a JSON array"),
        (body(b"[1]"), "not a task"),
        (body(b'[{"process":{}}]'), "not a task"),
        (f"{OK}Content-Length: 2000000\r\n\r\n".encode(), "bytes"),
        (f"{OK}Content-Length: -1\r\n\r\n".encode(), "Content-Length"),
        (f"{OK}\r\n".encode() + b"[" * (2 << 20), "longer"),
        (f"{OK}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode(), "chunked"),
        (b"x" * (64 << 10), "not HTTP"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_answer_that_is_not_the_contract_is_an_error_of_an_executor_that_spoke(
    scripted: Callable[..., Scripted], client_of: Callable[..., ExecutorClient], reply: bytes, words: str
) -> None:
    answer = client_of(scripted(reply).port).ask({0: "127.0.0.1"}, budget=5)[0]
    assert (answer.ok, answer.heard) == (False, True)
    assert words in answer.error


@pytest.mark.parametrize("reply", [b"", body(TASK)[:-5]], ids=["nothing", "half"])
def test_a_connection_that_closes_early_is_silence(
    scripted: Callable[..., Scripted], client_of: Callable[..., ExecutorClient], reply: bytes
) -> None:
    answer = client_of(scripted(reply).port).ask({0: "127.0.0.1"}, budget=5)[0]
    assert (answer.ok, answer.heard) == (False, False)


def test_a_refused_connection_is_silence(client_of: Callable[..., ExecutorClient]) -> None:
    answer = client_of(free_port()).ask({0: "127.0.0.1"}, budget=5)[0]
    assert (answer.ok, answer.heard) == (False, False)
    assert "cannot connect" in answer.error


def test_a_hung_executor_costs_its_deadline_and_no_more(
    scripted: Callable[..., Scripted], client_of: Callable[..., ExecutorClient]
) -> None:
    client = client_of(scripted(None).port, timeout=0.3)
    start = time.monotonic()
    answers = client.ask(dict.fromkeys(range(20), "127.0.0.1"), budget=5)
    assert time.monotonic() - start < 2
    assert {(a.ok, a.heard) for a in answers.values()} == {(False, False)}


def test_a_batch_ends_at_its_budget_and_leaves_out_what_it_did_not_reach(
    scripted: Callable[..., Scripted], client_of: Callable[..., ExecutorClient]
) -> None:
    client = client_of(scripted(None).port, timeout=30)
    start = time.monotonic()
    assert client.ask(dict.fromkeys(range(200), "127.0.0.1"), budget=0.3) == {}
    assert time.monotonic() - start < 3


def test_an_order_whose_pod_is_not_the_one_meant_is_never_sent(
    scripted: Callable[..., Scripted], client_of: Callable[..., ExecutorClient]
) -> None:
    server = scripted(body(b"[]"))
    order = Order(index=3, pod="p", pod_uid="u", ip="127.0.0.1", task=None)
    answer = client_of(server.port).send([order], check=lambda o: f"{o.pod} is another one", budget=5)[3]
    assert (answer.ok, answer.error) == (False, "p is another one")
    assert server.asked == []


def test_ipv6_addresses_stand_in_brackets() -> None:
    assert authority("fd00::1", 5758) == "[fd00::1]:5758"
    assert authority("10.0.0.1", 5758) == "10.0.0.1:5758"


def test_an_executor_on_ipv6_is_reached(
    scripted: Callable[..., Scripted], client_of: Callable[..., ExecutorClient]
) -> None:
    try:
        server = scripted(body(b"[]"), host="::1")
    except AssertionError:
        return  # this machine has no IPv6 loopback
    answer = client_of(server.port).ask({0: "::1"}, budget=5)[0]
    assert answer.ok, answer.error
    assert b"Host: [::1]:" in server.asked[0]


def test_null_is_no_tasks() -> None:
    assert read_answer(b"null", where="x").tasks == ()


def test_five_hundred_executors_of_one_process_are_asked_within_seconds(
    client_of: Callable[..., ExecutorClient],
) -> None:
    port = free_port()
    command = [sys.executable, "-m", "osb.executor", "--fake", "--addresses", "127.17.0.1-127.17.1.244"]
    process = subprocess.Popen(
        [*command, "--listen-addr", f":{port}"], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert process.stdout is not None
        assert "500 address" in process.stdout.readline()
        client = client_of(port, timeout=3)
        ips = [f"127.17.{i // 256}.{i % 256}" for i in range(1, 501)]
        orders = [
            Order(index=i, pod="p", pod_uid="u", ip=ip, task={"name": f"b-{i}", "process": {"command": ["run"]}})
            for i, ip in enumerate(ips)
        ]
        sent = client.send(orders, check=no_objection, budget=10)
        assert sum(answer.ok for answer in sent.values()) == 500
        asked = client.ask(dict(enumerate(ips)), budget=10)
        assert [asked[i].tasks[0].name for i in range(500)] == [f"b-{i}" for i in range(500)]
    finally:
        process.terminate()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()
