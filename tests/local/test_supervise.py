"""Programs are restarted, stopped in order, and never outlive their supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from osb.errors import ConfigError
from osb.local import folder
from osb.local.supervise import Program, Supervisor
from osb.local.up import Everything, Options
from osb.store.client import connect

WAITS = [sys.executable, "-c", "import time\nwhile True: time.sleep(60)"]
DEAF = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True)\n"
        "while True: time.sleep(60)"]  # fmt: skip


def until(what: str, condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    end, pause = time.monotonic() + seconds, threading.Event()
    while not (found := condition()):
        assert time.monotonic() < end, f"never happened: {what}"
        pause.wait(0.02)
    return found


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, said: list[str]) -> Iterator[Supervisor]:
    one = Supervisor(tmp_path, say=said.append)
    yield one
    one.stop()


def test_a_program_that_ends_is_started_again_and_told(supervisor: Supervisor, said: list[str]) -> None:
    one = supervisor.start(Program(name="short", command=[sys.executable, "-c", "raise SystemExit(3)"]))

    def restarted() -> bool:
        supervisor.watch()
        return one.restarts >= 2

    until("two restarts", restarted)
    assert said[0].startswith("short ended (exit 3), starts again in 0.5 s")
    assert "in 1 s" in said[1]


def test_the_end_of_a_vital_program_is_an_error_with_its_last_words(supervisor: Supervisor) -> None:
    command = [sys.executable, "-c", "print('no room'); raise SystemExit(1)"]
    one = supervisor.start(Program(name="cluster", command=command, vital=True))
    until("its end", lambda: not one.alive)
    with pytest.raises(ConfigError, match=r"cluster ended \(exit 1\): no room"):
        supervisor.watch()


def test_who_loses_patience_does_not_wait_for_the_grace_of_a_deaf_program(tmp_path: Path) -> None:
    one = Supervisor(tmp_path, hurry=lambda: True)
    deaf = one.start(Program(name="deaf", command=DEAF, grace=100.0))
    until("it is deaf", lambda: "deaf" in deaf.tail())
    started = time.monotonic()
    one.stop()
    assert time.monotonic() - started < 50 and not deaf.alive


def test_a_folder_is_held_by_one_process_until_that_ends(tmp_path: Path) -> None:
    code = "import sys, pathlib; from osb.local.folder import hold; hold(pathlib.Path(sys.argv[1]), '--data-dir')\n"
    holds = [sys.executable, "-c", code + "print('held', flush=True); sys.stdin.read()", str(tmp_path)]
    with subprocess.Popen(holds, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match=rf"--data-dir={tmp_path}: process {other.pid} works in this folder"):
            folder.hold(tmp_path, "--data-dir")
        other.kill()
    os.close(folder.hold(tmp_path, "--data-dir"))


def test_a_command_that_does_not_exist_is_an_error_that_names_it(supervisor: Supervisor) -> None:
    with pytest.raises(ConfigError, match="broken cannot be started"):
        supervisor.start(Program(name="broken", command=["/does/not/exist"]))


def test_stop_kills_what_ignores_sigterm_after_its_grace(supervisor: Supervisor) -> None:
    deaf = supervisor.start(Program(name="deaf", command=DEAF, grace=0.2))
    good = supervisor.start(Program(name="good", command=WAITS))
    until("it listens to nothing", lambda: deaf.tail() == "deaf")
    supervisor.stop()
    assert not psutil.pid_exists(deaf.pid) and not psutil.pid_exists(good.pid)


def test_nothing_is_left_when_the_supervisor_itself_is_killed(tmp_path: Path) -> None:
    # Given a process that supervises two programs, one of which ignores SIGTERM
    script = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from osb.local.supervise import Program, Supervisor
        one = Supervisor(Path({str(tmp_path)!r}))
        pids = [one.start(Program(name=n, command=c)).pid for n, c in (("a", {WAITS!r}), ("b", {DEAF!r}))]
        print(*pids, flush=True)
        time.sleep(60)
    """)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(text) for text in parent.stdout.readline().split()]
    assert len(pids) == 2 and all(psutil.pid_exists(pid) for pid in pids)
    # When it is killed
    parent.send_signal(signal.SIGKILL)
    parent.wait(5)
    parent.stdout.close()
    # Then both are gone
    until("both are gone", lambda: not any(_runs(pid) for pid in pids))


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    stale, other = tmp_path / f"osb-x-{ended.pid}-abc", tmp_path / "osb-y-1-abc"
    mine = tmp_path / f"osb-x-{os.getpid()}-abc"
    for one in (stale, other, mine):
        one.mkdir()
    made = folder.make("osb-x")
    assert made.is_dir() and mine.is_dir() and other.is_dir() and not stale.exists()


def test_what_an_earlier_run_left_in_the_log_is_not_taken_for_words_of_this_one(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    (tmp_path / "late.log").write_text("ready\n")
    one = supervisor.start(Program(name="late", command=WAITS))
    assert one.tail() == ""


def test_a_redis_that_was_killed_comes_back_on_its_port_with_its_data(tmp_path: Path) -> None:
    # Given the embedded Redis of an installation, with something in it
    said: list[str] = []
    everything = Everything(Options(folder=tmp_path), say=said.append)
    everything.start_servers()
    try:
        assert everything.redis is not None
        store = connect(everything.redis_url, name="test")
        store.redis.set("kept", "1")
        # When it is killed, and the supervisor looks again
        os.kill(everything.redis.pid, signal.SIGKILL)
        until("it is gone", lambda: bool(everything.redis and everything.redis.ended))
        everything.watch()
        # Then the same address answers with the same data, and it was said once
        assert connect(everything.redis_url, name="test").redis.get("kept") == b"1"
        everything.watch()
        assert len(said) == 1 and "redis ended (SIGKILL)" in said[0]
    finally:
        everything.stop()
