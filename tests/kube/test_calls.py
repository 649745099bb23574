"""The wrapper that every call goes through: what is repeated, what waits, what an answer means."""

from __future__ import annotations

import threading
import time

import pytest
import urllib3

from osb.config import Settings
from osb.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    DeadlinePassed,
    Gone,
    NotFound,
    Refused,
    Throttled,
    Unavailable,
)
from osb.kube import errors
from osb.kube.budget import Budget
from osb.kube.client import connect
from osb.kube.session import _Accepted
from osb.obs import metrics
from osb.obs.deadline import Deadline
from tests.doubles.http_fault import FaultServer, drop, json, raw, silent, status
from tests.doubles.together import together
from tests.doubles.waiting import wait_until

POD = {"metadata": {"name": "p", "namespace": "n"}}


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", Refused),
        (403, "Forbidden", Refused),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Gone),
        (415, "UnsupportedMediaType", Refused),
        (422, "Invalid", Refused),
        (429, "TooManyRequests", Throttled),
    ],
)
def test_an_answer_of_the_server_is_definite_and_named_by_its_meaning(serving, code, reason, error):
    _, kube = serving([status(code, reason, "its words")])
    with pytest.raises(error, match=r"create pod n/p.*its words") as caught:
        kube.create("pod", "n", POD)
    assert caught.value.definite
    assert (caught.value.status, caught.value.reason) == (code, reason)


@pytest.mark.parametrize("answer", [drop(), status(500, "InternalError"), status(503, "x"), raw(b"<html>", 502)])
def test_a_write_without_a_definite_answer_is_unclear_and_is_sent_exactly_once(serving, answer):
    server, kube = serving([answer])
    with pytest.raises(Unavailable) as caught:
        kube.create("pod", "n", POD)
    assert not caught.value.definite
    assert len(server.requests) == 1


def test_a_connection_that_was_never_made_is_definite(serving):
    server, kube = serving([json({})])
    server.close()
    with pytest.raises(Unavailable) as caught:
        kube.create("pod", "n", POD)
    assert caught.value.definite


@pytest.mark.parametrize("fault", [drop(), status(500, "InternalError"), status(504, "Timeout")])
def test_a_read_is_repeated_until_it_is_answered(serving, fault):
    server, kube = serving([fault, fault, json({"metadata": {"name": "p"}})])
    assert kube.get("pod", "n", "p")["metadata"]["name"] == "p"
    assert len(server.requests) == 3


def test_a_read_gives_up_after_four_attempts(serving):
    server, kube = serving([status(503, "ServiceUnavailable")])
    with pytest.raises(Unavailable):
        kube.get("pod", "n", "p")
    assert len(server.requests) == 4


def test_a_definite_refusal_of_a_read_is_not_repeated(serving):
    server, kube = serving([status(403, "Forbidden")])
    with pytest.raises(Refused):
        kube.get("pod", "n", "p")
    assert len(server.requests) == 1


def test_a_server_that_never_answers_frees_the_slot_after_the_timeout(serving):
    server, kube = serving([silent()])
    start = time.monotonic()
    with pytest.raises(Unavailable) as caught:
        kube.patch("pod", "n", "p", {"metadata": {"labels": {"a": "b"}}}, timeout=0.3)
    assert time.monotonic() - start < 8  # the default is longer
    assert not caught.value.definite
    assert len(server.requests) == 1


def test_no_call_of_the_process_is_sent_within_the_window_of_a_429(serving):
    # Given a server that asks for one second of rest
    server, kube = serving([status(429, "TooManyRequests", Retry_After="1"), json({"metadata": {}})])
    throttled = metrics.value("opensandbox_api_throttle_seconds_total")

    # When a read gets that answer and another thread wants to write meanwhile
    reader = threading.Thread(target=kube.get, args=("pod", "n", "p"))
    reader.start()
    assert server.wait_for(1)
    wait_until(lambda: kube.transport._gate.left() > 0)
    kube.create("pod", "n", POD)
    reader.join(5)

    # Then both come after the window, and the wait is counted
    first, *later = server.requests
    assert {request.method for request in later} == {"GET", "POST"}
    assert all(request.at - first.at >= 0.95 for request in later)
    assert metrics.value("opensandbox_api_throttle_seconds_total") > throttled


def test_a_write_that_gets_429_is_left_to_the_caller_with_the_servers_seconds(serving):
    server, kube = serving([status(429, "TooManyRequests", Retry_After="7")])
    with pytest.raises(Throttled) as caught:
        kube.create("pod", "n", POD)
    assert caught.value.retry_after == 7
    assert caught.value.definite
    assert len(server.requests) == 1


def test_a_window_longer_than_a_call_may_wait_is_an_error_without_a_request(serving):
    server, kube = serving([status(429, "TooManyRequests", Retry_After="60")])
    for _ in range(2):
        with pytest.raises(Throttled):
            kube.create("pod", "n", POD)
    assert len(server.requests) == 1


def test_a_401_rebuilds_the_client_once_and_takes_the_new_token(serving, settings_for):
    # Given a kubeconfig whose token was rotated after the client was made
    def script(request):
        return json({"ok": True}) if request.headers["Authorization"] == "Bearer new" else status(401, "Unauthorized")

    server, kube = serving(script)
    kube.transport.session()
    settings_for(server.url, token="new")

    # When it calls, even with a write
    assert kube.create("pod", "n", POD) == {"ok": True}

    # Then the old token was tried once and the new one once
    assert [request.headers["Authorization"] for request in server.requests] == ["Bearer t0ken", "Bearer new"]


def test_a_second_401_is_a_refusal(serving):
    server, kube = serving([status(401, "Unauthorized")])
    with pytest.raises(Refused):
        kube.get("pod", "n", "p")
    assert len(server.requests) == 2


def test_a_client_older_than_its_age_limit_is_replaced(serving):
    _, kube = serving([json({})])
    now = [0.0]
    kube.transport._clock = lambda: now[0]
    first = kube.transport.session()
    assert kube.transport.session() is first
    now[0] = 601.0
    assert kube.transport.session() is not first


def test_a_configuration_that_cannot_be_reloaded_leaves_the_old_client(serving, tmp_path):
    _, kube = serving([json({})])
    now = [0.0]
    kube.transport._clock = lambda: now[0]
    first = kube.transport.session()
    (tmp_path / "kubeconfig").unlink()
    now[0] = 601.0
    assert kube.transport.session() is first


def test_connecting_opens_nothing(settings_for):
    kube = connect(settings_for("http://127.0.0.1:1"))
    assert kube.transport._session is None


def test_a_child_process_makes_its_own_session(serving):
    _, kube = serving([json({})])
    first = kube.transport.session()
    kube.transport._pid = -1  # what a forked child sees
    assert kube.transport.session() is not first


def test_no_call_is_made_past_the_reconciles_deadline_or_after_a_stop(serving):
    server, kube = serving([json({})])
    for deadline in (Deadline(soft=0), Deadline()):
        deadline.stop() if deadline.remaining else None
        with deadline.use(), pytest.raises(DeadlinePassed):
            kube.create("pod", "n", POD)
    assert server.requests == []


def test_a_call_ends_at_the_hard_limit_even_when_its_own_timeout_is_longer(serving):
    _, kube = serving([silent()])
    start = time.monotonic()
    with Deadline(soft=5, hard=0.4).use(), pytest.raises(Unavailable):
        kube.create("pod", "n", POD)
    assert time.monotonic() - start < 8  # the default is longer


def test_many_threads_share_one_client(serving):
    server, kube = serving(lambda request: json({"path": request.path}))
    failures: list[ApiError] = []

    def work(number: int) -> None:
        for index in range(20):
            name = f"p{number}-{index}"
            if not kube.get("pod", "n", name)["path"].endswith(name):
                failures.append(ApiError("answers were mixed up"))

    together(work, range(12))
    assert not failures
    assert len(server.requests) == 240


def test_calls_carry_the_references_user_agent_and_are_counted(serving):
    server, kube = serving([json({})])
    before = metrics.value("opensandbox_api_requests_total", verb="create", kind="pod", code="200")
    kube.create("pod", "n", POD)
    assert server.requests[0].headers["User-Agent"] == "sandbox-k8s-controller/1.0"
    after = metrics.value("opensandbox_api_requests_total", verb="create", kind="pod", code="200")
    assert after == before + 1


def test_the_client_side_limit_spaces_calls_and_is_off_unless_set(serving):
    server, kube = serving([json({})], kube_qps=20.0, kube_burst=1)
    start = time.monotonic()
    for _ in range(5):
        kube.get("pod", "n", "p")
    assert time.monotonic() - start >= 0.19
    assert len(server.requests) == 5
    assert connect(Settings()).transport._budget is None


def test_a_path_in_the_servers_address_is_kept(settings_for):
    server = FaultServer([json({})])
    kube = connect(settings_for(f"{server.url}/k8s/clusters/c1"))
    try:
        kube.get("pod", "n", "p")
        assert server.requests[0].path == "/k8s/clusters/c1/api/v1/namespaces/n/pods/p"
    finally:
        kube.close()
        server.close()


def test_a_server_that_speaks_no_json_is_unavailable(serving):
    _, kube = serving([raw(b"{half")])
    with pytest.raises(Unavailable, match="not JSON"):
        kube.create("pod", "n", POD)


def test_the_servers_words_are_capped(serving):
    _, kube = serving([status(422, "Invalid", "x" * 5000)])
    with pytest.raises(Refused) as caught:
        kube.create("pod", "n", POD)
    assert len(str(caught.value)) < 700
    assert "4500 more characters" in str(caught.value)


def test_callers_that_give_up_leave_no_debt_in_the_budget():
    now = [0.0]
    budget = Budget(10, 1, clock=lambda: now[0])
    assert budget.take() == 0.0
    for _ in range(1000):
        assert budget.take(longest=0.05) == pytest.approx(0.1)
    now[0] = 0.1
    assert budget.take() == 0.0
    assert budget.take() == pytest.approx(0.1)
    assert budget.take() == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("NewConnectionError", "NewConnectionError: 10.0.0.9:443: refused"),
        ("ConnectTimeoutError", "ConnectTimeoutError: timed out"),
        ("ProxyError", "ProxyError: no way: 10.0.0.9:443: refused"),
    ],
)
def test_a_lost_connection_is_told_by_its_address_and_not_by_our_classes(cause, said):
    connection = _Accepted("10.0.0.9", port=443)
    refused = urllib3.exceptions.NewConnectionError(connection, "refused")
    made = {
        "NewConnectionError": refused,
        "ConnectTimeoutError": urllib3.exceptions.ConnectTimeoutError(connection, "timed out"),
        "ProxyError": urllib3.exceptions.ProxyError("no way", refused),
    }[cause]
    assert str(errors.of_failure("get x", made)) == f"get x: no answer: {said}"


def test_a_message_has_no_place_for_a_name_that_there_is_not_and_says_nothing_twice(serving):
    _, kube = serving([status(401, "Unauthorized", "Unauthorized")] * 2)
    with pytest.raises(Refused) as caught:
        kube.create("selfsubjectaccessreview", None, {"metadata": {}, "spec": {}})
    assert str(caught.value) == "create selfsubjectaccessreview: 401 Unauthorized"
