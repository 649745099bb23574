"""What Redis still knows of a namespace whose objects are all gone: nothing, but for what has an end of its own."""

from __future__ import annotations

import redis

_KEPT = ("osb:journal",)  # the capped stream of decisions
_TOMBS = ":tomb"  # deletions, remembered until no older event can arrive


def traces(store: redis.Redis, namespace: str) -> list[str]:
    """Keys and members that name the namespace and would stay for ever."""
    found = []
    for key in store.scan_iter(count=500):
        if key in _KEPT or key.endswith(_TOMBS) or store.ttl(key) >= 0:
            continue
        if namespace in key:
            found.append(key)
        found += [f"{key} {member}" for member in _members(store, key) if namespace in member]
    return found


def _members(store: redis.Redis, key: str) -> list[str]:
    kind = store.type(key)
    if kind == "hash":
        return [*store.hkeys(key), *(v for v in store.hvals(key) if isinstance(v, str))]
    if kind == "zset":
        return list(store.zrange(key, 0, -1))
    if kind == "set":
        return list(store.smembers(key))
    if kind == "list":
        return list(store.lrange(key, 0, -1))
    return []
