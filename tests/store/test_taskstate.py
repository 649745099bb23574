"""What is remembered about a sandbox's tasks."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from osb.store.client import Store
from osb.store.taskstate import TTL_SECONDS


class Node(msgspec.Struct, array_like=True, frozen=True):
    index: int
    state: str = ""


def test_states_come_back_as_they_were_stored(store: Store) -> None:
    store.tasks.set_many("uid-1", {0: Node(0, "RUNNING"), 11: Node(11)})
    assert store.tasks.get_all("uid-1", Node) == {0: Node(0, "RUNNING"), 11: Node(11)}
    assert store.tasks.get_all("uid-1") == {0: [0, "RUNNING"], 11: [11, ""]}
    assert store.tasks.get_all("uid-2", Node) == {}


def test_only_the_given_slots_change(store: Store) -> None:
    store.tasks.set_many("uid-1", {0: Node(0), 1: Node(1), 2: Node(2)})
    store.tasks.set_many("uid-1", {1: Node(1, "FAILED")}, drop=[2, 9])
    assert store.tasks.get_all("uid-1", Node) == {0: Node(0), 1: Node(1, "FAILED")}


def test_one_that_cannot_be_read_counts_as_forgotten(store: Store) -> None:
    store.tasks.set_many("uid-1", {0: Node(0), 1: "another shape"})
    store.redis.hset("osb:t:uid-1", "x", b"\xc1")
    assert store.tasks.get_all("uid-1", Node) == {0: Node(0)}


def test_a_sandbox_that_nobody_asks_about_is_forgotten_after_a_day(store: Store) -> None:
    store.tasks.set_many("uid-1", {0: Node(0)})
    store.redis.expire("osb:t:uid-1", 5)
    store.tasks.get_all("uid-1", Node)
    assert TTL_SECONDS - 5 < store.redis.ttl("osb:t:uid-1") <= TTL_SECONDS


def test_drop_leaves_nothing(store: Store, left: Callable[[], set[str]]) -> None:
    store.tasks.set_many("uid-1", {0: Node(0)})
    store.tasks.drop("uid-1")
    store.tasks.set_many("uid-1", {}, drop=[0])
    assert left() == set()
