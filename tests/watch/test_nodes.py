"""Cordoned nodes: known within a moment, by one watch; and nothing suffers where nodes may not be read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from osb.api.key import POOL, Key
from osb.kube.client import Kube
from osb.obs import metrics
from osb.sim import SimCluster
from osb.store.client import Store
from osb.watch import feed
from osb.watch.run import Watcher
from tests.doubles.waiting import wait_until
from tests.watch.conftest import MakeWatcher, a_box


@pytest.fixture
def node(kube: Kube, ns: str) -> Iterator[str]:
    name = f"node-{ns}"
    kube.create("node", None, {"metadata": {"name": name}})
    yield name
    kube.delete("node", None, name)


@pytest.fixture
def pool(kube: Kube, ns: str) -> Key:
    spec = {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
            "capacitySpec": {"bufferMin": 0, "bufferMax": 0, "poolMin": 0, "poolMax": 1}}  # fmt: skip
    kube.create("pool", ns, {"metadata": {"name": "warm"}, "spec": spec})
    return Key(POOL, ns, "warm")


def cordon(kube: Kube, node: str, value: bool | None = True) -> None:
    kube.patch("node", None, node, {"spec": {"unschedulable": value}})


def known(store: Store, node: str) -> bool:
    return f"/{node}" in store.mirror.names("node")


def asked(store: Store, key: Key) -> str:
    """Why it asks for a run, "" when it does not."""
    peek = store.queue.peek(key)
    return peek.reason if peek.dirty_ms is not None else ""


def stream_of(watcher: Watcher) -> feed.Stream:
    return next(stream for stream in watcher.streams if stream.source.kind == "node")


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused stream is tried again after a moment."""
    monkeypatch.setattr(feed, "REFUSED_SECONDS", (0.2, 0.3))


@pytest.mark.parametrize("watchers", [1, 2])
def test_a_cordon_and_its_end_wake_a_resting_pool_at_once(
    watcher: MakeWatcher, kube: Kube, store: Store, node: str, pool: Key, watchers: int
) -> None:
    for _ in range(watchers):
        watcher()
    wait_until(lambda: bool(asked(store, pool)))
    for value, reason in ((True, f"node {node} is cordoned"), (None, f"node {node} is no longer cordoned")) * 2:
        store.queue.forget(pool)
        cordon(kube, node, value)
        wait_until(lambda reason=reason: asked(store, pool) == reason, 2)  # type: ignore[misc]  # bound per turn
        assert known(store, node) == bool(value)
        assert store.queue.begin(pool, "t").deep


def test_heartbeats_of_nodes_that_take_pods_cost_nothing(
    watcher: MakeWatcher, kube: Kube, store: Store, sim: SimCluster, node: str
) -> None:
    watcher()
    lists, events = sim.stats().get("list nodes", 0), _events()
    # When a node says twenty times that it lives, and is cordoned
    for number in range(20):
        kube.patch("node", None, node, {"metadata": {"labels": {"beat": str(number)}}})
    cordon(kube, node)
    wait_until(lambda: known(store, node) and _events() > events, 2)
    # Then only that has come (and a bookmark, perhaps), and nothing was listed
    assert _events() - events < 5
    assert sim.stats().get("list nodes", 0) == lists


def _events() -> float:
    return metrics.value("opensandbox_watch_events_total", kind="node")


@pytest.mark.parametrize("verbs", [["list"], ["watch"], ["list", "watch"]])
def test_where_nodes_may_not_be_read_the_watcher_is_ready_and_everything_else_is_noticed(
    watcher: MakeWatcher, kube: Kube, store: Store, sim: SimCluster, ns: str, node: str, verbs: list[str],
    capfd: pytest.CaptureFixture[str], looks_often: None,
) -> None:  # fmt: skip
    sim.add_fault(deny=True, path="/nodes", verbs=verbs)
    one = watcher(listed=False)
    wait_until(lambda: one.ready(), 10)
    # When it has looked for nodes a few times
    before = sim.stats().get(f"{verbs[0]} nodes", 0)
    wait_until(lambda: sim.stats().get(f"{verbs[0]} nodes", 0) >= before + 3, 10)
    # Then that was told once, the process lives, and a sandbox is noticed as ever
    assert capfd.readouterr().err.count("idle pods stay on cordoned nodes") == 1
    assert one.ready() and one.alive()
    a_box(kube, ns)
    wait_until(lambda: f"{ns}/b" in store.mirror.names("batchsandbox"), 5)
    # And when the rights come, so do the nodes
    sim.clear_faults()
    cordon(kube, node)
    wait_until(lambda: known(store, node), 5)


def test_rights_that_are_taken_later_end_it_without_a_word_too_many(
    watcher: MakeWatcher, kube: Kube, sim: SimCluster, looks_often: None
) -> None:
    one = watcher()
    sim.add_fault(deny=True, path="/nodes")
    sim.disconnect()
    wait_until(lambda: stream_of(one).off > 0, 5)
    assert one.ready() and one.alive()
    sim.clear_faults()


def test_a_limited_installation_watches_nodes_where_it_may(
    watcher: MakeWatcher, kube: Kube, store: Store, ns: str, node: str, pool: Key
) -> None:
    watcher(namespaces=(ns,))
    wait_until(lambda: bool(asked(store, pool)))
    store.queue.forget(pool)
    cordon(kube, node)
    wait_until(lambda: asked(store, pool) == f"node {node} is cordoned", 2)


def test_a_flushed_redis_knows_the_cordoned_nodes_again_and_the_pools_look(
    watcher: MakeWatcher, kube: Kube, store: Store, node: str, pool: Key
) -> None:
    cordon(kube, node)
    watcher()
    assert known(store, node)
    store.redis.flushall()
    wait_until(lambda: known(store, node) and store.mirror.synced("node"), 10)
    wait_until(lambda: bool(asked(store, pool)), 5)
    begun = store.queue.begin(pool, "t")
    assert begun.state == "run" and begun.deep


def test_what_passed_while_no_watcher_lived_is_told_by_the_next_ones_list(
    watcher: MakeWatcher, kube: Kube, store: Store, node: str, pool: Key
) -> None:
    first = watcher()
    wait_until(lambda: bool(asked(store, pool)))
    first.close()
    cordon(kube, node)
    store.queue.forget(pool)
    second = watcher()
    wait_until(lambda: asked(store, pool) == f"node {node} is cordoned", 5)
    second.close()
    cordon(kube, node, None)
    store.queue.forget(pool)
    watcher()
    wait_until(lambda: asked(store, pool) == f"node {node} is no longer cordoned", 5)
    assert not known(store, node)
