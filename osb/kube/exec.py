"""Run one command in a container over the exec websocket.

Every call has its own connection with its own timeout, made from the session's configuration, and closes it:
nothing of a shared client is touched (the official helper swaps a method on it, which breaks parallel calls).
The server asks for verb `get` on pods/exec for a websocket, older and newer ones for `create`: grant both.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson

from osb.errors import Unavailable
from osb.kube import errors
from osb.kube.resources import resource
from osb.kube.session import USER_AGENT, Session
from osb.obs import deadline, metrics

PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"]
STDOUT, STDERR, STATUS = 1, 2, 3
OUTPUT_LIMIT = 64 * 1024  # bytes kept of what the command prints
NO_STATUS = -1


@dataclass(frozen=True, slots=True)
class ExecResult:
    """`code` is the exit code, -1 when the stream ended without one (the container went away).

    `output` is stdout and stderr as they came, `error` the server's words when the command could not be run.
    """

    code: int
    output: str
    error: str = ""


def run(
    session: Session,
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    *,
    timeout: float = 10.0,
) -> ExecResult:
    """Run `command` to its end. Raises NotFound, Refused, ...; Unavailable past `timeout` seconds."""
    deadline.check()
    what = f"exec in pod {namespace}/{pod} container {container}"
    query = [("container", container), ("stdout", "true"), ("stderr", "true")]
    query += [("command", part) for part in command]
    path = f"{resource('pod').path(namespace, pod, 'exec')}?{urlencode(query)}"
    start = time.perf_counter()
    code = "none"
    try:
        result = _run(session, path, what, time.monotonic() + timeout)
        code = "101"
        return result
    finally:
        metrics.api_call("exec", "pod", code, time.perf_counter() - start)


def _run(session: Session, path: str, what: str, end: float) -> ExecResult:
    import websocket

    socket: Any = websocket.WebSocket(sslopt=_tls(session.configuration), skip_utf8_validation=True)
    socket.settimeout(_left(end))
    try:
        _connect(socket, session, path, _left(end))
        return _collect(socket, what, end)
    except websocket.WebSocketBadStatusException as error:
        body = error.resp_body or b""
        raise errors.of_answer(what, error.status_code, body if isinstance(body, bytes) else body.encode()) from error
    except (websocket.WebSocketException, OSError) as error:
        raise errors.of_failure(what, error) from error
    finally:
        socket.shutdown()  # close() would wait three seconds for the other side to agree


def _connect(socket: Any, session: Session, path: str, timeout: float) -> None:
    headers = [f"User-Agent: {USER_AGENT}"]
    if token := session.token():
        headers.append(f"Authorization: {token}")
    options: dict[str, Any] = {"header": headers, "subprotocols": PROTOCOLS, "timeout": timeout}
    options |= {"suppress_origin": True}
    if session.proxied:
        from kubernetes.stream.ws_client import websocket_proxycare

        options = websocket_proxycare(options, session.configuration, session.host, {})
    socket.connect(f"ws{session.host.removeprefix('http')}{path}", **options)


def _collect(socket: Any, what: str, end: float) -> ExecResult:
    """Frames until the status arrives or the stream ends. The first byte of each frame is its channel."""
    import websocket

    output = bytearray()
    status: dict[str, Any] | None = None
    while status is None:
        socket.settimeout(_left(end))
        if time.monotonic() >= end:
            raise Unavailable(f"{what}: did not end in time")
        try:
            opcode, frame = socket.recv_data(control_frame=False)
        except websocket.WebSocketConnectionClosedException:
            break
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            break
        channel, data = (frame[0], frame[1:]) if frame else (0, b"")
        if channel in (STDOUT, STDERR):
            output += data[: max(0, OUTPUT_LIMIT - len(output))]
        elif channel == STATUS and data:
            status = _status(data)
    return _result(status, output.decode("utf-8", "replace"))


def _status(data: bytes) -> dict[str, Any]:
    try:
        status = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {"status": "Failure", "message": data.decode("utf-8", "replace")}
    return status if isinstance(status, dict) else {}


def _result(status: dict[str, Any] | None, output: str) -> ExecResult:
    if status is None:
        return ExecResult(NO_STATUS, output, "the stream ended without a status")
    if status.get("status") == "Success":
        return ExecResult(0, output)
    causes = (status.get("details") or {}).get("causes") or []
    codes = [str(cause.get("message")) for cause in causes if cause.get("reason") == "ExitCode"]
    words = errors.capped(str(status.get("message") or ""))
    if codes and codes[0].lstrip("-").isdigit():
        return ExecResult(int(codes[0]), output, words)
    return ExecResult(NO_STATUS, output, words or "the command could not be run")


def _tls(configuration: Any) -> dict[str, Any]:
    """TLS options of the configuration in the words of the websocket library."""
    options: dict[str, Any] = {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}
    if configuration.verify_ssl:
        options = {
            "cert_reqs": ssl.CERT_REQUIRED,
            "check_hostname": configuration.assert_hostname is not False,
        }
        if configuration.ssl_ca_cert:
            options["ca_certs"] = configuration.ssl_ca_cert
    for ours, theirs in (
        ("cert_file", "certfile"),
        ("key_file", "keyfile"),
        ("tls_server_name", "server_hostname"),
    ):
        if value := getattr(configuration, ours, None):
            options[theirs] = value
    return options


def _left(end: float) -> float:
    return max(0.05, end - time.monotonic())
