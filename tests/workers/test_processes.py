"""Real workers: by hand from a terminal, with forked children, asked to end in the middle of a run."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest
import urllib3

from osb.local.redis import die_with_parent
from tests.doubles.cluster import Cluster, Space
from tests.doubles.controller import Controller
from tests.doubles.waiting import wait_until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as one:
        yield one


@pytest.fixture(scope="module")
def controller(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    with Controller(tmp_path_factory.mktemp("controller"), cluster.kubeconfig) as one:
        one.warm_up(cluster.space("first"))
        yield one


@pytest.fixture
def space(cluster: Cluster, controller: Controller) -> Space:
    return cluster.space("w")


def fault(cluster: Cluster, **members: object) -> None:
    server = cluster.kubeconfig.read_text().split('server: "')[1].split('"')[0]
    answer = urllib3.request("POST", f"{server}/_sim/faults", json=members)
    assert answer.status == 201, answer.data


def logged(controller: Controller, text: str) -> bool:
    return any(text in log for name, log in controller.tails(200_000) if name.startswith("worker"))


def test_a_person_at_a_terminal_gets_one_more_run_with_his_reason(space: Space, controller: Controller) -> None:
    space.warm()
    sent = controller.celery("call", "osb.reconcile.pool", f'--args=["{space.name}", "warm", "does it still run?"]')
    assert sent.returncode == 0, sent.stderr
    wait_until(lambda: logged(controller, "does it still run?"), 15)


def test_nonsense_from_a_terminal_is_rejected_and_the_worker_lives(space: Space, controller: Controller) -> None:
    controller.celery("call", "osb.reconcile.pool", '--args=["UPPER", "../x"]')
    controller.celery("call", "osb.reconcile.pool", '--kwargs={"surprise": 1}')
    wait_until(lambda: logged(controller, "rejected: "), 15)
    space.warm("after")
    assert controller.alive()


def test_a_worker_asked_to_end_in_the_middle_of_a_run_hands_its_key_back(
    space: Space, cluster: Cluster, controller: Controller
) -> None:
    # Given workers whose passes hang in slow API calls
    space.warm("warm", 2, 2, 0, 4)
    fault(cluster, methods=["PATCH"], path=f"{space.name}/batchsandboxes", latency=3.0, count=3)
    space.box("b", 1)
    member = f"{space.name}/warm"
    wait_until(lambda: controller.redis.zscore("osb:q:pool:run", member) is not None, 10)
    # When all of them are asked to end
    codes = [controller.kill(name, signal.SIGTERM) for name in ("worker-1", "worker-2")]
    # Then they end in order, give the key back, and the next worker serves the sandbox
    assert codes == [0, 0]
    assert controller.redis.hget("osb:q:pool:tok", member) is None
    for name in ("worker-1", "worker-2"):
        controller.spawn(name)
    space.served("b", seconds=20)


def test_workers_with_forked_children_do_the_same_work_and_survive_the_death_of_a_child(
    space: Space, controller: Controller
) -> None:
    import psutil

    # Given only a worker that forks
    for name in ("worker-1", "worker-2"):
        controller.kill(name, signal.SIGTERM)
    command = ["prefork" if part == "threads" else part for part in controller._command("worker-fork")]
    command = ["2" if part == "8" else part for part in command]
    env = {**controller.env(), "OSB_WORKER_POOL": "prefork"}
    with controller.log("worker-fork").open("ab") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=controller.folder,
                                   preexec_fn=die_with_parent)  # fmt: skip
    try:
        # Then a pool gets warm and sandboxes are served
        space.warm("warm", 2, 2, 0, 6)
        space.box("b", 2)
        space.served("b", seconds=30)
        # And when a child is killed
        children = psutil.Process(process.pid).children()
        assert len(children) >= 2
        children[0].kill()
        space.box("c", 1)
        space.served("c", seconds=40)
        # Then the worker still ends when it is asked to
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(10)
        for name in ("worker-1", "worker-2"):
            controller.spawn(name)
