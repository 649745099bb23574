"""Our Celery beat scheduler: survives Redis outages, holds a lease so that one of several beats acts, keeps no file.

Celery's beat service calls `tick` in a loop and sleeps for what it returns. Next: `osb.reconcile.duties`.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any

from celery import beat, signals

from osb.config import Settings
from osb.errors import OsbError
from osb.kube.client import connect as connect_kube
from osb.kube.events import EventRecorder
from osb.obs import log, metrics
from osb.reconcile import quarantine
from osb.reconcile.duties import Duties
from osb.reconcile.installation import Installation
from osb.reconcile.startup import first_look, trust_or_end
from osb.store.client import Store
from osb.store.client import connect as connect_store

LEASE_SECONDS = 10.0
RENEW_SECONDS = 3.0
WAIT_SECONDS = 1.0

say = log.get_logger("beat")


@signals.beat_init.connect
def _plain_end(**_: Any) -> None:
    """Celery would close the scheduler inside its signal handler, which talks to Redis under locks of the turn that it
    interrupted. Leaving the loop is enough: beat closes the scheduler on its way out.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)


def _leave(*_: Any) -> None:
    raise SystemExit


class Scheduler(beat.Scheduler):  # type: ignore[misc]  # celery ships no types
    """`tick` runs the duties while this beat holds the lease, else looks again a second later."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.me = uuid.uuid4().hex
        self.settings = Settings.from_env()
        self._store: Store | None = None
        self._trusted = False
        self._acting = False
        self._next = 0.0
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        """Nothing to load: the table of what runs how often is `osb.reconcile.duties`."""
        log.setup(self.settings)
        if self.settings.metrics_port:
            metrics.serve(self.settings.metrics_port)
        self._trusted = first_look(self.settings, "beat")

    def tick(self, *_: Any, **__: Any) -> float:
        """One turn. A failure is logged and tried again: beat never dies of a Redis or API outage."""
        if file := os.environ.get("OSB_HEARTBEAT_FILE"):
            Path(file).touch()
        try:
            return self._turn()
        except OsbError as error:
            say.warning("a tick failed, trying again", error=str(error))
            self._acting = False
            return WAIT_SECONDS

    def _turn(self) -> float:
        if self._store is None:
            store = connect_store(self.settings.redis_url, name="beat")
            if not self._trusted:
                trust_or_end(store, self.settings.redis_url)
                self._trusted = True
            events = EventRecorder(connect_kube(self.settings, pool=2), "batchsandbox-controller")
            self.duties = Duties(
                store,
                sweep_seconds=int(self.settings.resync_seconds),
                state_gauges=bool(self.settings.metrics_port),
                quarantined=lambda key: quarantine.tell(events, key),
            )
            self.installation = Installation(store, self.settings)
            self._store = store  # last: a failure above is tried again as a whole
        now = time.monotonic()
        if now >= self._next or not self._acting:
            self._acting = self._store.duty.hold("beat", self.me, LEASE_SECONDS)
            self._next = now + RENEW_SECONDS
        if not self._acting:
            return WAIT_SECONDS
        self.installation.beat()
        return self.duties.tick()

    def close(self) -> None:
        """Let the next beat act at once."""
        if self._store is not None:
            try:
                self._store.duty.release("beat", self.me)
            except OsbError as error:
                say.info("the beat lease was not released", error=str(error))
        super().close()

    @property
    def info(self) -> str:
        return "    . duties -> due, rescue, sweep, gauges, Lease"
