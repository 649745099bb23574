"""The doctor finds what is wrong and says how to put it right."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from osb.cli import install, main, rollback
from osb.cli.context import Reach
from osb.config import Settings
from osb.errors import ConfigError
from osb.local.demo import box_body
from osb.sim import SimCluster
from osb.store.client import connect as connect_store
from osb.store.mirror import KINDS
from tests.cli.conftest import Called, Installation
from tests.doubles.simulated import client_of

Osbctl = Callable[..., Called]


def test_a_healthy_installation_has_no_errors(osbctl: Osbctl) -> None:
    said = osbctl("doctor")
    assert said.code == 0, said.out
    assert "0 errors" in said.out
    levels = {one["check"]: one["level"] for one in json.loads(osbctl("doctor", "-o", "json").out)}
    assert levels["Lease"] == levels["mirror"] == levels["permissions"] == "ok" and "nodes" not in levels


def test_an_empty_cluster_without_controller_is_full_of_findings(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a cluster without our CRDs that refuses patching pods, and a Redis nobody uses
    with SimCluster.start(tmp_path, kubelet=False) as cluster:
        cluster.add_fault(deny=True, path="/pods", verbs=["patch"])
        monkeypatch.setenv("REDIS_URL", redis_url)
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        code = main.run(["doctor"])
        said = capsys.readouterr().out
    assert code == 1
    assert "Pool is not installed" in said and "osbctl crds | kubectl apply -f -" in said
    assert "may not patch pods" in said and "add verb patch on pods" in said
    assert "Lease: namespace opensandbox-system does not exist" in said and "--lease-namespace" in said
    assert "never listed" in said and "no controller runs" in said and "no sign of life" in said


def test_a_broken_config_map_of_assign_profiles_is_a_warning_that_names_the_mistake(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with SimCluster.start(tmp_path, kubelet=False) as cluster, client_of(cluster) as kube:
        kube.create("namespace", None, {"metadata": {"name": "home"}})
        kube.create("configmap", "home", {"metadata": {"name": "pool-assign-profiles"}, "data": {"profiles": "{"}})
        monkeypatch.setenv("REDIS_URL", redis_url)
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        monkeypatch.setenv("POD_NAMESPACE", "home")
        main.run(["doctor", "-o", "json"])
    found = {one["check"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["profiles"]["level"] == "warning"
    assert "home/pool-assign-profiles: profiles: not JSON" in found["profiles"]["text"]
    assert "who names a profile waits" in found["profiles"]["text"]


def test_nodes_that_nobody_watches_are_a_warning_and_no_error(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a mirror that is fresh but for the nodes, and an account that may not watch them
    store = connect_store(redis_url)
    for kind in KINDS:
        store.mirror.finish(kind, "1", store.mirror.open(kind))
    store.close()
    with SimCluster.start(tmp_path, kubelet=False) as cluster:
        cluster.add_fault(deny=True, path="/nodes", verbs=["watch"])
        monkeypatch.setenv("REDIS_URL", redis_url)
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        main.run(["doctor", "-o", "json"])
    found = [one for one in json.loads(capsys.readouterr().out) if "nodes" in one["text"]]
    assert [(one["check"], one["level"]) for one in found] == [("permissions", "warning"), ("nodes", "warning")]


def test_a_lease_that_somebody_else_holds_is_an_error_that_names_him(
    osbctl: Osbctl, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given another installation, with a Redis of its own, on the same cluster
    monkeypatch.setenv("OSB_INSTALLATION", "other")
    said = osbctl("doctor", "--redis-url", redis_url)
    assert said.code == 1 and "Lease: held by osb_cli-test" in said.out and "stop that controller" in said.out


def test_a_rollback_removes_conditions_that_the_reference_does_not_know(
    osbctl: Osbctl, installation: Installation
) -> None:
    # Given a running controller, and a sandbox with an added condition
    refused = osbctl("doctor", "--prepare-rollback")
    assert refused.code == 1 and "a watcher is alive" in refused.err
    kinds = [c["type"] for c in installation.status("batchsandbox", "third")["conditions"]]
    assert "PoolAllocationPending" in kinds


def test_the_rollback_cleans_an_object_and_keeps_its_known_conditions(tmp_path: Path, redis_url: str) -> None:
    from osb.cli.install import install_definitions
    from osb.kube.client import connect

    with SimCluster.start(tmp_path, kubelet=False) as cluster:
        settings = Settings(redis_url=redis_url, kubeconfig=str(cluster.kubeconfig))
        install_definitions(settings)
        kube = connect(settings, pool=2)
        kube.create("batchsandbox", "default", box_body("a", 1))
        zero = dict.fromkeys(("allocated", "ready", "replicas", "taskFailed", "taskPending", "taskRunning",
                              "taskSucceed", "taskUnknown"), 0)  # fmt: skip
        when = "2026-01-01T00:00:00Z"
        conditions = [{"type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": when}
                      for kind in ("Progressing", "PodLost")]  # fmt: skip
        meta = {"resourceVersion": kube.get("batchsandbox", "default", "a")["metadata"]["resourceVersion"]}
        body = {"metadata": meta, "status": {**zero, "conditions": conditions}}
        kube.patch("batchsandbox", "default", "a", body, sub="status")
        reach = Reach(settings)
        rollback.prepare(reach, force=False)
        left = kube.get("batchsandbox", "default", "a")["status"]["conditions"]
        reach.close()
        kube.close()
    assert [c["type"] for c in left] == ["Progressing"]


def test_the_watcher_answers_its_probes(installation: Installation) -> None:
    base = f"http://127.0.0.1:{installation.everything.health_port}"
    for path in ("/healthz", "/readyz"):
        with urllib.request.urlopen(base + path, timeout=2) as answer:
            assert answer.status == 200


def test_up_makes_the_namespace_of_the_lease_or_says_that_it_may_not(tmp_path: Path) -> None:
    with SimCluster.start(tmp_path, kubelet=False) as cluster:
        settings = Settings(kubeconfig=str(cluster.kubeconfig))
        # Given an account that may not create namespaces
        fault = {"deny": True, "path": "/namespaces", "verbs": ["create"]}
        cluster.add_fault(**fault)
        with pytest.raises(ConfigError, match=r"opensandbox-system does not exist.*--lease-namespace.*--no-lease"):
            install.lease_home(settings)
        assert not install.lease_home(Settings(kubeconfig=settings.kubeconfig, no_lease=True))
        cluster.clear_faults()
        # When it may, it is made once
        assert install.lease_home(settings)
        assert not install.lease_home(settings)
