"""`/healthz` and `/readyz` of the watcher, from its own memory: no Redis, no API server, an answer at once.

Health is the loop's own heartbeat; readiness is "every kind was listed and none is stale" (spec/operations.md 5).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Check = Callable[[], bool]


class Probes:
    """Serves each path of `checks` with 200 `ok` or 503. `port` is the real one when 0 was asked for."""

    def __init__(self, host: str, port: int, checks: Mapping[str, Check]) -> None:
        self._server = ThreadingHTTPServer((host, port), _handler(checks))
        self._server.daemon_threads = True
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="probes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2.0)


def _handler(checks: Mapping[str, Check]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5

        def do_GET(self) -> None:
            check = checks.get(self.path.partition("?")[0])
            if check is None:
                return self._answer(404, f"paths: {', '.join(checks)}")
            return self._answer(200, "ok") if check() else self._answer(503, "not yet")

        def _answer(self, status: int, text: str) -> None:
            body = text.encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes come every few seconds and say nothing new."""

    return Handler
