"""The HTTP/1.1 server: seven routes, keep-alive, limits and time-outs; nothing else (spec/tasks.md 2).

In: a `Table`. Errors are `{"code": "<status text>", "message": ...}`; unknown paths and wrong methods are
plain text. With a token every route but `/health` asks for `Authorization: Bearer <token>`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import unquote

from osb.executor import wire
from osb.executor.table import Refused, Table

HEAD_LIMIT = 16 << 10
BODY_LIMIT = 1 << 20
TIMEOUT = 30.0  # for one request, and for a quiet kept connection
LINGER = 2.0  # seconds, and bytes below: of a refused body that is still being sent
LINGER_LIMIT = 8 << 20

Answer = tuple[int, str, bytes]


class Server:
    """Serves one table. `after` is called after every request that may have changed it."""

    def __init__(self, table: Table, *, token: str = "", after: Callable[[], None] = lambda: None) -> None:
        self._table = table
        self._token = token
        self._after = after

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, until it leaves, errs, asks to close or stays quiet."""
        try:
            while await self._exchange(reader, writer):
                pass
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        async with asyncio.timeout(TIMEOUT):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        words = head[0].split(" ")
        fields = {name.strip().lower(): value.strip() for name, _, value in (h.partition(":") for h in head[1:])}
        keep = fields.get("connection", "").lower() != "close" and words[-1] == "HTTP/1.1"
        unread = False
        if len(words) != 3:
            answer, keep = _failed(HTTPStatus.BAD_REQUEST, "malformed request line"), False
        else:
            try:
                async with asyncio.timeout(TIMEOUT):
                    body = await _body(reader, fields)
            except wire.BadRequest as bad:
                answer, keep, unread = _failed(HTTPStatus.BAD_REQUEST, str(bad)), False, True
            else:
                if body is None:
                    answer = _failed(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is too large")
                    keep, unread = False, True
                else:
                    answer = self._answer(words[0], words[1].partition("?")[0], fields, body)
        status, kind, text = answer
        reply = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Length: {len(text)}"]
        if kind:
            reply.append(f"Content-Type: {kind}")
        if not keep:
            reply.append("Connection: close")
        writer.write(("\r\n".join(reply) + "\r\n\r\n").encode() + text)
        async with asyncio.timeout(TIMEOUT):
            await writer.drain()
        if unread:
            await _linger(reader, writer)
        return keep

    def _answer(self, method: str, path: str, fields: dict[str, str], body: bytes) -> Answer:
        if path != "/health" and not self._trusted(fields.get("authorization", "")):
            return _failed(HTTPStatus.UNAUTHORIZED, "a bearer token is required")
        try:
            return self._route(method, path, body)
        except wire.BadRequest as bad:
            return _failed(HTTPStatus.BAD_REQUEST, str(bad))
        except (Refused, OSError) as refused:
            return _failed(HTTPStatus.INTERNAL_SERVER_ERROR, str(refused))
        except Exception as unforeseen:  # noqa: BLE001 - no request may end without an answer
            return _failed(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(unforeseen).__name__}: {unforeseen}")
        finally:
            self._after()

    def _trusted(self, given: str) -> bool:
        return not self._token or hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode())

    def _route(self, method: str, path: str, body: bytes) -> Answer:
        routes: dict[str, dict[str, Callable[[], Answer]]] = {
            "/setTasks": {"POST": lambda: _json(self._table.sync(wire.read_list(body)))},
            "/getTasks": {"GET": lambda: _json(self._table.listed())},
            "/tasks": {"POST": lambda: _json(self._table.create(wire.read_one(body)), HTTPStatus.CREATED)},
            "/health": {"GET": lambda: _json({"status": "healthy"})},
        }
        if path.startswith("/tasks/") and (name := unquote(path.removeprefix("/tasks/"))):
            routes[path] = {"GET": lambda: self._one(name), "DELETE": lambda: self._delete(name)}
        if path not in routes:
            return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"404 page not found\n"
        if method not in routes[path]:
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", b"method not allowed\n"
        return routes[path][method]()

    def _one(self, name: str) -> Answer:
        task = self._table.find(name)
        if task is None:
            return _failed(HTTPStatus.NOT_FOUND, f"task {name} not found")
        return _json(task)

    def _delete(self, name: str) -> Answer:
        self._table.delete(name)
        return HTTPStatus.NO_CONTENT, "", b""


def _json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return status, "application/json", wire.dump(value)


def _failed(status: HTTPStatus, message: str) -> Answer:
    return status, "application/json", wire.error(status.phrase, message)


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take some of the rest: a client that still sends when we close gets a reset and never sees the answer."""
    left = LINGER_LIMIT
    with contextlib.suppress(TimeoutError, OSError):
        writer.write_eof()
        async with asyncio.timeout(LINGER):
            while left > 0 and (part := await reader.read(1 << 16)):
                left -= len(part)


async def _body(reader: asyncio.StreamReader, fields: dict[str, str]) -> bytes | None:
    """The request's body; None when it is longer than the limit.

    Raises BadRequest when its length cannot be read.
    """
    if fields.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader)
    length = fields.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise wire.BadRequest("Content-Length must be a number")
    if len(length) > 10 or int(length) > BODY_LIMIT:
        return None
    return await reader.readexactly(int(length))


async def _chunks(reader: asyncio.StreamReader) -> bytes | None:
    body = b""
    while True:
        try:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        except ValueError as bad:
            raise wire.BadRequest("the length of a chunk cannot be read") from bad
        if size < 0 or len(body) + size > BODY_LIMIT:
            return None
        part = await reader.readexactly(size + 2)
        if size == 0:
            return body
        body += part[:-2]


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
