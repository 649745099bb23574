"""A small HTTP server that a test scripts answer by answer: silence, half a line, 410, 429, dropped answers.

    server = FaultServer([json({"a": 1}), drop(), stream(b'{"type":...}\n')])
    ... server.url; server.requests

A script is a list of answers, taken in the order of requests (the last one repeats), or a function of the request.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


Answer = Callable[["Handler"], None]
Script = Sequence[Answer] | Callable[[Request], Answer]


class FaultServer:
    """Listens on a free port until `close`. `requests` are those read so far."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self._arrived = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def take(self, request: Request) -> Answer:
        with self._arrived:
            index = len(self.requests)
            self.requests.append(request)
            self._arrived.notify_all()
        if callable(self.script):
            return self.script(request)
        return self.script[min(index, len(self.script) - 1)]

    def wait_for(self, count: int, timeout: float = 5.0) -> bool:
        with self._arrived:
            return self._arrived.wait_for(lambda: len(self.requests) >= count, timeout)

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class Handler(BaseHTTPRequestHandler):
    """One connection; kept alive unless an answer ends it."""

    protocol_version = "HTTP/1.1"
    server_double: FaultServer

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        request = Request(self.command, self.path, dict(self.headers.items()), body)
        answer = self.server_double.take(request)
        try:
            answer(self)
        except OSError:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _handler(server: FaultServer) -> type[Handler]:
    return type("BoundHandler", (Handler,), {"server_double": server})


def json(body: Any, status: int = 200, **headers: str) -> Answer:
    """A whole answer. Header names use underscores: `Retry_After="2"`."""
    return raw(orjson.dumps(body), status, **headers)


def raw(body: bytes, status: int = 200, **headers: str) -> Answer:
    def send(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return send


def status(code: int, reason: str, message: str = "", **headers: str) -> Answer:
    """A Kubernetes Status as an error answer."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return json(body, code, **headers)


def stream(*parts: bytes | threading.Event | None, ends: bool = True) -> Answer:
    """A chunked answer, one chunk a part. An Event is waited for, None keeps silent."""

    def send(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            if isinstance(part, threading.Event):
                part.wait(10)
            elif part is None:
                handler.server_double.closing.wait(30)
            else:
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        if ends:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.close_connection = True

    return send


def websocket(*frames: bytes | None) -> Answer:
    """Upgrade to a websocket and send binary frames; None keeps silent. Then close."""

    def send(handler: Handler) -> None:
        key = handler.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        handler.send_response(101)
        handler.send_header("Upgrade", "websocket")
        handler.send_header("Connection", "Upgrade")
        handler.send_header("Sec-WebSocket-Accept", accept)
        handler.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        handler.end_headers()
        for frame in frames:
            if frame is None:
                handler.server_double.closing.wait(30)
            else:
                size = bytes([len(frame)]) if len(frame) < 126 else b"\x7e" + len(frame).to_bytes(2, "big")
                handler.wfile.write(b"\x82" + size + frame)
        handler.close_connection = True

    return send


def silent() -> Answer:
    """Accepts the request and never answers."""

    def send(handler: Handler) -> None:
        handler.server_double.closing.wait(30)
        handler.close_connection = True

    return send


def drop() -> Answer:
    """Reads the request (so it may have been executed) and closes without an answer."""

    def send(handler: Handler) -> None:
        handler.close_connection = True

    return send


def lines(events: Iterable[tuple[str, dict[str, Any]]]) -> bytes:
    """Watch events as the server writes them."""
    return b"".join(orjson.dumps({"type": kind, "object": obj}) + b"\n" for kind, obj in events)
