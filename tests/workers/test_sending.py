"""`celery -A workers call`: what cannot be sent is one line that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from celery.exceptions import QueueNotFound
from kombu.exceptions import OperationalError

from workers.app import app


def call(redis_url: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "celery", "-A", "workers", "call", *words]
    environment = {**os.environ, "REDIS_URL": redis_url}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


AWAY = "redis://:geheim@127.0.0.1:1/0"


@pytest.mark.parametrize(("url", "words", "said"), [
    (AWAY, ("osb.reconcile.pool", "--args", '["a", "b"]'), "is Redis up, and is REDIS_URL=redis://:***@127.0.0.1:1/0"),
    ("", ("osb.reconcile.nope",), "osb.reconcile.nope is no task; there are osb.reconcile.pool,"),
    ("", ("nonsense",), "nonsense is no task"),
    ("", ("osb.reconcile.pool", "--queue", "nope"), "no such queue; there are osb.pool.now,"),
])  # fmt: skip
def test_what_celery_cannot_send_is_one_line_that_says_what_to_do(
    redis_url: str, url: str, words: tuple[str, ...], said: str
) -> None:
    done = call(url or redis_url, *words)
    assert done.returncode != 0 and said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "geheim" not in done.stderr


def test_what_can_be_sent_is_sent(redis_url: str) -> None:
    import redis

    done = call(redis_url, "osb.reconcile.pool", "--args", '["a", "b"]')
    assert (done.returncode, done.stderr) == (0, "")
    with redis.Redis.from_url(redis_url) as client:
        assert client.llen("osb.pool.now") == 1


def test_other_callers_see_the_errors_that_they_know() -> None:
    with pytest.raises(QueueNotFound, match=r"osb\.reconcile\.nope is no task"):
        app.send_task("osb.reconcile.nope")
    away = app.connection_for_write(AWAY)
    with pytest.raises(OperationalError, match="is Redis up"):
        app.send_task("osb.reconcile.pool", ("a", "b"), connection=away, retry=False)
