"""The image: what it copies exists, its probe tells the living from the dead; the uninstall gives the Lease up."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from osb.kube.lease import LeaseState
from osb.reconcile.uninstall import QUIET_SECONDS, hand_over
from tests.doubles.chart import ROOT

PROBE = ROOT / "images" / "controller" / "probe.py"


def _probe(what: str, heartbeat: Path, redis: str = "redis://127.0.0.1:1/0") -> int:
    env = {"OSB_HEARTBEAT_FILE": str(heartbeat), "OSB_REDIS_URL": redis}
    done = subprocess.run([sys.executable, "-IS", str(PROBE), what], env=env, capture_output=True, check=False)
    assert (done.returncode == 0) == (not done.stderr)
    return done.returncode


def test_a_process_with_a_fresh_heartbeat_is_alive_whatever_redis_does(tmp_path: Path) -> None:
    heartbeat = tmp_path / "alive"
    assert _probe("alive", heartbeat) == 1
    heartbeat.touch()
    assert _probe("alive", heartbeat) == 0
    assert _probe("ready", heartbeat) == 1


def test_a_process_whose_loop_stands_still_is_dead(tmp_path: Path) -> None:
    heartbeat = tmp_path / "alive"
    heartbeat.touch()
    long_ago = heartbeat.stat().st_mtime - 61
    os.utime(heartbeat, (long_ago, long_ago))
    assert _probe("alive", heartbeat) == 1


def test_a_process_that_reaches_redis_is_ready(tmp_path: Path) -> None:
    heartbeat = tmp_path / "alive"
    heartbeat.touch()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"redis://:p%40ss@127.0.0.1:{server.getsockname()[1]}/0"
        assert _probe("ready", heartbeat, address) == 0


@pytest.mark.parametrize("name", ["controller", "committer", "executor"])
def test_an_image_copies_only_what_the_repository_has(name: str) -> None:
    text = (ROOT / "images" / name / "Dockerfile").read_text()
    copied = [line.split() for line in text.splitlines() if line.startswith("COPY") and "--from" not in line]
    sources = [part for line in copied for part in line[1:-1] if not part.startswith("--")]
    assert sources and all((ROOT / source).exists() for source in sources)


def test_the_controller_s_image_holds_every_package_and_runs_without_root() -> None:
    text = (ROOT / "images" / "controller" / "Dockerfile").read_text()
    for package in ("osb", "workers", "beat"):
        assert f"COPY {package} ./{package}" in text
    assert re.search(r"^USER 65532:65532$", text, re.MULTILINE)
    assert 'CMD ["osbctl", "watch"]' in text
    assert "flower==" in (ROOT / "requirements.lock").read_text()


@dataclass
class Renewed:
    """A Lease that somebody of ours renews until second `until`; time passes with every pause."""

    until: float
    holder: str = "osb_here"
    now: float = 0.0
    released: list[float] = field(default_factory=list)

    def observe(self) -> LeaseState:
        version = str(int(min(self.now, self.until) // 5))
        return LeaseState(self.holder, self.holder == "osb_here", "", 0, version, 15)

    def release(self) -> None:
        self.released.append(self.now)

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def test_the_lease_is_released_only_when_nobody_renews_it_any_more() -> None:
    lease = Renewed(until=20.0)
    assert hand_over(lease, clock=lease.clock, pause=lease.pause)  # type: ignore[arg-type]  # the part that is used
    (at,) = lease.released
    assert 20.0 + QUIET_SECONDS <= at < 30.0 + QUIET_SECONDS


def test_a_lease_of_somebody_else_is_left_alone() -> None:
    lease = Renewed(until=0.0, holder="the-reference")
    assert hand_over(lease, clock=lease.clock, pause=lease.pause)  # type: ignore[arg-type]  # as above
    assert lease.released == []


def test_a_lease_that_is_renewed_for_ever_is_reported() -> None:
    lease = Renewed(until=10_000.0)
    assert not hand_over(lease, clock=lease.clock, pause=lease.pause)  # type: ignore[arg-type]  # as above
    assert lease.released == []
