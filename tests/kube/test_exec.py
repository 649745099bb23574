"""Running a command: its output, its exit code, and every way it can fail to have one."""

from __future__ import annotations

import time

import orjson
import pytest

from osb.config import Settings
from osb.errors import NotFound, Refused, Unavailable
from osb.kube.client import connect
from tests.doubles.http_fault import drop, json, silent, status, websocket
from tests.doubles.together import together
from tests.doubles.waiting import wait_until

SUCCESS = b"\x03" + orjson.dumps({"status": "Success"})


def exit_code(code):
    causes = [{"reason": "ExitCode", "message": str(code)}]
    details = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return b"\x03" + orjson.dumps(details)


def run(kube, **kwargs):
    return kube.exec("n", "p", "main", ["kill", "1"], **kwargs)


def test_output_of_both_streams_and_exit_code_0(serving):
    server, kube = serving([websocket(b"\x01", b"\x01one ", b"\x02two", SUCCESS)])
    result = run(kube)
    assert (result.code, result.output) == (0, "one two")
    path = "/api/v1/namespaces/n/pods/p/exec?container=main&stdout=true&stderr=true&command=kill&command=1"
    assert server.requests[0].path == path
    assert server.requests[0].headers["Authorization"] == "Bearer t0ken"


def test_another_exit_code(serving):
    _, kube = serving([websocket(b"\x02no", exit_code(17))])
    assert (run(kube).code, run(kube).output) == (17, "no")


@pytest.mark.parametrize(
    ("frame", "error"),
    [
        (
            b"\x03" + orjson.dumps({"status": "Failure", "message": "container not found"}),
            "container not found",
        ),
        (b"\x03plain words", "plain words"),
    ],
)
def test_a_command_that_could_not_be_run_has_no_exit_code_and_the_servers_words(serving, frame, error):
    _, kube = serving([websocket(frame)])
    assert (run(kube).code, run(kube).error) == (-1, error)


def test_a_container_that_went_away_under_the_command_has_no_exit_code(serving):
    _, kube = serving([websocket(b"\x01bye")])
    result = run(kube)
    assert (result.code, result.output) == (-1, "bye")
    assert "without a status" in result.error


def test_endless_output_is_capped(serving):
    _, kube = serving([websocket(*([b"\x01" + b"x" * 60_000] * 3), SUCCESS)])
    assert len(run(kube).output) == 64 * 1024


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(404, "NotFound", "no such pod"), NotFound),
        (status(403, "Forbidden", "no"), Refused),
        (status(500, "InternalError", "dial tcp: refused"), Unavailable),
        (drop(), Unavailable),
    ],
)
def test_a_refused_handshake_is_an_error_with_its_meaning(serving, answer, error):
    _, kube = serving([answer])
    with pytest.raises(error, match="exec in pod n/p container main"):
        run(kube)


@pytest.mark.parametrize("answer", [silent(), websocket(b"\x01started", None)])
def test_a_command_that_does_not_end_frees_the_slot_after_its_timeout(serving, answer):
    _, kube = serving([answer])
    start = time.monotonic()
    with pytest.raises(Unavailable):
        run(kube, timeout=0.4)
    assert time.monotonic() - start < 8  # the default is longer


def test_execs_and_lists_in_many_threads_do_not_disturb_each_other(serving):
    page = {"metadata": {"resourceVersion": "1"}, "items": []}

    def script(request):
        return websocket(b"\x01out", SUCCESS) if "/exec?" in request.path else json(page)

    _, kube = serving(script)
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(3):
            try:
                if number % 2 and run(kube).output != "out":
                    wrong.append("output")
                elif next(kube.list("pod")).version != "1":
                    wrong.append("list")
            except Exception as error:
                wrong.append(error)

    together(work, range(50))
    assert not wrong


def test_a_command_runs_in_a_pod_of_a_cluster(sim):
    kube = connect(Settings(kubeconfig=str(sim.kubeconfig)))
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    try:
        kube.create("namespace", None, {"metadata": {"name": "execs"}})
        kube.create("pod", "execs", pod)
        wait_until(lambda: kube.get("pod", "execs", "p").get("status", {}).get("phase") == "Running")
        assert kube.exec("execs", "p", "main", ["true"]).code == 0
        with pytest.raises(NotFound):
            kube.exec("execs", "other", "main", ["true"])
    finally:
        kube.close()
