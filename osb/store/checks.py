"""Look at a Redis server before it is trusted: what would lose data is refused with advice at start, not at night.

In: a `Store`. Out: findings for the log, `osbctl doctor` and a metric. `fatal` findings must stop the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import redis

from osb.errors import StoreDown
from osb.store.client import Store
from osb.store.scripts import redis_errors

Level = Literal["fatal", "warning"]
_OLDEST = (6, 2)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: what it is, and what to do about it."""

    level: Level
    text: str
    fix: str


def check(store: Store) -> list[Finding]:
    """Everything wrong with the server, the fatal first; empty when all is well.

    Never raises for a server's answer.
    """
    try:
        with redis_errors("check Redis"):
            info: dict[str, Any] = store.redis.info()
    except StoreDown as down:
        return [Finding("fatal", str(down), "check REDIS_URL, the network, the password and that the server is up")]
    settings = _settings(store.redis)
    found = [*_server(info), *_memory(info, settings), *_persistence(info, settings)]
    return sorted(found, key=lambda finding: finding.level != "fatal")


def _settings(client: redis.Redis) -> Mapping[str, str]:
    """CONFIG GET, or nothing where a hosted server forbids it."""
    try:
        with redis_errors("read the server's settings"):
            found = client.config_get("maxmemory*") | client.config_get("append*")
    except StoreDown:
        return {}
    return {_text(name): _text(value) for name, value in found.items()}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _server(info: Mapping[str, Any]) -> Iterator[Finding]:
    version = str(info.get("redis_version", "0"))
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if parts < _OLDEST:
        yield Finding("fatal", f"Redis {version} is too old", "use Redis 6.2 or newer, or Valkey")
    if info.get("cluster_enabled"):
        yield Finding(
            "fatal",
            "Redis runs in cluster mode, which Celery's broker and our scripts cannot use",
            "use a single server (with replicas and Sentinel if you like), cluster-enabled no",
        )
    if info.get("role") not in (None, "master"):
        yield Finding(
            "fatal",
            f"this server is a {info.get('role')} and refuses writes",
            "point REDIS_URL at the primary",
        )
    if info.get("loading"):
        yield Finding("warning", "the server is still loading its data", "wait; processes retry by themselves")


def _memory(info: Mapping[str, Any], settings: Mapping[str, str]) -> Iterator[Finding]:
    policy = settings.get("maxmemory-policy") or _text(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        yield Finding(
            "fatal" if int(info.get("maxmemory", 0)) else "warning",
            f"maxmemory-policy is {policy}: under memory pressure queues, locks and ledgers are thrown away",
            "set maxmemory-policy noeviction, and give this installation its own server",
        )


def _persistence(info: Mapping[str, Any], settings: Mapping[str, str]) -> Iterator[Finding]:
    if not info.get("aof_enabled"):
        yield Finding(
            "warning",
            "the append-only file is off: a restart of Redis rebuilds every ledger and recycles idle pods",
            "set appendonly yes and appendfsync everysec",
        )
    elif settings.get("appendfsync", "everysec") == "no":
        yield Finding("warning", "appendfsync is no: a crash loses more than a second", "set appendfsync everysec")
    if info.get("aof_last_write_status", "ok") != "ok":
        yield Finding("warning", "the last write of the append-only file failed", "free disk space for Redis")
