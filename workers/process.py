"""What one worker process owns: its clients, its lease keeper and its own share of the timers.

Clients are made at the first use after fork, never at import (spec/pitfalls.md 28): sockets must not be shared.
"""

from __future__ import annotations

import gc
import math
import os
import threading
import time

from osb.config import Settings
from osb.errors import ApiError, ConfigError, StoreDown
from osb.obs.log import get_logger
from osb.reconcile import quarantine
from osb.reconcile.duties import Duties
from osb.reconcile.pin import Foreign, pin
from osb.reconcile.startup import first_look, tell_problems, trust_or_end
from osb.reconcile.world import World, make_world

log = get_logger("worker")

TELL_SETTINGS_SECONDS = 60.0

_lock = threading.Lock()
_world: World | None = None
_pid = 0
_trusted = False  # Redis was looked at; forked children need not look again


def look_at_redis() -> None:
    """Once, before anything else of a worker. A Redis that is away is looked at when there is a World."""
    global _trusted
    _trusted = first_look(Settings.from_env(), "worker")


def world() -> World:
    """The process's World; made once per process, also after a fork."""
    global _world, _pid, _trusted
    with _lock:
        if _world is None or _pid != os.getpid():
            _world, _pid = make_world(Settings.from_env(), role="worker"), os.getpid()
            if not _trusted:
                trust_or_end(_world.store, _world.settings.redis_url)
                _trusted = True
            _same_cluster(_world)
            tell_problems(_world.settings)
            _start_duties(_world)
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 20, 50)
        return _world


def _same_cluster(made: World) -> None:
    """End when Redis is another cluster's: every key in it would look like an object that is gone."""
    try:
        pin(made.store, made.kube, made.settings)
    except Foreign as error:
        log.error("this worker ends", error=str(error))
        os._exit(2)
    except (ApiError, ConfigError) as error:
        log.warning("whose Redis this is cannot be checked", error=str(error))


def _start_duties(made: World) -> None:
    """Every second: timers and rescue, in case no beat runs (spec/pitfalls.md 39). Costs nothing while one does.

    Once a minute the settings are told, which `osbctl explain` decides by.
    """
    duties = Duties(
        made.store,
        sweep_seconds=int(made.settings.resync_seconds),
        quarantined=lambda key: quarantine.tell(made.events, key),
    )

    def run() -> None:
        told = -math.inf
        while not made.stop.wait(1.0):
            try:
                duties.stand_in()
                if time.monotonic() - told > TELL_SETTINGS_SECONDS:
                    made.store.duty.tell_settings(made.settings.deciding())
                    told = time.monotonic()
            except StoreDown as down:
                log.warning("Redis is away, timers wait", error=str(down))

    threading.Thread(target=run, name="duties", daemon=True).start()


def close() -> None:
    """Stop taking, let running reconciles see the stop flag, close the clients."""
    global _world
    with _lock:
        if _world is not None and _pid == os.getpid():
            _world.close()
        _world = None


def stopping() -> None:
    """SIGTERM arrived: running reconciles end at their next check and hand their key back."""
    with _lock:
        if _world is not None and _pid == os.getpid():
            _world.halt()
