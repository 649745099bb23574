"""A worker whose Redis belongs to another cluster ends before its first pass."""

from __future__ import annotations

import os

import pytest

from osb.reconcile.world import World
from workers import process


@pytest.mark.parametrize(("pinned", "ended"), [("its-uid theirs", [2]), ("", [])])
def test_a_worker_ends_only_when_redis_is_of_another_cluster(
    world: World, monkeypatch: pytest.MonkeyPatch, pinned: str, ended: list[int]
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    world.store.redis.delete("osb:cluster")
    if pinned:
        world.store.redis.set("osb:cluster", pinned)
    process._same_cluster(world)
    assert codes == ended
    world.store.redis.delete("osb:cluster")
