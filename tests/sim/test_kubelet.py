"""The fake kubelet: pods become Ready, fail, restart and go as their annotations say; on a real server too."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import websocket

from osb.sim import SimCluster
from osb.sim.kubelet import FakeKubelet
from osb.sim.kubexec import Outcome
from osb.sim.podrun import PodRun
from osb.sim.script import seconds
from tests.sim.conftest import MERGE, REAL, Api, Obj, pod, until


class _Kubelet:
    """A kubelet in a thread, for the server of the test."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._main(),), daemon=True)
        self._ready = threading.Event()

    async def _main(self) -> None:
        kubelet = FakeKubelet(self._source, pod_ready=0.05, name="test-node")
        self._task = asyncio.create_task(kubelet.run())
        await kubelet.ready.wait()
        self._ready.set()
        await asyncio.gather(self._task, return_exceptions=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(timeout=10)
        self._loop.close()


@pytest.fixture(scope="module")
def kubelet(server: Api) -> Iterator[None]:
    running = _Kubelet(str(Path(str(REAL))) if server.real else server.url)
    running.start()
    yield
    running.stop()


def _marked(name: str, marks: dict[str, str], **more: object) -> Obj:
    return pod(name, meta={"annotations": {f"sim.osb/{key}": value for key, value in marks.items()}}, **more)


def _get(api: Api, name: str) -> Obj:
    return api.call("GET", api.pods(name)).ok()


def _is_ready(body: Obj) -> bool:
    conditions = body.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _ready(api: Api, name: str) -> Obj:
    def look() -> Obj | None:
        body = _get(api, name)
        return body if _is_ready(body) else None

    found: Obj = until(look, f"{name} is Ready")
    return found


def _container(body: Obj) -> Obj:
    found: Obj = body["status"]["containerStatuses"][0]
    return found


def _ids(body: Obj) -> set[str]:
    return {item["containerID"] for item in body["status"]["containerStatuses"]}


class _Node:
    """What a pod's run needs of its kubelet, with the writes kept instead of sent."""

    pod_ready = 0.0

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.written: list[Obj] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    def address(self, wanted: str) -> str:
        return wanted or "127.16.0.1"

    async def insist(self, method: str, path: str, body: Obj, *, content: str = "") -> Obj:
        self.written.append(body)
        return body


def test_containers_that_are_killed_in_the_same_moment_are_all_restarted() -> None:
    async def scenario() -> tuple[set[str], Obj]:
        # Given a Ready pod of two containers
        node, two = _Node(), [{"name": name, "image": "r/a:1"} for name in ("main", "side")]
        run = PodRun(node, {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"containers": two}})  # type: ignore[arg-type]
        run.start()
        await asyncio.gather(*node.tasks)
        before = _ids(node.written[-1])
        # When both are killed before either restart has begun
        await asyncio.gather(*(run.execute(name, ["kill", "1"]) for name in ("main", "side")))
        await asyncio.gather(*node.tasks, return_exceptions=True)
        return before, node.written[-1]

    # Then both are new and the pod is Ready
    before, after = asyncio.run(scenario())
    assert not before & _ids(after)
    assert _is_ready(after)


def test_a_command_in_a_pod_that_ended_changes_nothing() -> None:
    async def scenario() -> tuple[Outcome, list[Obj]]:
        node, one = _Node(), [{"name": "main", "image": "r/a:1"}]
        meta = {"name": "p", "namespace": "n", "uid": "u"}
        run = PodRun(node, {"metadata": meta, "spec": {"containers": one}, "status": {"phase": "Failed"}})  # type: ignore[arg-type]
        return await run.execute("main", ["kill", "1"]), node.written

    outcome, written = asyncio.run(scenario())
    assert (outcome.code, written) == (1, [])


@pytest.mark.usefixtures("kubelet")
class TestPods:
    def test_a_pod_becomes_ready_with_an_address_and_a_container(self, api: Api) -> None:
        api.call("POST", api.pods(), pod("p")).ok()
        body = _ready(api, "p")
        assert body["spec"]["nodeName"] == "test-node"
        assert body["status"]["phase"] == "Running"
        assert body["status"]["podIP"].startswith("127.")
        assert _container(body)["containerID"].startswith("containerd://")
        assert (_container(body)["restartCount"], _container(body)["ready"]) == (0, True)

    def test_every_pod_has_its_own_address(self, api: Api) -> None:
        for name in ("a", "b", "c"):
            api.call("POST", api.pods(), pod(name)).ok()
        assert len({_ready(api, name)["status"]["podIP"] for name in ("a", "b", "c")}) == 3

    def test_a_deleted_pod_goes(self, api: Api) -> None:
        api.call("POST", api.pods(), pod("p")).ok()
        _ready(api, "p")
        api.call("DELETE", api.pods("p")).ok()
        until(lambda: api.call("GET", api.pods("p")).status == 404, "the pod goes")

    def test_a_slow_stop_takes_its_time_but_not_more_than_the_grace(self, api: Api) -> None:
        api.call("POST", api.pods(), _marked("p", {"stop-after": "60"})).ok()
        _ready(api, "p")
        api.call("DELETE", api.pods("p"), {"gracePeriodSeconds": 1}).ok()
        assert _get(api, "p")["metadata"]["deletionTimestamp"]
        until(lambda: api.call("GET", api.pods("p")).status == 404, "the pod goes")

    def test_never_ready_can_be_taken_back(self, api: Api) -> None:
        api.call("POST", api.pods(), _marked("p", {"never-ready": "true"})).ok()
        until(lambda: _get(api, "p")["status"]["phase"] == "Running", "Running")
        assert not _is_ready(_get(api, "p"))
        change = {"metadata": {"annotations": {"sim.osb/never-ready": None}}}
        api.call("PATCH", api.pods("p"), change, content=MERGE).ok()
        _ready(api, "p")

    def test_a_waiting_reason_shows_and_may_pass(self, api: Api) -> None:
        api.call("POST", api.pods(), _marked("p", {"waiting-reason": "ErrImagePull", "waiting-for": "500ms"})).ok()

        def reason() -> bool:
            statuses = _get(api, "p")["status"].get("containerStatuses") or [{}]
            return (statuses[0].get("state", {}).get("waiting") or {}).get("reason") == "ErrImagePull"

        until(reason, "ErrImagePull")
        _ready(api, "p")

    def test_an_init_container_may_be_the_one_that_waits(self, api: Api) -> None:
        init = [{"name": "setup", "image": "r/setup:1"}]
        marks = {"waiting-reason": "init:ErrImagePull", "waiting-for": "500ms"}
        api.call("POST", api.pods(), _marked("p", marks, initContainers=init)).ok()

        def states() -> bool:
            status = _get(api, "p")["status"]
            first = (status.get("initContainerStatuses") or [{}])[0].get("state", {})
            main = (status.get("containerStatuses") or [{}])[0].get("state", {})
            reasons = [(state.get("waiting") or {}).get("reason") for state in (first, main)]
            return reasons == ["ErrImagePull", "PodInitializing"]

        until(states, "ErrImagePull of the init container")
        first = _ready(api, "p")["status"]["initContainerStatuses"][0]
        assert first["state"]["terminated"]["reason"] == "Completed"

    def test_a_cordoned_node_takes_no_new_pod(self, api: Api) -> None:
        node = "/api/v1/nodes/test-node"
        api.call("PATCH", node, {"spec": {"unschedulable": True}}, content=MERGE).ok()
        try:
            api.call("POST", api.pods(), _marked("marker", {})).ok()
            until(lambda: _get(api, "marker")["status"].get("conditions"), "the scheduler has looked")
            assert "nodeName" not in _get(api, "marker")["spec"]
        finally:
            api.call("PATCH", node, {"spec": {"unschedulable": None}}, content=MERGE).ok()
        _ready(api, "marker")

    def test_a_pod_fails_from_the_start_or_on_demand(self, api: Api) -> None:
        api.call("POST", api.pods(), _marked("a", {"fail": "true"})).ok()
        until(lambda: _get(api, "a")["status"]["phase"] == "Failed", "Failed")
        api.call("POST", api.pods(), pod("b")).ok()
        _ready(api, "b")
        api.call("PATCH", api.pods("b"), {"metadata": {"annotations": {"sim.osb/fail": "true"}}}, content=MERGE).ok()
        until(lambda: _get(api, "b")["status"]["phase"] == "Failed", "Failed")
        assert not _is_ready(_get(api, "b"))

    def test_a_crash_restarts_under_a_new_id(self, api: Api) -> None:
        api.call("POST", api.pods(), _marked("p", {"crash-after": "100ms"})).ok()
        first = _container(_ready(api, "p"))
        until(lambda: _container(_get(api, "p"))["restartCount"] == 1, "a restart")
        second = _container(_ready(api, "p"))
        assert second["containerID"] != first["containerID"]
        assert second["lastState"]["terminated"]["exitCode"] == 1

    def test_a_crash_without_restart_policy_ends_the_pod(self, api: Api) -> None:
        api.call("POST", api.pods(), _marked("p", {"crash-after": "0"}, restartPolicy="Never")).ok()
        until(lambda: _get(api, "p")["status"]["phase"] == "Failed", "Failed")

    def test_a_pod_that_no_node_takes_says_so(self, api: Api) -> None:
        api.call("POST", api.pods(), _marked("a", {"unschedulable": "true"})).ok()
        api.call("POST", api.pods(), pod("b", nodeSelector={"disk": "none"})).ok()

        def reason(name: str) -> bool:
            conditions = _get(api, name)["status"].get("conditions") or []
            return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)

        until(lambda: reason("a") and reason("b"), "Unschedulable")

    def test_kill_in_a_container_restarts_it(self, api: Api) -> None:
        api.call("POST", api.pods(), pod("p")).ok()
        before = _container(_ready(api, "p"))
        output, status = _exec(api, "p", "kill", "1")
        assert (output, status["status"]) == ("", "Success")

        def changed() -> bool:
            body = _get(api, "p")
            return _container(body)["containerID"] != before["containerID"] and _is_ready(body)

        until(changed, "a new container is Ready")
        assert _container(_get(api, "p"))["restartCount"] == 1

    @pytest.mark.parametrize("change", [None, {"stop-after": "0"}], ids=["undisturbed", "annotated meanwhile"])
    def test_containers_that_are_killed_one_after_the_other_are_all_restarted(
        self, api: Api, change: dict[str, str] | None
    ) -> None:
        # Given a pod of two containers that need a moment from their end to their next start
        body = _marked("p", {"restart-after": "300ms"})
        body["spec"]["containers"].append({"name": "side", "image": "registry/side:1"})
        api.call("POST", api.pods(), body).ok()
        before = _ids(_ready(api, "p"))
        # When the second one is killed while the first one is not back yet
        for name in ("main", "side"):
            _, status = _exec(api, "p", "kill", "1", container=name)
            assert status["status"] == "Success"
        if change:
            marks = {"metadata": {"annotations": {f"sim.osb/{key}": value for key, value in change.items()}}}
            api.call("PATCH", api.pods("p"), marks, content=MERGE).ok()
        # Then both come back under new ids, each after one restart
        until(lambda: _is_ready(pod := _get(api, "p")) and not before & _ids(pod), "both containers are new")
        assert [item["restartCount"] for item in _get(api, "p")["status"]["containerStatuses"]] == [1, 1]

    def test_other_commands_echo_and_may_be_scripted_to_fail(self, api: Api) -> None:
        api.call("POST", api.pods(), pod("p")).ok()
        api.call("POST", api.pods(), _marked("q", {"exec": "error"})).ok()
        _ready(api, "p")
        _ready(api, "q")
        output, status = _exec(api, "p", "echo", "hello", "there")
        assert (output, status["status"]) == ("hello there\n", "Success")
        _, status = _exec(api, "q", "kill", "1")
        assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "1"}]

    def test_logs_are_served(self, api: Api) -> None:
        api.call("POST", api.pods(), pod("p")).ok()
        _ready(api, "p")
        assert "main" in api.call("GET", api.pods("p/log")).body

    def test_a_node_has_an_address_and_a_lease(self, api: Api) -> None:
        node = api.call("GET", "/api/v1/nodes/test-node").ok()
        assert {"type": "InternalIP", "address": "127.0.0.1"} in node["status"]["addresses"]
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/test-node"
        assert api.call("GET", lease).ok()["spec"]["holderIdentity"] == "test-node"

    def test_a_job_completes_with_the_committers_message(self, api: Api) -> None:
        body = _job("c", args=["src", api.namespace, "main:reg/ns/src/main:snap-1", "side:reg/ns/src/side:snap-1"])
        jobs = f"/apis/batch/v1/namespaces/{api.namespace}/jobs"
        api.call("POST", jobs, body).ok()
        done = until(lambda: _condition(api, f"{jobs}/c"), "the Job ends", seconds=30)
        assert done == "Complete"
        assert api.call("GET", f"{jobs}/c").ok()["status"]["succeeded"] == 1
        (worker,) = api.call("GET", api.pods() + "?labelSelector=job-name%3Dc").ok()["items"]
        state = worker["status"]["containerStatuses"][0]["state"]["terminated"]
        entries = json.loads(state["message"])["containers"]
        assert [(entry["name"], entry["image"]) for entry in entries] == [
            ("main", "reg/ns/src/main:snap-1"), ("side", "reg/ns/src/side:snap-1")
        ]  # fmt: skip
        assert all(entry["digest"].startswith("sha256:") and len(entry["digest"]) == 71 for entry in entries)
        assert state["exitCode"] == 0

    def test_the_source_pod_scripts_a_failing_commit(self, api: Api) -> None:
        api.call("POST", api.pods(), _marked("src", {"commit": "fail"})).ok()
        _ready(api, "src")
        jobs = f"/apis/batch/v1/namespaces/{api.namespace}/jobs"
        api.call("POST", jobs, _job("c", args=["src", api.namespace, "main:reg/x:1"], backoffLimit=0)).ok()
        assert until(lambda: _condition(api, f"{jobs}/c"), "the Job ends", seconds=30) == "Failed"

    def test_a_finished_job_goes_after_its_time_to_live(self, api: Api) -> None:
        jobs = f"/apis/batch/v1/namespaces/{api.namespace}/jobs"
        api.call("POST", jobs, _job("c", args=["src", api.namespace, "m:r/x:1"], ttlSecondsAfterFinished=1)).ok()
        until(lambda: api.call("GET", f"{jobs}/c").status == 404, "the Job goes", seconds=30)
        until(lambda: not api.call("GET", api.pods()).ok()["items"], "its pod goes", seconds=30)

    def test_a_job_past_its_deadline_fails(self, api: Api) -> None:
        api.call("POST", api.pods(), _marked("src", {"commit": "hang"})).ok()
        _ready(api, "src")
        jobs = f"/apis/batch/v1/namespaces/{api.namespace}/jobs"
        api.call("POST", jobs, _job("c", args=["src", api.namespace, "main:reg/x:1"], activeDeadlineSeconds=1)).ok()
        assert until(lambda: _condition(api, f"{jobs}/c"), "the Job ends", seconds=30) == "Failed"
        status = api.call("GET", f"{jobs}/c").ok()["status"]
        assert status["conditions"][0]["reason"] == "DeadlineExceeded"


def _job(name: str, *, args: list[str], **spec: object) -> Obj:
    container = {
        "name": "commit",
        "image": "r/committer:1",
        "command": ["/usr/local/bin/image-committer"],
        "args": args,
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 3, **spec, "template": template}}


def _condition(api: Api, path: str) -> str | None:
    for condition in api.call("GET", path).ok().get("status", {}).get("conditions") or ():
        if condition["status"] == "True":
            return str(condition["type"])
    return None


def _exec(api: Api, name: str, *command: str, container: str = "main") -> tuple[str, Obj]:
    """Output and final status of a command, over WebSocket like the official client."""
    options = ["stdout=true", "stderr=true", f"container={container}"]
    query = "&".join([*options, *(f"command={word}" for word in command)])
    url = api.url.replace("http", "ws", 1) + f"{api.pods(name)}/exec?{query}"
    socket = websocket.create_connection(
        url, subprotocols=["v4.channel.k8s.io"], timeout=10, sslopt={"cert_reqs": 0, "check_hostname": False},
        header=[f"Authorization: {api.authorization}"],
    )  # fmt: skip
    output, status = "", {}
    while frame := socket.recv():
        data = frame if isinstance(frame, bytes) else frame.encode()
        if data[:1] == b"\x03":
            status = json.loads(data[1:])
            break
        output += data[1:].decode()
    socket.close()
    return output, status


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        ("300ms", 0.3),
        ("1m30s", 90.0),
        ("2 s", None),
        ("", None),
        ("soon", None),
        ("-1", None),
    ],
)
def test_durations_are_read_strictly(text: str, value: float | None) -> None:
    assert seconds(text) == value


def test_a_new_kubelet_takes_over_what_an_old_one_ran(tmp_path: Path) -> None:
    # Given a Ready pod of a kubelet that then goes away
    with SimCluster.start(tmp_path, kubelet=False) as cluster:
        api = Api(cluster.url, "t")
        api.namespace = "default"
        first = _Kubelet(cluster.url)
        first.start()
        api.call("POST", api.pods(), pod("p")).ok()
        before = _ready(api, "p")
        first.stop()
        api.call("POST", api.pods(), pod("q")).ok()
        # When another one starts
        second = _Kubelet(cluster.url)
        second.start()
        after = _ready(api, "q")
        # Then the old pod is as it was, and its address is not given away
        assert _get(api, "p")["status"] == before["status"]
        assert after["status"]["podIP"] != before["status"]["podIP"]
        api.call("DELETE", api.pods("p")).ok()
        until(lambda: api.call("GET", api.pods("p")).status == 404, "the new kubelet stops the old pod")
        second.stop()
        api.close()


def test_pods_are_dealt_over_several_nodes(tmp_path: Path) -> None:
    with SimCluster.start(tmp_path, pod_ready=0.01, nodes=3) as cluster:
        api = Api(cluster.url, "t")
        api.namespace = "default"
        for index in range(6):
            api.call("POST", api.pods(), pod(f"p{index}")).ok()
        nodes = [_ready(api, f"p{index}")["spec"]["nodeName"] for index in range(6)]
        assert sorted(nodes) == [f"sim-node-{index}" for index in (0, 0, 1, 1, 2, 2)]
        api.close()
