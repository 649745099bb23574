"""PATCH over a borrowed connection, spoken by hand: the two hot writes of an allocation are patches.

The connection comes from the official client's pool (its TLS, its checks for connections that died idle, its limit)
and goes back there; only the request and the answer in between are written and read without http.client, whose
header handling is most of a write's CPU. One request, one `sendall`, and never a second try. Answers in any legal
form are understood (length, chunks, until close, interim 1xx); after anything doubtful the connection is closed, not
reused. `Session` uses this only where the server is reached directly; proxies go the ordinary way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from urllib3.exceptions import ProtocolError

READ_SIZE = 1 << 16
HEAD_LIMIT = 1 << 18  # bytes of headers before an answer counts as nonsense

NEEDED = ("_get_conn", "_put_conn")  # what is used of a urllib3 pool beyond its public face


@dataclass(slots=True)
class Reply:
    """An answer that was read whole; the part of urllib3's response that `Transport` uses."""

    status: int
    headers: Mapping[str, str]
    data: bytes
    keep: bool = field(default=True)

    def drain_conn(self) -> None:
        """Nothing is left on the wire."""

    def release_conn(self) -> None:
        """The connection is back already."""


def usable(pool: Any) -> bool:
    """Whether `pool` is a direct connection pool of a urllib3 that we know."""
    return all(hasattr(pool, name) for name in NEEDED) and getattr(pool, "proxy", None) is None


def send(pool: Any, head: bytes, body: bytes, *, connect: float, read: float) -> Reply:
    """Write `head` (request line and headers, without length and end) and `body`, read the answer.

    `connect` and `read` are timeouts in seconds. Raises urllib3's HTTPError or OSError when no whole answer came.
    """
    connection = pool._get_conn(timeout=connect)
    keep = False
    try:
        if connection.is_closed:
            connection.timeout = connect
            connection.connect()
        sock = connection.sock
        sock.settimeout(read)
        sock.sendall(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        reply = receive(sock)
        keep = reply.keep
        return reply
    except ValueError as error:
        raise ProtocolError(f"not an HTTP answer: {error}") from error
    finally:
        if not keep:
            connection.close()
        pool._put_conn(connection)


def receive(sock: Any) -> Reply:
    """One answer from the socket. ProtocolError when it breaks off or is no HTTP."""
    held = b""
    while True:
        end = held.find(b"\r\n\r\n")
        while end < 0:
            held = _more(sock, held)
            if len(held) > HEAD_LIMIT:
                raise ProtocolError("the headers do not end")
            end = held.find(b"\r\n\r\n")
        status, version, headers = _head(held[:end])
        held = held[end + 4 :]
        if status >= 200:
            break
    keep = version == b"HTTP/1.1" and headers.get("Connection", "").lower() != "close"
    if status in (204, 304):
        return Reply(status, headers, b"", keep and not held)
    if "chunked" in headers.get("Transfer-Encoding", "").lower():
        data, held = _chunked(sock, held)
    elif "Content-Length" in headers:
        data, held = _counted(sock, held, int(headers["Content-Length"]))
    else:
        data, held, keep = _until_close(sock, held), b"", False
    return Reply(status, headers, data, keep and not held)


def _head(raw: bytes) -> tuple[int, bytes, dict[str, str]]:
    """Status, protocol and headers; header names in the usual capitals."""
    first, *rest = raw.split(b"\r\n")
    version, _, words = first.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not words[:3].isdigit():
        raise ProtocolError(f"not an HTTP answer: {first[:80]!r}")
    headers = {}
    for line in rest:
        name, _, value = line.partition(b":")
        headers[name.decode("latin-1").title()] = value.strip().decode("latin-1")
    return int(words[:3]), version, headers


def _counted(sock: Any, held: bytes, length: int) -> tuple[bytes, bytes]:
    parts, size = [held], len(held)
    while size < length:
        part = sock.recv(min(READ_SIZE, length - size))
        if not part:
            raise ProtocolError("the answer broke off")
        parts.append(part)
        size += len(part)
    whole = b"".join(parts)
    return whole[:length], whole[length:]


def _chunked(sock: Any, held: bytes) -> tuple[bytes, bytes]:
    out: list[bytes] = []
    while True:
        while (end := held.find(b"\r\n")) < 0:
            held = _more(sock, held)
        size = int(held[:end].split(b";", 1)[0], 16)
        chunk, held = _counted(sock, held[end + 2 :], size + 2) if size else (b"", held[end + 2 :])
        if size == 0:
            return b"".join(out), _trailer(sock, held)
        out.append(chunk[:-2])


def _trailer(sock: Any, held: bytes) -> bytes:
    """Skip trailing headers up to the empty line; what follows belongs to nobody."""
    while not held.startswith(b"\r\n"):
        end = held.find(b"\r\n")
        held = held[end + 2 :] if end > 0 else _more(sock, held)
    return held[2:]


def _until_close(sock: Any, held: bytes) -> bytes:
    while part := sock.recv(READ_SIZE):
        held += part
    return held


def _more(sock: Any, held: bytes) -> bytes:
    part: bytes = sock.recv(READ_SIZE)
    if not part:
        raise ProtocolError("the connection was closed before the answer")
    return held + part
