"""Start and stop of a worker process: logs, metrics, clients, heartbeat, graceful hand-back of keys."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

from celery import signals

from osb.config import Settings
from osb.ending import aside
from osb.obs import log, metrics
from workers import process

HEARTBEAT_SECONDS = 5.0


@signals.setup_logging.connect
def _logging(**_: Any) -> None:
    log.setup(Settings.from_env())


@signals.worker_init.connect
def _started(**_: Any) -> None:
    _logging()  # Celery sets logging up later, and what is wrong with Redis is the first thing to say
    process.look_at_redis()


@signals.worker_ready.connect
def _ready(sender: Any = None, **_: Any) -> None:
    settings = Settings.from_env()
    if settings.metrics_port:
        metrics.serve(settings.metrics_port)
    if os.environ.get("OSB_HEARTBEAT_FILE"):
        _heartbeat(sender, Path(os.environ["OSB_HEARTBEAT_FILE"]))
    if str(getattr(getattr(sender, "pool", None), "__module__", "")).find("prefork") < 0:
        process.world()


def _heartbeat(consumer: Any, path: Path) -> None:
    """Keep the liveness file fresh through the consumer's own event loop, so that a frozen loop is seen (pitfalls 40).

    While the broker is away there is no loop to ask: the process waits in its reconnect, and a restart would not help.
    """

    def touch() -> None:
        with contextlib.suppress(OSError):
            path.touch()

    def loop() -> None:
        while True:
            hub = getattr(consumer, "hub", None)
            if hub is None or consumer.connection is None:
                touch()
            else:
                hub.call_soon(touch)
            time.sleep(HEARTBEAT_SECONDS)

    touch()
    threading.Thread(target=loop, name="heartbeat", daemon=True).start()


@signals.worker_process_init.connect
def _child(**_: Any) -> None:
    process.world()


@signals.worker_shutting_down.connect
def _stopping(**_: Any) -> None:
    """Celery sends this from its signal handler, and the main thread may be making the clients just then."""
    aside(process.stopping)


@signals.worker_shutdown.connect
def _stopped(**_: Any) -> None:
    process.close()


@signals.worker_process_shutdown.connect
def _child_stopped(**_: Any) -> None:
    process.close()
