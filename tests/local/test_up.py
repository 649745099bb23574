"""`osbctl up` and `osbctl demo` as real processes: they start everything, and nothing is left of them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from osb.cli.up import split
from osb.config import Settings
from osb.errors import ConfigError
from osb.flags import FLAGS, to_env
from osb.kube.client import connect as connect_kube
from osb.local import demo as story
from osb.local.folder import hold
from osb.local.redis import EmbeddedRedis
from osb.local.up import given_cluster
from osb.store.client import connect
from tests.local.test_supervise import until

COMMAND = [sys.executable, "-m", "osb.cli"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nothing of the caller's settings, and a temporary folder of its own."""
    known = {variable for flag in FLAGS for variable in flag.variables}
    kept = {name: value for name, value in os.environ.items() if name not in known}
    return {**kept, "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}


class Running:
    """A started command, its output in a file, and every process below it."""

    def __init__(self, arguments: list[str], env: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [*COMMAND, *arguments], env=env, stdout=out, stderr=out, start_new_session=True
            )
        self.seen: dict[int, psutil.Process] = {}

    @property
    def text(self) -> str:
        return self.log.read_text()

    def says(self, words: str) -> bool:
        if self.process.poll() is not None and words not in self.text:
            raise AssertionError(f"ended with {self.process.returncode}: {self.text[-2000:]}")
        for child in psutil.Process(self.process.pid).children(recursive=True):
            self.seen[child.pid] = child
        return words in self.text

    def left(self) -> list[str]:
        return [" ".join(one.cmdline()) for one in self.seen.values()
                if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]  # fmt: skip


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[object]:
    started: list[Running] = []

    def begin(*arguments: str) -> Running:
        one = Running(list(arguments), environment, tmp_path / f"out{len(started)}.log")
        started.append(one)
        return one

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait(10)


def test_the_demo_tells_its_whole_story_ends_with_zero_and_leaves_nothing(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    demo = start("demo", "--pod-ready", "0.2s")
    until("the end of the story", lambda: demo.says("done: the story took"), 75)
    assert demo.process.wait(30) == 0, demo.text
    for title in (
        "A pool that keeps",
        "A batch of ten",
        "Ten batches of one",
        "A pod is lost",
        "expires",
        "scaled down",
        "Five tasks",
    ):
        assert title in demo.text
    for body in (story.pool_body(), story.box_body("ten", 10), story.work_body()):
        assert "\n$ " + "\n".join(story.apply_lines(body)) + "\n" in demo.text
    assert "\n$ " + "\n".join(story.ones_lines()) + "\n" in demo.text
    assert "simulated pods become Ready after 0.2s" in demo.text
    assert "decided  " in demo.text
    assert re.search(r"create → all 10 endpoints in [\d,]+ ms", demo.text)
    assert "PodLost" in demo.text and "event    Expired" in demo.text
    assert "0 run, 4 succeeded, 1 failed; pods held: 0" in demo.text
    assert demo.left() == []
    assert list(tmp_path.glob("osb-demo-*")) == []


def test_up_runs_everything_and_is_gone_after_sigterm(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    up = start("up", "--workers", "1", "--leader-elect", "--kube-client-qps=500", "--zap-log-level", "debug")
    until("it is ready", lambda: up.says("\nready\n"), 60)
    assert "no kubeconfig was given" in up.text
    # Then probes answer, and Flower asks for its password
    probes = re.search(r"http://127.0.0.1:\d+/readyz", up.text)
    flower = re.search(r"(http://127.0.0.1:\d+)  user osb", up.text)
    assert probes and flower
    with urllib.request.urlopen(probes[0], timeout=3) as answer:
        assert answer.status == 200
    until("Flower answers", lambda: _status(f"{flower[1]}/api/workers") == 401)
    # When it is stopped, the Lease is given up and nothing is left
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(30) == 0, up.text
    assert "was not released" not in up.text
    assert up.left() == []
    assert list(tmp_path.glob("osb-up-*")) == []


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=3) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except urllib.error.URLError:
        return 0


def test_a_second_ctrl_c_does_not_wait_for_a_frozen_worker_and_leaves_nothing_either(start, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    up = start("up", "--no-flower", "--workers", "1")
    until("it is ready", lambda: up.says("\nready\n"), 60)
    (worker,) = [one for one in up.seen.values() if "worker1" in " ".join(one.cmdline())]
    worker.suspend()
    # When it is stopped, and again as long as it goes on (the second is another wish after half a second only)
    up.process.send_signal(signal.SIGINT)
    presses = time.monotonic()

    def ended() -> bool:
        if time.monotonic() - presses > 1 and len(pressed) < 1:
            pressed.append(up.process.send_signal(signal.SIGINT))
        return up.process.poll() is not None

    pressed: list[None] = []
    until("its end", ended, 12)  # the worker has 15 s of grace
    assert (up.process.returncode, len(pressed)) == (130, 1), up.text
    until("everything is gone", lambda: up.left() == [])
    assert list(tmp_path.glob("osb-up-*")) == []


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A Redis that the test may spoil."""
    own = EmbeddedRedis(tmp_path / "redis")
    own.start()
    yield own
    own.stop()


def test_two_ups_on_one_redis_are_one_installation_with_workers_of_different_names(
    start,
    server: EmbeddedRedis,  # type: ignore[no-untyped-def]
) -> None:
    # Given an `up` on a Redis of somebody's own, which evicts as soon as it is given a limit
    store = connect(server.url, name="test")
    store.redis.config_set("maxmemory-policy", "allkeys-lru")
    few = ("--no-flower", "--workers", "1", "--redis-url", server.url, "--installation", "one")
    first = start("up", "--sim", *few)
    until("it is ready", lambda: first.says("\nready\n"), 60)
    assert "warning: Redis" in first.text and "set maxmemory-policy noeviction" in first.text
    found = re.search(r"cluster: +(\S+)", first.text)
    assert found
    # When another one adds workers to it
    second = start("up", *few, "--kubeconfig", found[1])
    until("it is ready too", lambda: second.says("\nready\n"), 60)
    # Then their workers have names of their own
    names = store.redis.smembers("_kombu.binding.celery.pidbox")
    assert len([name for name in names if b"worker1@" in name]) == 2, names
    # And the end of the second leaves the installation's Lease to the first
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(30) == 0, second.text
    kube = connect_kube(Settings(kubeconfig=found[1], redis_url=server.url), pool=1)
    (lease,), _ = kube.all("lease", "opensandbox-system")
    assert lease["spec"]["holderIdentity"]
    kube.close()
    store.close()
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(30) == 0, first.text


def test_a_folder_in_use_is_refused_in_one_line_before_anything_starts(
    environment: dict[str, str], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    held = hold(kept, "--data-dir")
    command = [*COMMAND, "up", "--sim", "--data-dir", str(kept)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    os.close(held)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"osbctl: --data-dir={kept}: process {os.getpid()} works in this folder")
    assert [one.name for one in kept.iterdir()] == ["lock"] and len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("value", ["-1s", "soon"])
def test_a_demo_with_a_wrong_time_ends_with_one_line_and_leaves_nothing(
    value: str, environment: dict[str, str], tmp_path: Path
) -> None:
    command = [*COMMAND, "demo", f"--pod-ready={value}"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"osbctl: --pod-ready={value}: ") and len(ended.stderr.splitlines()) == 1
    assert list(tmp_path.glob("osb-demo*")) == []


def test_nothing_is_left_when_up_is_killed_and_a_dry_run_says_that_it_is_one(start) -> None:  # type: ignore[no-untyped-def]
    up = start("up", "--no-flower", "--workers", "1", "--dry-run")
    until("it is ready", lambda: up.says("\nready\n"), 60)
    assert len(up.seen) >= 5 and "\ndry run (--dry-run): " in up.text
    up.process.send_signal(signal.SIGKILL)
    up.process.wait(10)
    until("everything is gone", lambda: up.left() == [])


@pytest.mark.parametrize("arguments", [
    ["--bogus"], ["--kube-client-qps=fast"], ["--concurrency", "pool=0"], ["--expectation-timeout=5"], ["extra"],
    ["--workers", "0"], ["--pod-ready", "soon"], ["--zap-log-level"], ["--redis-url", "nonsense"],
    ["--kubeconfig", "/nowhere"], ["--kubeconfig", "/etc/passwd"], ["--sim", "--data-dir", "/proc/no"],
    ["--sim", "--kubeconfig", "/nowhere"], ["--pod-ready", "-1s"],
])  # fmt: skip
def test_an_unknown_flag_or_a_bad_value_ends_with_two_and_one_line(
    arguments: list[str], environment: dict[str, str]
) -> None:
    ended = subprocess.run([*COMMAND, "up", *arguments], env=environment, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.strip().splitlines()) == 1 and ended.stderr.startswith("osbctl: ")


@pytest.mark.parametrize("flag", ["--flower-port=", "--health-probe-bind-address=:", "--metrics-bind-address=:"])
def test_a_port_that_is_taken_is_told_before_anything_starts(flag: str, environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*COMMAND, "up", "--sim", f"{flag}{port}"]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (2, "") and f"port {port} cannot be used" in ended.stderr


def test_up_refuses_the_redis_of_another_cluster_and_leaves_it_alone(
    environment: dict[str, str], redis_url: str
) -> None:
    # Given a Redis that an installation on another cluster uses
    store = connect(redis_url, name="test")
    store.redis.set("osb:cluster", "its-uid theirs")
    before = store.redis.keys("*")
    # When a simulated cluster is started with it
    command = [*COMMAND, "up", "--sim", "--no-flower", "--redis-url", redis_url]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    # Then it is refused in one line with the remedy
    assert ended.returncode == 2 and "used by cluster its-uid (installation theirs)" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert store.pinned() == "its-uid theirs" and store.redis.keys("*") == before
    store.close()


def test_every_flag_of_the_reference_is_accepted_next_to_our_own() -> None:
    given = [f"--{flag.name}={flag.default or 'x'}" for flag in FLAGS if flag.type == "text"]
    own, rest = split(["--sim", *given, "--workers=3", "--snapshot-registry", "sim"])
    assert own.sim and own.workers == 3
    assert to_env(rest)["OSB_SNAPSHOT_REGISTRY"] == "sim"
    with pytest.raises(ConfigError, match="workers"):
        split(["--workers=many"])


def test_a_real_cluster_is_used_only_when_somebody_named_it() -> None:
    assert given_cluster({}) == ""
    assert given_cluster({"KUBECONFIG": "/a"}) == "/a"
    assert given_cluster({"OSB_KUBECONFIG": "/b", "KUBECONFIG": "/a"}) == "/b"
    assert given_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "in-cluster"
