"""The exact exchanges that controllers know, and errors as they come."""

from __future__ import annotations

import json
import re
import socket

import pytest

from tests.executor.conftest import Running, ended, shell, task

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def test_a_start_answers_with_the_running_task(executor: Running) -> None:
    status, text = executor.call("POST", "/setTasks", [task("sbx-0", "sleep", args=["60"])])
    assert status == 200
    assert text.endswith("]\n")
    (found,) = json.loads(text)
    assert list(found) == ["name", "process", "processStatus"]
    assert found["process"] == {"command": ["sleep"], "args": ["60"]}
    assert TIME.fullmatch(found["processStatus"]["running"]["startedAt"])


def test_a_finished_task_shows_code_reason_and_times(executor: Running) -> None:
    executor.set(task("sbx-0", "echo", args=["hi"]))
    (found,) = executor.until(ended)
    status = found["processStatus"]["terminated"]
    assert {key: status[key] for key in ("exitCode", "reason")} == {"exitCode": 0, "reason": "Succeeded"}
    assert TIME.fullmatch(status["startedAt"])
    assert TIME.fullmatch(status["finishedAt"])
    assert (executor.folder / "sbx-0" / "stdout.log").read_text() == "hi\n"
    assert (executor.folder / "sbx-0" / "exit").read_text() == "0"


def test_a_failure_keeps_its_exit_code(executor: Running) -> None:
    executor.set(shell("sbx-0", "echo oops >&2; exit 7"))
    (found,) = executor.until(ended)
    assert found["processStatus"]["terminated"]["exitCode"] == 7
    assert found["processStatus"]["terminated"]["reason"] == "Failed"
    assert (executor.folder / "sbx-0" / "stderr.log").read_text() == "oops\n"


def test_environment_and_folder_reach_the_process_and_the_token_does_not(tmp_path: object) -> None:
    from pathlib import Path

    from osb.local.redis import free_port

    folder = Path(str(tmp_path))
    running = Running(folder / "tasks", free_port(), env={"OSB_EXECUTOR_TOKEN": "secret"}).start()
    try:
        order = shell(
            "s-0",
            'pwd; echo "$A-$OSB_EXECUTOR_TOKEN-"',
            env=[{"name": "A", "value": "v w"}],
            workingDir=str(folder),
        )
        assert running.call("POST", "/setTasks", [order])[0] == 401
        assert running.call("POST", "/setTasks", [order], Authorization="Bearer wrong")[0] == 401
        assert running.call("GET", "/health")[0] == 200
        assert running.call("POST", "/setTasks", [order], Authorization="Bearer secret")[0] == 200
        log = folder / "tasks" / "s-0" / "stdout.log"
        from tests.doubles.waiting import wait_until

        wait_until(lambda: log.read_text().count("\n") == 2)
        assert log.read_text() == f"{folder}\nv w--\n"
    finally:
        running.stop()


def test_a_start_that_fails_is_a_500_and_leaves_no_task(executor: Running) -> None:
    status, text = executor.call("POST", "/setTasks", [task("sbx-0", "echo", workingDir="/nowhere")])
    assert status == 500
    body = json.loads(text)
    assert body["code"] == "Internal Server Error"
    assert body["message"].startswith("failed to sync tasks: failed to create task sbx-0: failed to start task: ")
    assert executor.get() == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/setTasks", None, 405),
        ("POST", "/getTasks", b"", 405),
        ("GET", "/nothing", None, 404),
        ("POST", "/setTasks", b"{", 400),
        ("POST", "/setTasks", b'{"name":"a"}', 400),
        ("POST", "/setTasks", b"[1]", 400),
        ("POST", "/setTasks", b'[{"name":"../x","process":{"command":["a"]}}]', 400),
        ("POST", "/setTasks", b'[{"name":"a","process":{"command":"a"}}]', 400),
        ("POST", "/setTasks", b'[{"name":"a","process":{"command":[]}}]', 500),
        ("POST", "/setTasks", b'[{"name":"a","podTemplateSpec":{}}]', 500),
        ("POST", "/setTasks", b'[{"name":"a","process":{"command":["a"],"timeoutSeconds":-1}}]', 400),
        ("POST", "/setTasks", b'[{"name":"a","process":{"command":["a"],"timeoutSeconds":2147483648}}]', 400),
        ("POST", "/setTasks", b'[{"name":"a","process":{"command":["a"],"timeoutSeconds":1' + b"0" * 400 + b"}}]", 400),
        ("POST", "/setTasks", b'[{"name":"a","process":{"command":["a"],"args":["\\udc80"]}}]', 400),
        ("POST", "/setTasks", b'[{"name":"a","process":{"command":["a"],"env":[{"name":"\\udc80","value":1}]}}]', 400),
        ("POST", "/setTasks", b'[{"name":"a","process":{"command":["\\u0000"]}}]', 500),
        ("POST", "/setTasks", b"[" * 200_000, 400),
        ("POST", "/setTasks", b"[" * 600 + b"]" * 600, 400),
        ("POST", "/setTasks", b"null", 200),
        ("POST", "/setTasks", b'[{"process":{"command":["a"]}}]', 200),
        ("POST", "/tasks", b"{}", 400),
        ("GET", "/tasks/none", None, 404),
        ("DELETE", "/tasks/none", None, 204),
        ("POST", "/setTasks", b" " * (1 << 20) + b"[]", 413),
        ("POST", "/setTasks", b" " * (6 << 20), 413),
        ("GET", "/health", None, 200),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_status_codes(executor: Running, method: str, path: str, body: bytes | None, status: int) -> None:
    got, text = executor.call(method, path, body)
    assert got == status, text
    assert executor.get() == []


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Content-Length: \xb2", 400),
        ("Content-Length: -1", 400),
        ("Content-Length: " + "9" * 5000, 413),
        ("Transfer-Encoding: chunked", 400),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_length_that_cannot_be_used_is_refused(executor: Running, head: str, status: int) -> None:
    with socket.create_connection(("127.0.0.1", executor.port), timeout=5) as client:
        client.sendall(f"POST /setTasks HTTP/1.1\r\n{head}\r\n\r\nxyz\r\n".encode("latin-1"))
        assert client.recv(100).startswith(f"HTTP/1.1 {status} ".encode())
    assert executor.get() == []


def test_error_bodies_name_the_status_and_the_cause(executor: Running) -> None:
    body = json.loads(executor.call("POST", "/setTasks", b"{")[1])
    assert body["code"] == "Bad Request"
    assert body["message"].startswith("invalid request body: ")


def test_one_task_at_a_time_by_its_own_routes(executor: Running) -> None:
    assert executor.call("POST", "/tasks", task("a", "sleep", args=["60"]))[0] == 201
    assert executor.call("POST", "/tasks", task("a", "sleep", args=["60"]))[0] == 500
    assert executor.call("POST", "/tasks", task("b", "sleep", args=["60"]))[0] == 500
    assert json.loads(executor.call("GET", "/tasks/a")[1])["name"] == "a"
    assert executor.call("DELETE", "/tasks/a") == (204, "")
    executor.until(lambda found: not found)


def test_a_kept_connection_serves_many_requests(executor: Running) -> None:
    import http.client

    client = http.client.HTTPConnection("127.0.0.1", executor.port, timeout=5)
    for _ in range(3):
        client.request("GET", "/getTasks")
        answer = client.getresponse()
        assert (answer.status, answer.getheader("Content-Type"), answer.read()) == (
            200,
            "application/json",
            b"[]\n",
        )
    client.close()


def test_names_longer_than_a_file_system_takes_run_and_are_found_again(executor: Running) -> None:
    names = ["x" * 253 + "-0", "x" * 253 + "-1499"]
    for name in names:
        executor.set(shell(name, "exit 5"))
        (found,) = executor.until(lambda listed, name=name: ended(listed) and listed[0]["name"] == name)  # type: ignore[misc]
        assert found["processStatus"]["terminated"]["exitCode"] == 5
    folders = [path.name for path in executor.folder.iterdir()]
    assert all(len(folder.encode()) <= 255 for folder in folders)
    executor.stop()
    executor.start()
    assert [item["name"] for item in executor.get()] == names[1:]
