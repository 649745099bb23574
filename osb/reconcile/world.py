"""`World`: what one process owns (clients, lease keeper, thread pool); `Pass`: what one reconcile gets.

In: settings. Out: a World for `osb.reconcile.handle`; the CLI makes one too, to explain and to plan. The clients
are made here, after fork, once per process (spec/pitfalls.md 28).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

from osb.api.key import Key
from osb.config import Settings
from osb.errors import Fenced, OsbError
from osb.kube.budget import Budget
from osb.kube.client import Kube
from osb.kube.client import connect as connect_kube
from osb.kube.events import EventRecorder
from osb.obs.deadline import Deadline, Watchdog
from osb.obs.log import get_logger
from osb.reconcile.profiles import Profiles
from osb.store.client import Store
from osb.store.client import connect as connect_store
from osb.store.forward import Forwarder
from osb.store.lease import Lease, LeaseKeeper

Step = Callable[[str], None]

EVENTS_PER_SECOND, EVENTS_AT_ONCE = 3.0, 20  # of sandboxes that got their pods: an Event is a third write for each


def no_step(name: str) -> None:
    """The step hook of production: nothing. Tests put a stop, a kill or another run between any two steps."""


class Halted(OsbError):
    """Another controller holds the installation's Lease: stop before the next write."""


@dataclass(slots=True)
class World:
    """Everything that outlives a pass. `stop` is set when the process was asked to end."""

    settings: Settings
    store: Store
    kube: Kube
    forward: Forwarder
    events: EventRecorder
    keeper: LeaseKeeper
    writers: ThreadPoolExecutor
    watchdog: Watchdog
    claimers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8, "claim"))
    told: Budget = field(default_factory=lambda: Budget(EVENTS_PER_SECOND, EVENTS_AT_ONCE))
    stop: threading.Event = field(default_factory=threading.Event)
    profiles: Profiles = field(default_factory=Profiles)
    step: Step = no_step
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _halt: tuple[float, bool] = (0.0, False)

    def halted(self) -> bool:
        """True while the operator paused writes, or the installation's Lease is somebody else's.

        The Lease's state is a copy in Redis, at most 5 s old.
        """
        if self.settings.dry_run:
            return True
        if self.settings.no_lease:
            return False
        checked, halted = self._halt
        if time.monotonic() - checked > 1.0:
            halted = self.store.duty.foreign_holder() is not None
            self._halt = (time.monotonic(), halted)
        return halted

    @property
    def halt_reason(self) -> str:
        """Why nothing is written, in words."""
        if self.settings.dry_run:
            return "writes are paused (OSB_DRY_RUN): the cluster is watched, nothing is changed"
        return "another controller holds the installation's Lease"

    def halt(self) -> None:
        """Take nothing more; running passes end at their next check and hand their key back."""
        self.stop.set()
        self.watchdog.stop_all()

    def close(self) -> None:
        """Flush events, stop the threads, close the connections. Safe to call twice."""
        self.halt()
        self.watchdog.stop()
        self.keeper.close()
        self.events.close()
        self.writers.shutdown(wait=False, cancel_futures=True)
        self.claimers.shutdown(wait=False, cancel_futures=True)
        self.kube.close()
        self.store.close()


@dataclass(slots=True)
class Pass:
    """One reconcile of one key. `check` is called before every write."""

    world: World
    key: Key
    token: str
    deep: bool
    deadline: Deadline
    lease: Lease | None = None
    reason: str = ""
    waited_ms: int = 0
    meanwhile: Callable[[], None] | None = None

    def check(self) -> None:
        """Raises when this pass must not write any more: deadline, stop flag, lost lease, foreign controller."""
        self.deadline.check()
        if self.lease is not None and not self.lease.fresh():
            raise Fenced(f"the lease of {self.key} was lost or could not be renewed")
        if self.world.halted():
            raise Halted(self.world.halt_reason)

    @property
    def store(self) -> Store:
        return self.world.store

    @property
    def kube(self) -> Kube:
        return self.world.kube

    @property
    def forward(self) -> Forwarder:
        return self.world.forward

    @property
    def events(self) -> EventRecorder:
        return self.world.events

    @property
    def settings(self) -> Settings:
        return self.world.settings

    @property
    def writers(self) -> ThreadPoolExecutor:
        return self.world.writers

    @property
    def claimers(self) -> ThreadPoolExecutor:
        return self.world.claimers

    @property
    def step(self) -> Step:
        return self.world.step

    def now(self) -> datetime:
        return self.world.now()


def _leave(cause: str) -> None:
    """A pass that does not listen holds a slot for ever: end the process, the key comes back by rescue."""
    get_logger("reconcile").error("leaving", cause=cause)
    os._exit(70)


def make_world(settings: Settings, *, role: str = "worker") -> World:
    """Connect to Redis and to the API server. Opens sockets: call it after fork."""
    store = connect_store(settings.redis_url, name=role)
    kube = connect_kube(settings, pool=2 * settings.write_threads + 16)
    watchdog = Watchdog(_leave)
    watchdog.start()
    return World(
        settings=settings,
        store=store,
        kube=kube,
        forward=Forwarder(store),
        events=EventRecorder(kube, "batchsandbox-controller"),
        keeper=LeaseKeeper(store.queue),
        writers=ThreadPoolExecutor(min(settings.write_threads, settings.alloc_concurrency), thread_name_prefix="write"),
        claimers=ThreadPoolExecutor(settings.write_threads, thread_name_prefix="claim"),
        watchdog=watchdog,
    )
