"""The chart on a real API server: its objects are accepted, and its rights are enough for the processes that run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from osb.api.crds import crds
from osb.kube.lease import NAME as LEASE
from tests.doubles.chart import EVERYTHING, Obj, Values, at
from tests.doubles.cluster import Cluster, Space, condition, endpoints, record, template
from tests.doubles.installation import Installation, identity
from tests.doubles.waiting import wait_until

pytestmark = pytest.mark.real

SNAPSHOTS = {"controller": {"snapshot": {"registry": "reg.test/saved", "resumePullSecret": "pull"}}}


def _at(plane: Cluster, values: Values) -> Values:
    """Values for exactly this server: its version, the APIs it serves."""
    version = orjson.loads(plane.kube.raw("/version"))["gitVersion"].removeprefix("v")
    served = [group["preferredVersion"]["groupVersion"] for group in orjson.loads(plane.kube.raw("/apis"))["groups"]]
    return at(version, values, *served)


def _install(plane: Cluster, folder: Path, values: Values) -> Installation:
    namespace = plane.space("chart").name
    return Installation(folder, plane.kubeconfig, namespace, _at(plane, values))


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_a_real_server_accepts_every_object(plane: Cluster, tmp_path: Path, values: Values) -> None:
    made = _install(plane, tmp_path, values).apply()
    assert len(made) > 30
    for wanted in crds():
        served = plane.kube.get("crd", None, wanted["metadata"]["name"])
        assert served["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        assert served["spec"]["versions"][0]["schema"] == wanted["spec"]["versions"][0]["schema"]


def _phase(obj: Obj | None) -> str:
    return str(((obj or {}).get("status") or {}).get("phase") or "")


@pytest.fixture(params=["cluster", "namespace"])
def running(request: pytest.FixtureRequest, plane: Cluster, tmp_path: Path) -> Iterator[tuple[Installation, Space]]:
    """Everything the chart starts, each process with its own account; and a namespace that it may work in."""
    space, other = plane.space("work"), plane.space("other")
    named = {"rbac": {"scope": "namespace", "namespaces": [other.name, space.name]}}
    scope = named if request.param == "namespace" else {}
    one = _install(plane, tmp_path, {**SNAPSHOTS, **scope})
    try:
        one.start()
        yield one, space
    finally:
        one.stop()
        one.redis.stop()


def test_each_process_can_do_its_work_with_its_own_rights_and_no_more_are_missed(
    running: tuple[Installation, Space], plane: Cluster
) -> None:
    one, space = running
    space.kube.create("secret", space.name, {"metadata": {"name": "pull"}})
    # A pool that recycles by exec, served and returned
    space.pool("warm", 2, 4, 0, 10, recycleStrategy={"type": "Restart"})
    space.until_pool("warm", lambda p: condition(p, "Ready"), seconds=60)
    space.box("pooled", 2)
    (pooled,) = space.served("pooled", seconds=60)
    assert len(endpoints(pooled) or []) == 2
    used = record(pooled)
    space.delete("batchsandbox", "pooled")
    space.gone("batchsandbox", "pooled")
    space.until_pool("warm", lambda p: p["status"]["allocated"] == 0)
    assert any(pod in used for pod in (p["metadata"]["name"] for p in space.pods_of("warm")))
    # A sandbox that leaves the choice of the pool to us, and one without a pool that is paused, resumed, and expires
    space.box("any", pool="*")
    space.box("own", pool=None, template=template())
    space.served("any", "own", seconds=60)
    space.patch("batchsandbox", "own", {"spec": {"pause": True}})
    space.until_box("own", lambda b: b["status"]["phase"] == "Paused", seconds=60)
    space.patch("batchsandbox", "own", {"spec": {"pause": False}})
    space.until_box("own", lambda b: b["status"]["phase"] == "Succeed", seconds=60)
    space.create("snapshot", "saved", {"sandboxName": "own"})
    space.until("the snapshot is saved", lambda: _phase(space.get("snapshot", "saved")) == "Succeed", seconds=60)
    space.delete("snapshot", "saved")
    space.gone("snapshot", "saved")
    space.patch("batchsandbox", "own", {"spec": {"expireTime": "2020-01-01T00:00:00Z"}})
    space.gone("batchsandbox", "own")
    space.delete("batchsandbox", "any")
    space.delete("pool", "warm")
    space.gone("pool")
    # Nobody was refused anything but what the scope leaves out, and the exec probes would pass
    for name, text in one.logs().items():
        refused = [line for line in text.splitlines() if "forbidden" in line.lower() and "nodes" not in line]
        assert refused == [], name
    for name in one.processes:
        if name != "opensandbox-controller-manager":
            assert one.probe(name, "alive") and one.probe(name, "ready"), name
    # SIGTERM ends each with exit code 0, the Lease stays with the installation, and the hook gives it up
    lease = plane.kube.get("lease", one.namespace, LEASE)
    assert lease["spec"]["holderIdentity"] == identity(one.namespace)
    stopped = dict(one.processes)
    one.stop()
    assert {name: process.returncode for name, process in stopped.items()} == dict.fromkeys(stopped, 0)
    one.uninstall()
    assert plane.kube.get("lease", one.namespace, LEASE)["spec"]["holderIdentity"] == ""
    for name in ("opensandbox-controller-manager", "opensandbox-beat"):
        wait_until(lambda name=name: plane.kube.get("deployment", one.namespace, name)["spec"]["replicas"] == 0, 5)  # type: ignore[misc]  # bound per turn
