"""The fake kubelet's own small way to an API server, simulated or real: JSON over HTTP, and list+watch.

In: a URL or a kubeconfig. The project's Kubernetes client is not used here on purpose: the simulated cluster
must not share code with what it tests.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson
import yaml

from osb.sim.faults import KUBELET

Obj = dict[str, Any]

MERGE = "application/merge-patch+json"


class ApiAnswer(Exception):
    """An answer of the API server that is no success."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text[:300]}")
        self.code = code


class Access(NamedTuple):
    """Where the server is and how to be let in."""

    url: str
    token: str
    tls: ssl.SSLContext | None


def access_of(source: str | Path) -> Access:
    """From a URL, or the current context of a kubeconfig."""
    if str(source).startswith(("http://", "https://")):
        return Access(str(source).rstrip("/"), "", None)
    config = yaml.safe_load(Path(source).read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    url = cluster["server"].rstrip("/")
    return Access(url, user.get("token", ""), _tls(cluster, user) if url.startswith("https") else None)


def _named(entries: list[Obj], name: str) -> Obj:
    return next(entry for entry in entries if entry["name"] == name)


def _tls(cluster: Obj, user: Obj) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif data := cluster.get("certificate-authority-data"):
        context.load_verify_locations(cadata=base64.b64decode(data).decode())
    elif path := cluster.get("certificate-authority"):
        context.load_verify_locations(path)
    if "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    elif "client-certificate-data" in user:
        with tempfile.NamedTemporaryFile() as pair:
            for key in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[key]) + b"\n")
            pair.flush()
            context.load_cert_chain(pair.name)
    return context


class Api:
    """JSON calls with a bound on how many run at once. `close` when done; made inside a running loop."""

    def __init__(self, access: Access, *, concurrency: int = 48) -> None:
        headers = {"User-Agent": KUBELET}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        self.url = access.url
        self._gate = asyncio.Semaphore(concurrency)
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=concurrency + 8, ssl=access.tls or True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
        )

    async def close(self) -> None:
        await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "application/json",
        timeout: float = 15,
    ) -> Obj:
        """One call. Raises ApiAnswer for 4xx and 5xx, aiohttp.ClientError or TimeoutError for none."""
        raw = None if body is None else orjson.dumps(body)
        async with (
            self._gate,
            asyncio.timeout(timeout),
            self._session.request(method, self.url + path, data=raw, headers={"Content-Type": content}) as answer,
        ):
            got = await answer.read()
            if answer.status >= 400:
                raise ApiAnswer(answer.status, got.decode(errors="replace"))
            decoded: Obj = orjson.loads(got) if got else {}
            return decoded

    async def list_all(self, path: str) -> tuple[list[Obj], str]:
        """All items in pages of 500, and the version to watch from."""
        items: list[Obj] = []
        more = ""
        while True:
            page = await self.call("GET", f"{path}?limit=500" + (f"&continue={more}" if more else ""))
            items += page.get("items") or []
            more = page["metadata"].get("continue", "")
            if not more:
                return items, page["metadata"]["resourceVersion"]

    async def watch(self, path: str, version: str) -> AsyncIterator[Obj]:
        """Events until the server ends the stream; an ERROR event raises ApiAnswer (410: list again)."""
        query = f"{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion={version}"
        async with self._session.get(self.url + query) as answer:
            if answer.status >= 400:
                raise ApiAnswer(answer.status, await answer.text())
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if not line:
                        continue
                    event: Obj = orjson.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiAnswer(int(event["object"].get("code", 500)), str(event["object"].get("message")))
                    yield event
