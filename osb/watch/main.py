"""`osbctl watch`: the watcher as a process with logs, metrics, probes and a clean end on SIGTERM.

In: the environment. Out: exit 0 after SIGTERM or SIGINT; the Lease stays with the installation (another process of it
goes on). A stuck stream ends the process with 1 (`osb.watch.run`); whoever started it starts it again.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path

from osb.config import Settings, masked_url
from osb.ending import Ending
from osb.errors import ConfigError, OsbError, StoreDown
from osb.obs import log, metrics
from osb.watch.probes import Probes
from osb.watch.run import TELL_AGAIN_SECONDS, Watcher

HEARTBEAT_SECONDS = 5.0

say = log.get_logger("watch")


def run() -> int:
    """Until a signal. Raises ConfigError for settings or addresses that cannot be used."""
    settings = Settings.from_env()
    log.setup(settings)
    say.info("starting", settings=settings.effective(), warnings=list(settings.warnings))
    over = Ending()
    watcher = Watcher(settings)
    servers = _servers(settings, watcher)
    try:
        if not _started(watcher, over):
            return 0
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        _beat(watcher, over)
    finally:
        watcher.close()
        for close in servers:
            close()
    say.info("stopped")
    return 0


def _started(watcher: Watcher, over: Ending) -> bool:
    """Connect, as often as it takes: a Redis that is away at the start is no reason for a crash loop."""
    pause, told = 0.5, -TELL_AGAIN_SECONDS
    where = masked_url(watcher.settings.redis_url)
    while not over.is_set():
        try:
            watcher.start()
            return True
        except ConfigError:
            raise
        except OsbError as error:
            if time.monotonic() - told >= TELL_AGAIN_SECONDS:
                told = time.monotonic()
                if isinstance(error, StoreDown):
                    advice = f"is Redis up at {where}, and is REDIS_URL right?"
                else:
                    advice = "is the API server up, and is KUBECONFIG right?"
                say.warning(f"cannot start yet, trying again: {advice}", error=str(error))
            over.wait(pause)
            pause = min(pause * 2, 10.0)
    return False


def _beat(watcher: Watcher, over: Ending) -> None:
    """Touch the heartbeat file, when one is wanted, as long as every stream shows life."""
    name = os.environ.get("OSB_HEARTBEAT_FILE", "")
    touched = 0.0
    while not over.wait(0.5):
        now = time.monotonic()
        if name and now - touched > HEARTBEAT_SECONDS and watcher.alive():
            Path(name).touch()
            touched = now


def _servers(settings: Settings, watcher: Watcher) -> list[Callable[[], None]]:
    """Probes and metrics, where an address is set; how to close them."""
    found: list[Callable[[], None]] = []
    try:
        if settings.health_port:
            host = settings.health_address.rpartition(":")[0]
            checks = {"/healthz": watcher.alive, "/readyz": watcher.ready}
            found.append(Probes(host, settings.health_port, checks).close)
        if settings.metrics_port:
            found.append(metrics.serve(settings.metrics_port).close)
    except OSError as error:
        raise ConfigError(
            f"{settings.health_address} (probes) or {settings.metrics_address} (metrics) cannot be used: {error}; "
            "choose another with --health-probe-bind-address or --metrics-bind-address"
        ) from error
    return found
