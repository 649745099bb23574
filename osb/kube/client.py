"""`connect(settings)` → `Kube`: everything that is asked of the API server, in one object.

Make it after fork (nothing is opened before the first call; a child process that inherits one makes its own
session). It is thread-safe; `pool` is the number of connections kept, at least the number of threads plus watches.
"""

from __future__ import annotations

from collections.abc import Sequence

from osb.config import Settings
from osb.kube import exec as execution
from osb.kube.budget import Budget
from osb.kube.exec import ExecResult
from osb.kube.read import Page, Reads
from osb.kube.resources import RES, resource
from osb.kube.session import load
from osb.kube.transport import Call, Transport
from osb.kube.watch import Watches, WatchEvent
from osb.kube.write import Writes

__all__ = ["RES", "ExecResult", "Kube", "Page", "WatchEvent", "connect"]


class Kube(Reads, Writes, Watches):
    """Kinds are the keys of `RES`. Errors are those of `osb.errors`; objects are plain dicts."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    @staticmethod
    def namespaced_path(kind: str, namespace: str | None, name: str = "", *, sub: str = "") -> str:
        """The request path of an object or a collection."""
        return resource(kind).path(namespace, name, sub)

    def exec(
        self, namespace: str, pod: str, container: str, command: Sequence[str], *, timeout: float = 10.0
    ) -> ExecResult:
        """Run a command in a container to its end, on a connection of its own."""
        return execution.run(self.transport.session(), namespace, pod, container, command, timeout=timeout)

    def raw(self, path: str, *, timeout: float = 10.0) -> bytes:
        """GET of a path without a kind: /version, /readyz, discovery."""
        call = Call(method="GET", path=path, verb="get", kind="other", what=f"get {path}", timeout=timeout)
        return self.transport.read(call)

    def close(self) -> None:
        self.transport.close()


def connect(settings: Settings, *, pool: int = 16, limited: bool = True) -> Kube:
    """A client for the configured cluster. `limited=False` leaves out our own limit (for the Lease).

    Raises ConfigError at the first call, not here, when no cluster is configured.
    """
    budget = Budget(settings.kube_qps, settings.kube_burst) if limited and settings.kube_qps > 0 else None
    return Kube(Transport(lambda: load(settings, pool=pool), budget=budget))
