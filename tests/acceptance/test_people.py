"""What people see and do: kubectl's columns, reconciles by hand, Flower, and a watcher that ends when told."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import urllib.error
import urllib.request
from typing import Any

import pytest

from osb.kube.resources import RES
from osb.local.redis import free_port
from tests.doubles import controlplane
from tests.doubles.cluster import Space, condition
from tests.doubles.controller import Controller
from tests.doubles.waiting import wait_until

COLUMNS = {
    "pool": ["NAME", "TOTAL", "ALLOCATED", "AVAILABLE", "UPDATED", "AGE"],
    "batchsandbox": ["NAME", "DESIRED", "TOTAL", "ALLOCATED", "READY", "EXPIRE", "AGE"],
}
WIDE = ["TASK_RUNNING", "TASK_SUCCEED", "TASK_FAILED", "TASK_UNKNOWN"]


def _table(space: Space, kind: str) -> tuple[list[str], list[list[Any]]]:
    """(columns, rows) as the server prints them for kubectl."""
    host, token = _access(space)
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    request = urllib.request.Request(
        host + RES[kind].path(space.name), headers={"Accept": accept, "Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, context=_unverified(host)) as answer:
        table = json.load(answer)
    wanted = [i for i, c in enumerate(table["columnDefinitions"]) if c["priority"] == 0]
    return (
        [table["columnDefinitions"][i]["name"].upper() for i in wanted],
        [[row["cells"][i] for i in wanted] for row in table["rows"]],
    )


def _access(space: Space) -> tuple[str, str]:
    import yaml

    config = yaml.safe_load(space.cluster.kubeconfig.read_text())
    return config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"]


def _unverified(host: str) -> Any:
    import ssl

    if not host.startswith("https"):
        return None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_the_server_prints_the_promised_columns(space: Space) -> None:
    space.warm("warm", 2, 2, 0, 4)
    space.box("box", 2, expireTime="2100-01-01T00:00:00Z")
    space.served("box")
    space.until_pool("warm", lambda p: (p["status"]["allocated"], p["status"]["available"]) == (2, 2))
    names, rows = _table(space, "pool")
    assert names == COLUMNS["pool"] and rows[0][:5] == ["warm", 4, 2, 2, 4]
    names, rows = _table(space, "batchsandbox")
    assert names == COLUMNS["batchsandbox"] and rows[0][:5] == ["box", 2, 2, 2, 2]


KUBECTL = controlplane.kubectl()


@pytest.mark.parametrize("kubectl", [KUBECTL] if KUBECTL else [], ids=["kubectl"] if KUBECTL else [])
def test_kubectl_shows_the_whole_life(space: Space, kubectl: str) -> None:
    def run(*arguments: str) -> str:
        done = subprocess.run(
            [kubectl, "--kubeconfig", str(space.cluster.kubeconfig), "-n", space.name, *arguments],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
        return done.stdout

    def rows(*arguments: str) -> list[list[str]]:
        return [line.split() for line in run("get", *arguments).splitlines()]

    pool = {"apiVersion": "sandbox.opensandbox.io/v1alpha1", "kind": "Pool", "metadata": {"name": "warm"},
            "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "img:1"}]}},
                     "capacitySpec": {"bufferMin": 2, "bufferMax": 2, "poolMin": 0, "poolMax": 4}}}  # fmt: skip
    box = {"apiVersion": "sandbox.opensandbox.io/v1alpha1", "kind": "BatchSandbox", "metadata": {"name": "box"},
           "spec": {"replicas": 2, "poolRef": "warm"}}  # fmt: skip
    # Given a pool that someone applies from a file
    file = space.cluster.folder / f"{space.name}.json"
    file.write_text(json.dumps(pool))
    run("apply", "-f", str(file))
    run("wait", "--for=condition=Ready", "pool/warm", "--timeout=25s")
    assert rows("pools")[0] == COLUMNS["pool"]
    file.write_text(json.dumps(box))
    run("apply", "-f", str(file))
    run("wait", "--for=condition=Ready", "bsbx/box", "--timeout=25s")
    # Then both short forms show the right numbers
    assert [cell.upper() for cell in rows("bsbx")[0]] == COLUMNS["batchsandbox"]
    assert rows("bsbx")[1][:5] == ["box", "2", "2", "2", "2"]
    assert set(WIDE) <= set(rows("bsbx", "-o", "wide")[0])
    run("delete", "bsbx/box", "--timeout=20s")
    run("delete", "pool/warm", "--timeout=20s")
    assert rows("pools", "--ignore-not-found") == []


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_a_hand_sent_task_runs_the_key_once_more(space: Space, controller: Controller) -> None:
    space.warm()
    controller.reconcile("pool", f"{space.name}/warm")


@pytest.mark.parametrize(
    "arguments",
    ["[]", '["../etc", "passwd"]', '["ns"]', "[1, 2]", '["ns", "name", "why", "more"]', '["NS", "x y"]'],
)
def test_nonsense_is_rejected_with_a_clear_message(controller: Controller, arguments: str) -> None:
    before = controller.told("worker", "rejected: ")
    sent = controller.celery("call", "osb.reconcile.pool", f"--args={arguments}")
    assert sent.returncode == 0
    wait_until(lambda: controller.told("worker", "rejected: ") > before, 10)
    assert controller.alive()


def test_flower_asks_for_a_password_and_applies_tasks(space: Space, controller: Controller) -> None:
    space.warm()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    controller.settings |= {"FLOWER_BASIC_AUTH": "someone:secret", "FLOWER_PORT": str(port)}
    controller.spawn("flower-1")
    try:
        wait_until(lambda: _status(f"{url}/healthcheck") == 200, 30)
        task = f"{url}/api/task/async-apply/osb.reconcile.pool"
        body = {"args": [space.name, "warm", "from Flower"]}
        # Without credentials neither page nor API answers
        assert _status(f"{url}/workers") == 401
        assert _status(task, body) == 401
        # With them the key runs once more
        ran = f'"key":"pool/{space.name}/warm","reason":"from Flower"'
        assert not controller.told("worker", ran)
        assert _status(task, body, user="someone:secret") == 200
        wait_until(lambda: controller.told("worker", ran) == 1, 10)
    finally:
        controller.kill("flower-1", signal.SIGTERM)


def _status(url: str, body: object = None, *, user: str = "") -> int:
    """The HTTP status; 0 when nobody listens."""
    data = json.dumps(body).encode() if body is not None else None
    headers = {"Content-Type": "application/json"}
    if user:
        headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=data, headers=headers), timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def test_a_watcher_told_to_end_ends_in_order(space: Space, controller: Controller) -> None:
    controller.spawn("watcher-9")
    wait_until(lambda: "listed" in controller.log("watcher-9").read_text(), 20)
    assert controller.kill("watcher-9", signal.SIGTERM) == 0
    space.warm()
    assert condition(space.live("pool", "warm"), "Ready")
