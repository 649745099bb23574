"""What the chart creates: valid objects, the names that others rely on, nothing that a server does not know."""

from __future__ import annotations

import kubernetes_validate
import pytest

from osb.config import Settings
from tests.doubles.chart import EVERYTHING, NAMESPACE, Values, at, env, kinds, objects, pods, texts
from workers.routes import all_queues

CASES = {
    "defaults": {},
    "everything": EVERYTHING,
    "no CRDs": {"crds": {"install": False}},
    "own Redis": {"redis": {"url": "rediss://:p@redis.test:6380/1"}},
    "own Redis by Secret": {"redis": {"existingSecret": "mine", "existingSecretKey": "address"}},
    "two namespaces": {"rbac": {"scope": "namespace", "namespaces": ["a", "b"]}},
    "no rights": {"rbac": {"create": False}, "serviceAccount": {"create": False}},
    "no Lease": {"controller": {"leaderElection": {"enabled": False}}},
    "Redis without a volume": {"redis": {"bundled": {"persistence": {"enabled": False}}}},
}
PROCESSES = {
    "opensandbox-controller-manager", "opensandbox-beat", "opensandbox-worker-pool", "opensandbox-worker-batchsandbox",
    "opensandbox-worker-snapshot", "opensandbox-worker-recycle", "opensandbox-worker-tasks",
}  # fmt: skip
FOREIGN = ("monitoring.coreos.com/", "apiextensions.k8s.io/")


@pytest.mark.parametrize("version", ["1.25.0", "1.37.0"])
@pytest.mark.parametrize("values", CASES.values(), ids=CASES.keys())
def test_every_object_is_what_its_schema_says(values: Values, version: str) -> None:
    for obj in objects(at(version, values, *values.get("capabilities", {}).get("apiVersions", []))):
        if not obj["apiVersion"].startswith(FOREIGN):
            kubernetes_validate.validate(obj, version.removesuffix(".0"), strict=True)


@pytest.mark.parametrize("values", CASES.values(), ids=CASES.keys())
def test_no_key_is_left_empty_and_no_object_comes_twice(values: Values) -> None:
    seen = set()
    for obj in objects(values):
        assert _nulls(obj) == []
        meta = obj["metadata"]
        seen_as = (obj["kind"], meta.get("namespace"), meta["name"])
        assert seen_as not in seen
        seen.add(seen_as)


def _nulls(node: object, path: str = "") -> list[str]:
    if node is None:
        return [path]
    if isinstance(node, dict):
        return [found for key, value in node.items() for found in _nulls(value, f"{path}.{key}")]
    if isinstance(node, list):
        return [found for value in node for found in _nulls(value, f"{path}[]")]
    return []


def test_scripts_find_exactly_one_deployment_and_it_is_the_watcher() -> None:
    found = [d for d in kinds(EVERYTHING, "Deployment").values() if
             d["spec"]["template"]["metadata"]["labels"]["control-plane"] == "controller-manager"]  # fmt: skip
    (watcher,) = found
    assert watcher["metadata"]["name"] == "opensandbox-controller-manager"
    assert watcher["spec"]["replicas"] == 1
    container = watcher["spec"]["template"]["spec"]["containers"][0]
    assert (container["name"], container["command"]) == ("manager", ["osbctl", "watch"])
    assert {"app.kubernetes.io/name": "opensandbox", "app.kubernetes.io/instance": "rel"}.items() <= watcher["spec"][
        "selector"
    ]["matchLabels"].items()


def test_no_selector_matches_the_pods_of_another_deployment() -> None:
    made = [o for o in objects(EVERYTHING) if o["kind"] in ("Deployment", "StatefulSet", "Service")]
    selectors = {(o["kind"], o["metadata"]["name"]): o["spec"]["selector"] for o in made}
    for (kind, name), selector in selectors.items():
        wanted = selector.get("matchLabels", selector).items()
        matched = [n for n, pod in pods(EVERYTHING).items() if wanted <= pod["metadata"]["labels"].items()]
        if name == "opensandbox-controller-manager-metrics-service":
            assert set(matched) == PROCESSES
        else:
            assert matched == [name], (kind, name)


def test_every_queue_has_a_worker_and_each_kind_scales_alone() -> None:
    served: list[str] = []
    for name, pod in pods().items():
        command = pod["spec"]["containers"][0].get("command", [])
        if "worker" in command:
            assert name in PROCESSES
            served += command[command.index("-Q") + 1].split(",")
    assert sorted(served) == sorted(all_queues())


def test_a_queue_that_nobody_serves_is_named_and_a_kind_can_be_split() -> None:
    assert "NOBODY SERVES THE QUEUE osb.recycle" in texts({"workers": {"recycle": None}})["NOTES.txt"]
    assert "NOBODY" not in texts()["NOTES.txt"]
    slow = {"replicas": 1, "concurrency": 2, "queues": ["osb.pool.later"], "resources": {}}
    split = {"workers": {"pool": {"queues": ["osb.pool.now"]}, "pool-later": slow}}
    found = pods(split)
    assert "osb.pool.later" in found["opensandbox-worker-pool-later"]["spec"]["containers"][0]["command"]
    assert "osb.pool.now" in found["opensandbox-worker-pool"]["spec"]["containers"][0]["command"]


@pytest.mark.parametrize("name", sorted(PROCESSES))
def test_every_process_understands_its_environment(name: str) -> None:
    given = env(pods(EVERYTHING)[name])
    # Our namespace comes from the pod itself: without it assign profiles and Lease would be looked for elsewhere.
    assert given["POD_NAMESPACE"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    assert given["OSB_REDIS_URL"] == {"secretKeyRef": {"name": "opensandbox-redis", "key": "url"}}
    plain = {key: value for key, value in given.items() if isinstance(value, str)}
    settings = Settings.from_env({**plain, "POD_NAMESPACE": NAMESPACE})
    assert settings.warnings == ()
    assert settings.identity == f"osb_{NAMESPACE}/rel"
    assert settings.lease_home == NAMESPACE
    assert settings.expectation_timeout == 60.0 and settings.trust_unclaimed
    assert settings.snapshot_registry == "reg.test/x" and settings.task_events
    assert settings.metrics_port == 8080


def test_flags_win_over_values_and_come_once() -> None:
    given = {"extraArgs": ["--zap-log-level=debug", "--zap-log-level=error"], "controller": {"logLevel": "warn"}}
    container = pods(given)["opensandbox-beat"]["spec"]["containers"][0]
    assert [e["value"] for e in container["env"] if e["name"] == "OSB_ZAP_LOG_LEVEL"] == ["error"]


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_every_pod_fits_a_namespace_that_is_restricted(values: Values) -> None:
    for name, pod in pods(values).items():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not any("hostPath" in volume for volume in spec.get("volumes", [])), name
        for container in spec["containers"]:
            if container["name"] != "beside":
                context = container["securityContext"]
                assert context["allowPrivilegeEscalation"] is False, name
                assert context["capabilities"] == {"drop": ["ALL"]}, name
                assert context["readOnlyRootFilesystem"] is True, name


def test_only_processes_that_call_the_api_server_get_a_token() -> None:
    without = {
        name for name, pod in pods(EVERYTHING).items() if pod["spec"].get("automountServiceAccountToken") is False
    }
    assert without == {"opensandbox-redis", "opensandbox-flower"}
    accounts = {name: pod["spec"].get("serviceAccountName") for name, pod in pods(EVERYTHING).items()}
    assert accounts["opensandbox-redis"] is None and accounts["opensandbox-flower"] is None
    assert accounts["opensandbox-controller-manager"] == "opensandbox-controller-manager"
    assert accounts["opensandbox-beat"] == "opensandbox-controller-manager-beat"
    assert {accounts[name] for name in PROCESSES if "worker" in name} == {"opensandbox-controller-manager-worker"}


def test_probes_ask_the_watcher_by_http_and_the_others_for_their_heartbeat() -> None:
    found = pods()
    watcher = found["opensandbox-controller-manager"]["spec"]["containers"][0]
    assert watcher["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": 8081}
    assert watcher["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8081}
    for name in PROCESSES - {"opensandbox-controller-manager"}:
        container = found[name]["spec"]["containers"][0]
        assert container["livenessProbe"]["exec"]["command"] == ["osb-probe", "alive"]
        assert container["readinessProbe"]["exec"]["command"] == ["osb-probe", "ready"]
        assert env(found[name])["OSB_HEARTBEAT_FILE"] == "/tmp/alive"
        # A Redis that is away at the start for ten minutes is no reason to restart.
        startup = container["startupProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 600


def test_the_bundled_redis_never_evicts_and_writes_its_log_every_second() -> None:
    pod = pods()["opensandbox-redis"]["spec"]
    args = pod["containers"][0]["args"]
    given = dict(zip(args[::2], args[1::2], strict=True))
    assert given["--maxmemory-policy"] == "noeviction"
    assert (given["--appendonly"], given["--appendfsync"], given["--save"]) == ("yes", "everysec", "")
    assert given["--requirepass"] == "$(REDISCLI_AUTH)"
    (claim,) = kinds({}, "StatefulSet")["opensandbox-redis"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"


@pytest.mark.parametrize("redis", [{"url": "rediss://x.test"}, {"existingSecret": "mine"}])
def test_with_a_redis_of_ones_own_none_is_bundled(redis: Values) -> None:
    made = kinds({"redis": redis}, "StatefulSet")
    assert made == {}
    assert "opensandbox-redis" not in kinds({"redis": redis}, "Service")


def test_two_redis_addresses_are_refused() -> None:
    with pytest.raises(Exception, match="exclude each other"):
        objects({"redis": {"url": "redis://a", "existingSecret": "b"}})


def test_flower_is_never_without_a_password() -> None:
    given = env(pods(EVERYTHING)["opensandbox-flower"])
    assert given["FLOWER_BASIC_AUTH"] == {"secretKeyRef": {"name": "opensandbox-flower", "key": "basicAuth"}}
    assert given["FLOWER_READ_ONLY"] == "true"
    assert "FLOWER_UNAUTHENTICATED_API" not in given
    assert kinds(EVERYTHING, "Service")["opensandbox-flower"]["spec"]["type"] == "ClusterIP"
    assert not kinds(EVERYTHING, "Ingress")
    assert "opensandbox-flower" not in pods()


def test_api_versions_follow_the_server() -> None:
    wanted = {"pdb": {"enabled": True}, "metrics": {"enabled": True, "serviceMonitor": {"enabled": True}}}
    old = objects(at("1.20.2", wanted, "apps/v1"))
    new = objects(at("1.37.0", wanted, "monitoring.coreos.com/v1"))
    assert {o["apiVersion"] for o in old if o["kind"] == "PodDisruptionBudget"} == {"policy/v1beta1"}
    assert {o["apiVersion"] for o in new if o["kind"] == "PodDisruptionBudget"} == {"policy/v1"}
    assert not [o for o in old if o["kind"] == "ServiceMonitor"]
    assert [o for o in new if o["kind"] == "ServiceMonitor"]
    assert "No ServiceMonitor was made" in texts(at("1.20.2", wanted, "apps/v1"))["NOTES.txt"]


def test_two_releases_in_two_namespaces_do_not_collide() -> None:
    def names(where: str) -> set[tuple[str, str | None, str]]:
        made = objects({"crds": {"install": False}}, name="rel", namespace=where)
        return {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in made}

    assert not names("one") & names("two")


def test_the_lease_is_given_up_before_an_uninstall() -> None:
    job = kinds({}, "Job")["opensandbox-uninstall"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    assert job["spec"]["template"]["spec"]["containers"][0]["command"] == [
        "python", "-m", "osb.reconcile.uninstall", "opensandbox-controller-manager", "opensandbox-beat",
    ]  # fmt: skip
    assert not kinds({"controller": {"leaderElection": {"enabled": False}}}, "Job")


def test_redis_answers_only_our_own_pods() -> None:
    policy = kinds(EVERYTHING, "NetworkPolicy")["opensandbox-redis"]["spec"]
    (rule,) = policy["ingress"]
    allowed = [one["podSelector"]["matchLabels"].items() for one in rule["from"]]
    reach = {n for n, pod in pods(EVERYTHING).items() if any(a <= pod["metadata"]["labels"].items() for a in allowed)}
    assert reach == PROCESSES | {"opensandbox-flower"}
    assert rule["ports"] == [{"port": 6379, "protocol": "TCP"}]
