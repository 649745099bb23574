"""`python -m osb.sim` as a process, and kubectl against it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import urllib3

from osb.sim import SimCluster
from tests.sim.conftest import WIDGET_CRD, Api, until, widget


def _start(folder: Path, *more: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "osb.sim", "--dir", str(folder), "--port", "0", "--pod-ready", "100ms", *more],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    word, url = process.stdout.readline().split()
    assert word == "ready"
    return process, url


def test_the_process_says_where_it_is_and_ends_on_sigterm(tmp_path: Path) -> None:
    process, url = _start(tmp_path)
    with process:
        assert url in (tmp_path / "kubeconfig").read_text()
        assert urllib3.request("GET", f"{url}/readyz").status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0


def test_the_process_dies_with_its_parent(tmp_path: Path) -> None:
    # Given a parent that starts the cluster and then waits
    script = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-m', 'osb.sim', '--dir', sys.argv[1]]\n"
        "p = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)\n"
        "print(p.pid, p.stdout.readline(), flush=True)\n"
        "p.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().split()[0])
        # When the parent is killed
        parent.kill()
        parent.wait(timeout=5)
        # Then the cluster goes too
        until(lambda: not _alive(pid), "the child is gone")


def _alive(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_a_wrong_time_is_refused_with_an_example(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "osb.sim", "--dir", str(tmp_path), "--pod-ready", "soon"]
    got = subprocess.run(command, capture_output=True, text=True, check=False)
    assert got.returncode == 2
    assert "500ms" in got.stderr


# -- kubectl -------------------------------------------------------------------------------------------------


def _kubectls() -> list[str]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    found = [f"{assets}/kubectl" if assets else None, shutil.which("kubectl")]
    return [path for path in dict.fromkeys(found) if path and Path(path).exists()]


KUBECTLS = _kubectls()
Run = Callable[..., str]


@pytest.fixture(params=KUBECTLS, ids=range(len(KUBECTLS)))
def kubectl(request: pytest.FixtureRequest, sim: SimCluster, sim_api: Api, tmp_path: Path) -> Iterator[Run]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(sim.kubeconfig)}

    def run(*words: str, feed: object = None) -> str:
        got = subprocess.run(
            [request.param, *words], env=environment, input=json.dumps(feed) if feed else None, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        assert got.returncode == 0, got.stderr
        return got.stdout

    yield run


if KUBECTLS:  # without a kubectl there is nothing to test here

    def test_kubectl_knows_version_resources_and_schema(kubectl: Run) -> None:
        assert "Client" in kubectl("version")
        assert "widgets" in kubectl("api-resources")
        assert "How large." in kubectl("explain", "widgets.spec")

    def test_kubectl_applies_prints_changes_and_deletes(kubectl: Run) -> None:
        kubectl("apply", "-f", "-", feed=WIDGET_CRD)
        assert "created" in kubectl("apply", "-f", "-", feed=widget("w", size=3))
        assert "unchanged" in kubectl("apply", "-f", "-", feed=widget("w", size=3))
        assert kubectl("get", "wdg").split()[:6] == ["NAME", "SIZE", "PHASE", "AGE", "w", "3"]
        assert "COLOR" in kubectl("get", "widget", "w", "-o", "wide")
        assert json.loads(kubectl("get", "widget", "w", "-o", "json"))["spec"]["size"] == 3
        kubectl("label", "widget", "w", "a=b")
        kubectl("annotate", "widget", "w", "c=d")
        kubectl("patch", "widget", "w", "--type", "merge", "-p", '{"spec":{"size":4}}')
        assert kubectl("get", "widgets", "-l", "a=b", "-o", "jsonpath={.items[*].spec.size}") == "4"
        assert "deleted" in kubectl("delete", "widget", "w", "--wait", "--timeout=10s")

    def test_kubectl_follows_a_pod(kubectl: Run) -> None:
        kubectl("run", "p", "--image=registry/x:1")
        assert "condition met" in kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=10s")
        assert "1/1" in kubectl("get", "pods")
        assert "log of p" in kubectl("logs", "p")
        assert "sim-node" in kubectl("describe", "pod", "p")
        assert "deleted" in kubectl("delete", "pod", "p", "--timeout=10s")

    def test_kubectl_creates_built_in_kinds_with_its_own_commands(kubectl: Run) -> None:
        kubectl("create", "ns", "rooms")
        kubectl("create", "configmap", "m", "-n", "rooms", "--from-literal=a=b", "--from-literal=empty=")
        assert json.loads(kubectl("get", "cm", "m", "-n", "rooms", "-o", "json"))["data"] == {"a": "b", "empty": ""}
        kubectl("create", "secret", "generic", "s", "--from-literal=a=b")
        assert kubectl("get", "secret", "s", "-o", "jsonpath={.data.a} {.type}") == "Yg== Opaque"
        kubectl("create", "sa", "runner")
        kubectl("create", "role", "reads", "--verb=get", "--resource=pods")
        kubectl("create", "rolebinding", "reads", "--role=reads", "--serviceaccount=default:runner")
        bound = json.loads(kubectl("get", "rolebinding", "reads", "-o", "json"))
        assert bound["subjects"] == [{"kind": "ServiceAccount", "name": "runner", "namespace": "default"}]
        assert bound["roleRef"]["name"] == "reads"

    def test_kubectl_asks_what_it_may_do(kubectl: Run, sim: SimCluster) -> None:
        assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
        sim.add_fault(deny=True, verbs=["create"], path="/pods")
        with pytest.raises(AssertionError):
            kubectl("auth", "can-i", "create", "pods")

    def test_kubectl_drains_a_node_by_eviction(kubectl: Run, sim_api: Api) -> None:
        # Given a pod on a node
        kubectl("run", "p", "--image=registry/x:1")
        kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=10s")
        said = kubectl("drain", "sim-node", "--ignore-daemonsets", "--force", "--delete-emptydir-data")
        # Then it is evicted, and the node takes no other
        assert "pod/p evicted" in said
        assert sim_api.call("GET", sim_api.pods("p")).status == 404
        assert "SchedulingDisabled" in kubectl("get", "nodes")
        kubectl("run", "q", "--image=registry/x:1")
        assert kubectl("get", "pod", "q", "-o", "jsonpath={.spec.nodeName}") == ""
        kubectl("uncordon", "sim-node")
        kubectl("wait", "--for=condition=Ready", "pod/q", "--timeout=10s")
        kubectl("drain", "sim-node", "--force", "--disable-eviction")
        assert sim_api.call("GET", sim_api.pods("q")).status == 404
