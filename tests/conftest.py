"""Fixtures that every folder uses: an own Redis per test session (and xdist worker), emptied before each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from osb.local.redis import EmbeddedRedis
from osb.store.client import Store, connect

# A busy machine makes an example slow, not wrong. In CI the examples are the same each time: what a change broke fails
# there, what chance finds is found by people.
hypothesis.settings.register_profile(
    "osb",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=bool(os.environ.get("OSB_TEST_FIXED")),
)
hypothesis.settings.load_profile("osb")

os.environ.pop("REDIS_URL", None)  # tests flush, freeze and kill their server: never the one of the environment


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster",
        choices=("sim", "real", "both"),
        default="sim",
        help="what the acceptance tests run on: the simulated cluster (default), a real control plane, or both",
    )


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(Path(tmp_path_factory.mktemp("redis")))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    import redis

    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    return redis_server.url


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    connected = connect(redis_url)
    yield connected
    connected.close()
