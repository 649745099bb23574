"""Real processes: stopping all of them, time limits, restarts of the executor, one task at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

from tests.doubles.waiting import wait_until
from tests.executor.conftest import Obj, Running, ended, shell, task


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def pid_in(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text().strip() != "")
    return int(path.read_text())


def stubborn(mark: Path) -> Obj:
    """A task that ignores SIGTERM; its process writes its id to `mark`."""
    return shell("s-0", f"trap '' TERM; echo $$ > {mark}; while true; do sleep 0.2; done")


def test_a_stopped_task_is_listed_until_nothing_of_it_is_left(executor: Running, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    executor.set(stubborn(mark))
    process = pid_in(mark)
    listed = executor.set()
    assert [item["name"] for item in listed] == ["s-0"]
    assert "deletionTimestamp" in listed[0]
    assert alive(process)
    executor.until(lambda found: not found)
    assert not alive(process)
    assert not (executor.folder / "s-0").exists()


def test_a_process_that_ignores_sigterm_is_killed_with_its_children(executor: Running, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    executor.set(
        shell(
            "s-0",
            f"trap '' TERM; (trap '' TERM; echo $(exec sh -c 'echo $PPID') > {mark}; sleep 300) & sleep 300",
        )
    )
    child = pid_in(mark)
    executor.clear()
    wait_until(lambda: not alive(child))


def test_a_background_process_outlives_its_finished_task_and_is_stopped_with_it(
    executor: Running, tmp_path: Path
) -> None:
    """Sandboxes start their main program that way."""
    mark = tmp_path / "pid"
    executor.set(shell("s-0", f"sleep 300 & echo $! > {mark}"))
    executor.until(ended)
    program = pid_in(mark)
    assert alive(program)
    executor.clear()
    assert not alive(program)


def test_a_process_that_left_the_session_is_stopped_with_its_task(executor: Running, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    detach = f"setsid sh -c 'trap \"\" TERM; echo $$ > {mark}; while true; do sleep 0.2; done' &"
    executor.set(shell("s-0", detach))
    executor.until(ended)
    program = pid_in(mark)
    assert os.getsid(program) == program
    executor.stop(kill=True)
    executor.start()
    assert alive(program)
    executor.clear()
    assert not alive(program)


def test_a_detached_process_of_another_task_is_left_alone(executor: Running, tmp_path: Path) -> None:
    """Nor is one that was given a mark which is not this task's."""
    env = {**os.environ, "OSB_TASK_ID": "another"}
    other = subprocess.Popen(["sleep", "60"], env=env, start_new_session=True)
    try:
        executor.set(shell("s-0", "sleep 60", env=[{"name": "OSB_TASK_ID", "value": "another"}]))
        executor.clear()
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_time_limit_stays_the_reason_after_the_process_ended(executor: Running, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    executor.set(shell("s-0", f"echo $$ > {mark}; exec sleep 300", timeoutSeconds=1))
    process = pid_in(mark)
    executor.until(ended)
    wait_until(lambda: not alive(process))
    (found,) = executor.get()
    status = found["processStatus"]["terminated"]
    assert (status["exitCode"], status["reason"]) == (137, "TaskTimeout")
    assert status["message"] == "Task exceeded timeout of 1 seconds"


def test_a_present_name_is_left_alone_even_with_another_spec(executor: Running) -> None:
    first = executor.set(task("s-0", "sleep", args=["60"]))
    again = executor.set(task("s-0", "sleep", args=["61"]))
    assert again == first


def test_a_second_task_beside_an_active_one_is_refused(executor: Running) -> None:
    executor.set(task("s-0", "sleep", args=["60"]))
    status, _ = executor.call("POST", "/setTasks", [task("s-0", "sleep"), task("s-1", "sleep")])
    assert status == 500
    assert [item["name"] for item in executor.get()] == ["s-0"]


def test_a_replacing_task_waits_until_the_other_one_is_gone(executor: Running, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    executor.set(stubborn(mark))
    old = pid_in(mark)
    executor.set(task("s-1", "sleep", args=["60"]))
    by_name = {item["name"]: item["processStatus"] for item in executor.get()}
    assert by_name["s-1"] == {"waiting": {"reason": "Pending"}}
    executor.until(lambda found: [item["name"] for item in found] == ["s-1"] and "running" in found[0]["processStatus"])
    assert not alive(old)


def test_a_pending_task_that_is_taken_back_goes_at_once(executor: Running, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    executor.set(stubborn(mark))
    pid_in(mark)
    executor.set(task("s-1", "sleep", args=["60"]))
    assert [item["name"] for item in executor.set()] == ["s-0"]


def test_a_restarted_executor_takes_over_the_running_task(executor: Running) -> None:
    before = executor.set(task("s-0", "sleep", args=["60"]))
    process = int((executor.folder / "s-0" / "pid").read_text())
    executor.stop(kill=True)
    executor.start()
    assert executor.get() == before
    assert alive(process)
    executor.clear()
    assert not alive(process)


def test_a_task_that_failed_while_the_executor_was_down_is_not_run_again(executor: Running, tmp_path: Path) -> None:
    go = tmp_path / "go"
    executor.set(shell("s-0", f"while [ ! -e {go} ]; do sleep 0.1; done; exit 5"))
    executor.stop(kill=True)
    go.touch()
    wait_until((executor.folder / "s-0" / "exit").exists)
    executor.start()
    (found,) = executor.set(shell("s-0", "exit 0"))
    assert found["processStatus"]["terminated"]["exitCode"] == 5


def test_a_task_that_went_down_with_its_container_is_started_again(executor: Running) -> None:
    executor.set(task("s-0", "sleep", args=["60"]))
    process = int((executor.folder / "s-0" / "pid").read_text())
    executor.stop(kill=True)
    os.killpg(process, signal.SIGKILL)
    wait_until(lambda: not alive(process))
    executor.start()
    assert executor.get() == []


def test_a_pid_that_now_belongs_to_another_process_is_never_signalled(executor: Running) -> None:
    import json
    import subprocess

    executor.set(task("s-0", "sleep", args=["60"]))
    process = int((executor.folder / "s-0" / "pid").read_text())
    executor.stop(kill=True)
    os.killpg(process, signal.SIGKILL)
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        path = executor.folder / "s-0" / "task.json"
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "pid": stranger.pid, "ticks": record["ticks"] - 100}))
        executor.start()
        assert executor.get() == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_stop_that_was_begun_is_finished_by_the_next_executor(executor: Running, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    executor.set(stubborn(mark))
    process = pid_in(mark)
    executor.set()
    executor.stop(kill=True)
    executor.start()
    executor.until(lambda found: not found)
    wait_until(lambda: not alive(process))


def test_a_killed_wrapper_is_a_crash(executor: Running) -> None:
    executor.set(task("s-0", "sleep", args=["60"]))
    process = int((executor.folder / "s-0" / "pid").read_text())
    os.killpg(process, signal.SIGKILL)
    (found,) = executor.until(ended)
    status = found["processStatus"]["terminated"]
    assert (status["exitCode"], status["reason"]) == (137, "ProcessCrashed")
    assert status["startedAt"] == status["finishedAt"]


def test_an_idle_executor_is_small_and_does_not_wake_up(executor: Running) -> None:
    executor.set(task("s-0", "sleep", args=["60"]))
    assert executor.process is not None
    status = Path(f"/proc/{executor.process.pid}/status")

    def numbers() -> dict[str, int]:
        rows = (line.split() for line in status.read_text().splitlines())
        return {row[0]: int(row[1]) for row in rows if row[0] in ("VmRSS:", "voluntary_ctxt_switches:")}

    before = numbers()
    assert before["VmRSS:"] < 30 * 1024
    executor.process.send_signal(signal.SIGWINCH)  # something to wait for: it is not handled and does nothing
    threading.Event().wait(1.0)
    assert numbers()["voluntary_ctxt_switches:"] - before["voluntary_ctxt_switches:"] <= 3


def test_garbage_in_the_data_folder_does_not_stop_the_executor(executor: Running) -> None:
    executor.stop()
    for name, text in (("a", "{"), ("b", '{"name": 3}'), ("c", "[]")):
        folder = executor.folder / name
        folder.mkdir(parents=True)
        (folder / "task.json").write_text(text)
    (executor.folder / "file").write_text("x")
    executor.start()
    assert executor.get() == []
