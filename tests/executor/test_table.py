"""The rules of the task table with pretended processes and a clock of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from osb.executor import main as program
from osb.executor.fake import Fakes
from osb.executor.process import StartError
from osb.executor.sidecar import MARK, Sidecar, main_process
from osb.executor.table import Refused, Table
from osb.executor.task import Folder, Task
from tests.doubles.waiting import wait_until


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def order(name: str, *words: str, **env: str) -> dict[str, Any]:
    process = {"command": list(words or ("serve",)), "env": [{"name": k, "value": v} for k, v in env.items()]}
    return {"name": name, "process": process}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def table(clock: Clock) -> Table:
    return Table(Folder(None), Fakes(clock), clock=clock)


def state(table: Table) -> dict[str, str]:
    return {item["name"]: next(iter(item["processStatus"])) for item in table.listed()}


def test_sigterm_then_sigkill_after_ten_seconds(table: Table, clock: Clock) -> None:
    table.sync([order("a", OSB_FAKE_STUBBORN="1")])
    table.sync([])
    clock.now += 9.9
    assert state(table) == {"a": "running"}
    clock.now += 0.2
    table.tick()
    assert state(table) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"started": 1e300},
        {"started": float("nan")},
        {"pid": 1.5},
        {"exit_code": "0"},
        {"process": {"command": ["a"], "timeoutSeconds": 10**400}},
        {"process": {"command": 7}},
        {"name": "other"},
    ],
    ids=str,
)
def test_a_stored_task_that_is_unusable_is_told_and_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    folder = Folder(tmp_path)
    folder.save(Task(name="good", process={"command": ["serve"]}))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "task.json").write_text(json.dumps({"name": "bad", "process": {"command": ["a"]}} | changes))
    table = Table(folder, Fakes())
    assert list(state(table)) == ["good"]
    assert "bad is unusable" in capsys.readouterr().err


def test_an_unkillable_task_stays_listed(table: Table, clock: Clock) -> None:
    table.sync([order("a", OSB_FAKE_STUBBORN="forever")])
    table.sync([])
    clock.now += 1000
    table.tick()
    assert state(table) == {"a": "running"}


def test_a_name_that_is_being_stopped_must_be_sent_again_once_it_is_gone(table: Table, clock: Clock) -> None:
    table.sync([order("a", OSB_FAKE_STUBBORN="1")])
    table.sync([])
    table.sync([order("a")])
    clock.now += 11
    table.tick()
    assert state(table) == {}
    table.sync([order("a")])
    assert state(table) == {"a": "running"}


def test_a_finished_task_is_not_active(table: Table) -> None:
    table.sync([order("a", "true")])
    table.sync([order("a", "true"), order("b")])
    assert state(table) == {"a": "terminated", "b": "running"}


def test_of_two_new_tasks_one_starts_and_the_other_is_refused(table: Table) -> None:
    with pytest.raises(Refused, match="failed to create task b"):
        table.sync([order("a"), order("b")])
    assert state(table) == {"a": "running"}


def test_without_work_nobody_needs_to_look_again(table: Table, clock: Clock) -> None:
    assert table.tick() is None
    table.sync([order("a")])
    assert table.tick() is None


def test_a_time_limit_asks_to_be_looked_at_then(table: Table, clock: Clock) -> None:
    limited = order("a")
    limited["process"]["timeoutSeconds"] = 60
    table.sync([limited])
    assert table.tick() == pytest.approx(60)
    clock.now += 61
    (found,) = table.listed()
    assert found["processStatus"]["terminated"]["reason"] == "TaskTimeout"


def test_a_task_that_timed_out_keeps_the_next_one_waiting_until_it_is_gone(table: Table, clock: Clock) -> None:
    limited = order("a", OSB_FAKE_STUBBORN="1")
    limited["process"]["timeoutSeconds"] = 1
    table.sync([limited])
    clock.now += 2
    table.tick()
    table.sync([limited, order("b")])
    assert state(table) == {"a": "terminated", "b": "waiting"}
    clock.now += 11
    table.tick()
    assert state(table) == {"a": "terminated", "b": "running"}


def test_the_main_container_is_found_by_its_mark_and_the_oldest_process_wins() -> None:
    name = "test-" + Path(__file__).stem
    env = {"PATH": "/usr/bin:/bin", MARK: name}
    assert main_process(name) is None
    with pytest.raises(StartError, match="shareProcessNamespace"):
        Sidecar(name).environment(Task("t", {"command": ["true"]}))
    first = subprocess.Popen(["sleep", "60"], env={**env, "WHO": "main"})
    try:
        wait_until(lambda: main_process(name) == first.pid)
        task = Task("t", {"command": ["true"], "env": [{"name": "X", "value": "1"}], "workingDir": "/tmp"})
        sidecar = Sidecar(name)
        assert sidecar.environment(task) == {**env, "WHO": "main", "X": "1"}
        assert f"--wd=/proc/{first.pid}/root/tmp" in sidecar.prefix(task)
        with pytest.raises(StartError, match="workingDir"):
            sidecar.folder(Task("t", {"command": ["true"], "workingDir": "/nowhere"}))
    finally:
        first.kill()
        first.wait()


def test_addresses_are_a_range_or_a_file(tmp_path: Path) -> None:
    assert program.addresses("127.16.0.254-127.16.1.1") == ["127.16.0.254", "127.16.0.255", "127.16.1.0", "127.16.1.1"]
    (tmp_path / "list").write_text("127.16.0.1\n\n::1\n")
    assert program.addresses(str(tmp_path / "list")) == ["127.16.0.1", "::1"]
