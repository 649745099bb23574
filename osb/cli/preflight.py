"""What `osbctl up` looks at before and between its starts, so that "ready" is true and a mistake is one line."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from osb.api.key import POOL
from osb.config import Settings, duration, masked_url
from osb.errors import ConfigError, NotFound, Refused
from osb.kube.client import connect
from osb.local.up import Everything
from osb.store.client import connect as connect_store

PROBES = "OSB_HEALTH_PROBE_BIND_ADDRESS"  # its default is replaced by a free port when it is taken


def folder(path: Path, flag: str) -> None:
    """Make it and write into it. Raises ConfigError that names the flag."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        words = error.strerror or error
        raise ConfigError(f"{flag}={path}: {words}; a folder that this user may write is needed") from error


def ports(settings: Settings, given: Mapping[str, str], *, flower: int, processes: int) -> None:
    """Those that were asked for (`given`: the environment with our flags) are free. Raises ConfigError."""
    wanted = [("--flower-port", "127.0.0.1", flower)]
    if given.get(PROBES):
        wanted.append(("--health-probe-bind-address", "127.0.0.1", settings.health_port))
    if settings.metrics_port:
        wanted += [("--metrics-bind-address", "", settings.metrics_port + number) for number in range(processes)]
    for flag, host, port in wanted:
        if port:
            _free(flag, host, port)


def _free(flag: str, host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            words = getattr(error, "strerror", None) or error
            raise ConfigError(f"{flag}: port {port} cannot be used ({words}); choose another") from error


def pod_ready(text: str) -> str:
    """Seconds for the simulated cluster. Raises ConfigError; it would only say so after it was started."""
    try:
        seconds = duration(text)
    except ValueError as error:
        raise ConfigError(f"--pod-ready={text}: {error} is accepted") from error
    if seconds < 0:
        raise ConfigError(f"--pod-ready={text}: a duration from 0 on, such as 500ms or 2s, is accepted")
    return f"{seconds:.6f}"


def redis(url: str, warn: Callable[[str], None]) -> None:
    """Somebody's own Redis is there and keeps what we write. Raises StoreDown, or ConfigError with the remedy."""
    from osb.reconcile.startup import trust

    store = connect_store(url, name="up")
    try:
        trust(store, url, warn=lambda text, fix: warn(f"warning: Redis {masked_url(url)}: {text}; {fix}"))
    finally:
        store.close()


def cluster(settings: Settings) -> None:
    """It answers and has our kinds. Raises ConfigError or what the server says."""
    kube = connect(settings, pool=2)
    try:
        kube.all(POOL, settings.namespaces[0] if settings.namespaces else None)
    except NotFound as error:
        raise ConfigError("the cluster does not know Pools yet: osbctl crds | kubectl apply -f -") from error
    except Refused:
        pass  # rights are the doctor's; the processes say what they lack
    finally:
        kube.close()


def claim(everything: Everything, settings: Settings, *, simulate: bool) -> str:
    """Pin Redis to the cluster, for `unclaim`. Raises ConfigError when another cluster uses it."""
    from osb.reconcile.pin import pin

    store, kube = connect_store(everything.redis_url, name="up"), connect(settings, pool=2)
    try:
        if simulate and everything.redis is not None:
            store.unpin()  # our own Redis from an earlier run, whose simulated cluster is gone
        return pin(store, kube, settings)
    finally:
        kube.close()
        store.close()


def unclaim(redis_url: str, mark: str) -> None:
    """The simulated cluster behind the mark ends: its Redis is free for the next."""
    store = connect_store(redis_url, name="up")
    try:
        if store.pinned() == mark:
            store.unpin()
    finally:
        store.close()
