"""While another controller holds the installation's Lease nothing is listed, enqueued or written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from osb.api.key import BATCHSANDBOX, Key
from osb.config import Settings
from osb.errors import NotFound
from osb.kube.client import Kube
from osb.kube.lease import NAME
from osb.reconcile.handle import handle
from osb.reconcile.installation import Installation
from osb.reconcile.world import make_world
from osb.sim import SimCluster
from osb.store.client import Store
from osb.watch.run import Watcher
from tests.doubles.waiting import wait_until
from tests.watch.conftest import MakeWatcher, a_box

HOME = "opensandbox-system"


def held_by(kube: Kube, holder: str) -> None:
    """The Lease as another controller writes it, alive just now."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now}
    try:
        old = kube.get("lease", HOME, NAME)
    except NotFound:
        kube.create("lease", HOME, {"metadata": {"name": NAME}, "spec": spec})
    else:
        kube.replace("lease", HOME, NAME, {**old, "spec": spec})


def looked_away(watcher: Watcher, began: float) -> bool:
    """Its stream of sandboxes has ended, and waits for the Lease (it notes each second that it lives)."""
    stream = next(s for s in watcher.streams if s.source.kind == "batchsandbox")
    return stream.beat > began + 1.0


@pytest.fixture
def no_lease(kube: Kube) -> Iterator[None]:
    yield
    try:
        kube.delete("lease", HOME, NAME)
    except NotFound:
        pass


def test_a_watcher_that_starts_lists_nothing_until_the_lease_is_free(
    watcher: MakeWatcher, kube: Kube, store: Store, ns: str, no_lease: None
) -> None:
    # Given another controller's Lease
    held_by(kube, "the-other_1")
    a_box(kube, ns)
    # When a watcher starts
    one = watcher(listed=False, no_lease=False)
    wait_until(lambda: store.duty.foreign_holder() == "the-other_1", 10)
    # Then nothing is in the mirror or on the queue, and it says that it is not ready
    assert store.mirror.names("batchsandbox") == []
    assert store.queue.peek(Key(BATCHSANDBOX, ns, "b")).dirty_ms is None
    assert not one.ready() and one.alive()
    # And when the other lets go, it begins
    held_by(kube, "")
    Installation(store, one.settings).renew()
    wait_until(lambda: store.mirror.names("batchsandbox") == [f"{ns}/b"], 10)


def test_a_running_watcher_and_its_workers_stop_when_another_controller_takes_over(
    watcher: MakeWatcher, kube: Kube, store: Store, sim: SimCluster, ns: str, no_lease: None, redis_url: str
) -> None:
    # Given an installation at work
    settings = Settings(kubeconfig=str(sim.kubeconfig), redis_url=redis_url)
    one = watcher(no_lease=False)
    world = make_world(settings)
    try:
        # When somebody else's name is on the Lease
        held_by(kube, "the-other_1")
        Installation(store, settings).renew()
        assert store.duty.foreign_holder() == "the-other_1"
        wait_until(lambda: not one._allowed(), 5)
        # Then a new sandbox is not even noticed
        before, began = sim.stats(), time.monotonic()
        a_box(kube, ns, template={"spec": {"containers": [{"name": "c", "image": "i"}]}})
        kube.create("batchsandbox", ns, {"metadata": {"name": "two"}, "spec": {"replicas": 0}})
        wait_until(lambda: looked_away(one, began), 10)
        assert f"{ns}/b" not in store.mirror.names("batchsandbox")
        # And one that is dispatched by hand writes nothing
        said = handle(world, Key(BATCHSANDBOX, ns, "b"), hand=True, task_id="t1")
        assert "Lease" in said
        assert sim.stats().get("create pods", 0) == before.get("create pods", 0)
        # And all goes on when the Lease is free again
        held_by(kube, "")
        Installation(store, settings).renew()
        wait_until(lambda: f"{ns}/b" in store.mirror.names("batchsandbox"), 10)
    finally:
        world.close()
