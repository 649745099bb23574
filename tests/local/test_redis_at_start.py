"""A Redis that would lose or refuse what we write is told by every process at its start, with what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from osb.flags import FLAGS
from osb.local.redis import EmbeddedRedis, free_port
from osb.store.client import Store, connect
from tests.local.test_supervise import until

CELERY = [sys.executable, "-m", "celery"]
PROCESSES = {
    "watch": [sys.executable, "-m", "osb.cli", "watch"],
    "worker": [*CELERY, "-A", "workers", "worker", "-P", "threads", "-c", "1", "-n", "alone@%h"],
    "forking worker": [*CELERY, "-A", "workers", "worker", "-P", "prefork", "-c", "1", "-n", "alone@%h"],
    "beat": [*CELERY, "-A", "beat", "beat"],
}
UP = {"up": [sys.executable, "-m", "osb.cli", "up", "--sim", "--no-flower"]}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A cluster that is not there: what is said of Redis does not wait for it."""
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{free_port()}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster],
              "contexts": [context], "users": [{"name": "u", "user": {}}]}  # fmt: skip
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    known = {variable for flag in FLAGS for variable in flag.variables}
    kept = {name: value for name, value in os.environ.items() if name not in known}
    return {**kept, "TMPDIR": str(tmp_path), "KUBECONFIG": str(tmp_path / "kubeconfig"), "OSB_NO_LEASE": "true",
            "OSB_HEALTH_PROBE_BIND_ADDRESS": "0"}  # fmt: skip


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Store]:
    """A store on a server whose settings the test may spoil."""
    server = EmbeddedRedis(tmp_path / "redis")
    store = connect(server.start())
    yield store
    store.close()
    server.stop()


def _evicts(own: Store) -> None:
    own.redis.config_set("maxmemory-policy", "allkeys-lru")
    own.redis.config_set("maxmemory", "100mb")


def _reads_only(own: Store) -> None:
    own.redis.replicaof("127.0.0.1", free_port())


@pytest.mark.parametrize("process", [*PROCESSES, *UP])
@pytest.mark.parametrize(("spoil", "words"), [(_evicts, "set maxmemory-policy noeviction"), (_reads_only, "primary")])
def test_no_process_starts_on_a_redis_that_must_not_be_trusted(
    process: str, spoil: Callable[[Store], None], words: str, own: Store, environment: dict[str, str]
) -> None:
    spoil(own)
    port = own.redis.connection_pool.connection_kwargs["port"]
    env = {**environment, "REDIS_URL": f"redis://127.0.0.1:{port}/0"}
    ended = subprocess.run({**PROCESSES, **UP}[process], env=env, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2, ended.stderr
    assert words in ended.stderr and f"127.0.0.1:{port}" in ended.stderr
    assert process != "up" or len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize(
    ("there", "words"), [(True, "set maxmemory-policy noeviction"), (False, "is REDIS_URL right?")]
)
def test_every_process_warns_of_a_redis_that_is_away_or_might_evict_and_goes_on(
    process: str, there: bool, words: str, own: Store, environment: dict[str, str], tmp_path: Path
) -> None:
    own.redis.config_set("maxmemory-policy", "allkeys-lru")  # without a limit nothing is thrown away yet
    port = own.redis.connection_pool.connection_kwargs["port"] if there else free_port()
    log = tmp_path / "log"
    with log.open("wb") as out, subprocess.Popen(
        PROCESSES[process], env={**environment, "REDIS_URL": f"redis://127.0.0.1:{port}/0"}, stdout=out, stderr=out,
        cwd=tmp_path,
    ) as running:  # fmt: skip
        until("the warning", lambda: words in log.read_text() or running.poll() is not None, 30)
        ended = running.poll()
        running.kill()
    assert words in log.read_text()
    assert ended is None, log.read_text()
