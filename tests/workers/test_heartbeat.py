"""A worker's liveness file: fresh while it lives, also without Redis; stale once its loop stands still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from osb.local.redis import EmbeddedRedis, die_with_parent, wait_or_kill
from tests.doubles.waiting import wait_until


@dataclass
class Running:
    redis: EmbeddedRedis
    process: subprocess.Popen[bytes]
    file: Path

    def beats_again(self, seconds: float = 25.0) -> None:
        """The file is made anew after it was taken away."""
        self.file.unlink(missing_ok=True)
        wait_until(self.file.exists, seconds)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Running]:
    redis = EmbeddedRedis(tmp_path / "redis")
    redis.start()
    file = tmp_path / "alive"
    env = {**os.environ, "OSB_REDIS_URL": redis.url, "OSB_HEARTBEAT_FILE": str(file), "KUBECONFIG": "/nowhere"}
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "workers",
        "worker",
        "-n",
        "one@h",
        "-Q",
        "osb.pool.now",
        "-c",
        "1",
    ]
    with (tmp_path / "log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--without-gossip", "--without-mingle"], env=env, cwd=tmp_path, stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        wait_until(file.exists, 40)
        yield Running(redis, process, file)
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        wait_or_kill(process, 15)
        redis.stop()


def test_the_heartbeat_goes_on_while_redis_is_away_and_after_it_is_back(worker: Running) -> None:
    worker.beats_again()
    worker.redis.kill()
    worker.beats_again()
    worker.beats_again()
    worker.redis.start()
    worker.beats_again()
    worker.beats_again()
    assert worker.process.poll() is None
