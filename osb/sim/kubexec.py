"""The kubelet's own server: exec over WebSocket (v4.channel.k8s.io) and container logs, on a loopback port.

Plain HTTP towards the simulated API server; TLS with a throw-away certificate towards a real one, which
insists on it and does not verify. What a command does is the kubelet's decision (`osb.sim.kubelet`).
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import orjson
from aiohttp import WSMsgType, web

from osb.errors import ConfigError

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io")


class Outcome(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    output: str


Run = Callable[[str, str, str, list[str]], Awaitable[Outcome]]


class ExecServer:
    """Serves /exec and /containerLogs for all pods of one kubelet."""

    def __init__(self, run: Run, *, tls: bool) -> None:
        self._run = run
        self._tls = tls
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/exec/{namespace}/{pod}/{container}", self._exec)
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._log)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=throwaway_tls() if self._tls else None)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _log(self, request: web.Request) -> web.Response:
        info = request.match_info
        return web.Response(text=f"log of {info['container']} in {info['namespace']}/{info['pod']}\n")

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        info, command = request.match_info, request.query.getall("command", [])
        socket = web.WebSocketResponse(protocols=PROTOCOLS)
        if not socket.can_prepare(request):
            return web.Response(status=400, text="this kubelet speaks WebSocket only")
        await socket.prepare(request)
        await socket.send_bytes(b"\x01")  # a first empty frame, as the real kubelet sends
        work = asyncio.ensure_future(self._run(info["namespace"], info["pod"], info["container"], command))
        reader = asyncio.create_task(_drain(socket))
        try:
            await asyncio.wait({work, reader}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await _report(socket, work.result())
        finally:
            work.cancel()
            reader.cancel()
            await socket.close()
        return socket


async def _drain(socket: web.WebSocketResponse) -> None:
    """Read (and ignore) input until the client goes."""
    async for message in socket:
        if message.type == WSMsgType.ERROR:
            return


async def _report(socket: web.WebSocketResponse, outcome: Outcome) -> None:
    """Output on channel 1, the final Status on channel 3."""
    if outcome.output:
        await socket.send_bytes(b"\x01" + outcome.output.encode())
    status: dict[str, object] = {"metadata": {}, "status": "Success"}
    if outcome.code:
        status = {
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {outcome.code}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(outcome.code)}]},
        }  # fmt: skip
    await socket.send_bytes(b"\x03" + orjson.dumps(status))


def throwaway_tls() -> ssl.SSLContext:
    """A self-signed certificate for a day. Raises ConfigError without an openssl program."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise ConfigError("the fake kubelet of a real control plane needs the openssl program for its certificate")
    with tempfile.TemporaryDirectory() as folder:
        key, cert = Path(folder) / "key.pem", Path(folder) / "cert.pem"
        subprocess.run(
            [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=sim-node",
             "-keyout", str(key), "-out", str(cert)],
            check=True, capture_output=True,
        )  # fmt: skip
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
    return context
