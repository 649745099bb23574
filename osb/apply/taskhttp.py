"""One HTTP/1.1 exchange with a task executor, over plain asyncio streams.

In: address, method, path, body. Out: status and body. It is strict on purpose, because a pod can run anything
on that port: one connection per call, no redirects, no compression, a bounded head (16 KiB) and body (1 MiB).
The caller sets the deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from osb.errors import OsbError

BODY_LIMIT = 1 << 20
HEAD_LIMIT = 16 << 10


class Silence(OsbError):
    """Nothing was heard from the executor: refused, no route, reset before a status line."""


class BadAnswer(OsbError):
    """The executor spoke, but not HTTP as we accept it."""


def authority(ip: str, port: int) -> str:
    """`10.0.0.1:5758`, and `[fd00::1]:5758` for IPv6."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def request(ip: str, port: int, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """The bytes of one request; the connection is closed after the answer."""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {authority(ip, port)}",
        "Connection: close",
        "User-Agent: osb",
    ]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")


async def exchange(
    ip: str, port: int, method: str, path: str, *, headers: Mapping[str, str], body: bytes | None
) -> tuple[int, bytes]:
    """Send one request and read the whole answer: (status code, body).

    Raises Silence or BadAnswer. There is no time limit in here: the caller sets one.
    """
    try:
        reader, writer = await asyncio.open_connection(ip, port, limit=HEAD_LIMIT)
    except OSError as error:
        raise Silence(f"cannot connect to {authority(ip, port)}: {error.strerror or error}") from error
    try:
        writer.write(request(ip, port, method, path, headers=headers, body=body))
        await writer.drain()
        head = await _head(reader)
        return _status(head), await _body(reader, _fields(head))
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        raise Silence(f"{authority(ip, port)} closed the connection before the end of its answer") from error
    finally:
        writer.transport.abort()


async def _head(reader: asyncio.StreamReader) -> list[str]:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise BadAnswer("the head of the answer is not HTTP, or too long") from error
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise BadAnswer(f"not HTTP: {error.partial[:60]!r}") from error
        raise
    return raw.decode("latin-1").split("\r\n")


def _status(head: list[str]) -> int:
    version, _, rest = head[0].partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit() and len(code) == 3):
        raise BadAnswer(f"not HTTP: {head[0][:60]!r}")
    return int(code)


def _fields(head: list[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in head[1:] if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, fields: Mapping[str, str]) -> bytes:
    if fields.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader)
    if "content-length" not in fields:
        return await _rest(reader)
    text = fields["content-length"]
    if not (text.isascii() and text.isdigit()):
        raise BadAnswer(f"Content-Length {text[:20]!r}")
    if int(text) > BODY_LIMIT:
        raise BadAnswer(f"the answer has {text} bytes; {BODY_LIMIT} are accepted")
    return await reader.readexactly(int(text))


async def _rest(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while part := await reader.read(64 << 10):
        body += part
        if len(body) > BODY_LIMIT:
            raise BadAnswer(f"the answer is longer than {BODY_LIMIT} bytes")
    return body


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        try:
            line = await reader.readuntil(b"\r\n")
            size = int(line.split(b";")[0].strip(), 16)
        except (ValueError, asyncio.LimitOverrunError) as error:
            raise BadAnswer("broken chunked answer") from error
        if size < 0 or len(body) + size > BODY_LIMIT:
            raise BadAnswer(f"the answer is longer than {BODY_LIMIT} bytes")
        if size == 0:
            return body
        body += await reader.readexactly(size)
        await reader.readexactly(2)
