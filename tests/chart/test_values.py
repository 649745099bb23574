"""Every value has a comment, a place in the schema and an effect; nothing else is accepted."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

import pytest
from helm_python.chart import lint
from jsonschema import Draft7Validator

from osb.flags import FLAGS
from tests.doubles.chart import CHART, EVERYTHING, default_values, texts
from workers.routes import all_queues

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
REFUSED_FLAGS = {
    "concurrency", "redis-url", "executor-token", "installation", "namespaces", "pod-namespace", "kubeconfig",
    "health-probe-bind-address", "metrics-bind-address",
}  # fmt: skip
WHOLE = {
    "controller.livenessProbe.httpGet", "controller.readinessProbe.httpGet", "controller.podSecurityContext",
    "controller.containerSecurityContext",
}  # fmt: skip

FLOWER = {"flower": {"enabled": True}}
METRICS = {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True}}}
MONITORED = {**METRICS, "capabilities": {"apiVersions": ["monitoring.coreos.com/v1"]}}
OPEN = {"networkPolicy": {"enabled": True}}
BASE: dict[str, Any] = {
    "flower.readOnly": FLOWER,
    "flower.existingSecret": FLOWER,
    "flower.maxTasks": FLOWER,
    "flower.resources": FLOWER,
    "metrics.port": METRICS,
    "metrics.serviceMonitor.enabled": {**MONITORED, "metrics": {"enabled": True}},
    "metrics.serviceMonitor.interval": MONITORED,
    "metrics.serviceMonitor.labels": MONITORED,
    "networkPolicy.ingress": OPEN,
    "networkPolicy.egress": OPEN,
    "pdb.maxUnavailable": {"pdb": {"enabled": True}},
    "redis.existingSecretKey": {"redis": {"existingSecret": "mine"}},
    "capabilities.kubeVersion": {"pdb": {"enabled": True}},
    "capabilities.apiVersions": METRICS,
}
OTHER: dict[str, Any] = {
    "controller.image.pullPolicy": "Always",
    "controller.logLevel": "debug",
    "controller.snapshot.commitJobTimeout": "3m",
    "controller.snapshot.containerdSocketPath": "/run/other.sock",
    # Both probes ask one port, so the paths show that each is read; the port has a test of its own.
    "controller.livenessProbe.httpGet": {"path": "/other", "port": 8081},
    "controller.readinessProbe.httpGet": {"path": "/other", "port": 8081},
    "controller.podSecurityContext": {"fsGroup": 7},
    "controller.containerSecurityContext": {"privileged": False, "readOnlyRootFilesystem": False},
    "rbac.scope": "namespace",
    "rbac.namespaces": ["a"],
    "redis.url": "redis://other.test",
    "redis.bundled.maxmemory": "64mb",
    "redis.bundled.persistence.size": "5Gi",
    "metrics.serviceMonitor.interval": "5s",
    "extraArgs": ["--dry-run"],
    "capabilities.kubeVersion": "1.20.2",
    "capabilities.apiVersions": ["monitoring.coreos.com/v1"],
    "imagePullSecrets": [{"name": "other"}],
    "extraEnv": [{"name": "OTHER", "value": "x"}],
    "controller.tolerations": [{"operator": "Exists"}],
    "networkPolicy.ingress": [{"ports": [{"port": 9}]}],
    "networkPolicy.egress": [{"ports": [{"port": 9}]}],
    **{
        f"workers.{name}.queues": list(all_queues())
        for name in ("pool", "batchsandbox", "snapshot", "recycle", "tasks")
    },
    **{name: [{"name": "other"}] for name in ("extraVolumes", "extraVolumeMounts")},
    **{name: [{"name": "other", "image": "x"}] for name in ("extraInitContainers", "extraContainers")},
}


def _leaves(node: Any, path: str = "") -> list[tuple[str, Any]]:
    """(path, default) of every value that a person sets as one."""
    if isinstance(node, dict) and node and path not in WHOLE and not path.endswith(".resources"):
        return [leaf for key, child in node.items() for leaf in _leaves(child, f"{path}.{key}" if path else key)]
    return [(path, node)]


LEAVES = dict(_leaves(default_values()))


def _other(path: str) -> Any:
    """Another value than the default."""
    default = LEAVES[path]
    if path in OTHER:
        return OTHER[path]
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    if isinstance(default, str):
        return "other"
    return {"limits": {"cpu": "7"}} if path.endswith(".resources") else {"other": "x"}


def _with(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    made = deepcopy(base)
    node = made
    *parents, last = path.split(".")
    for parent in parents:
        node = node.setdefault(parent, {})
    node[last] = value
    return made


def _stable(values: dict[str, Any]) -> dict[str, str]:
    """Rendered text without the random passwords."""
    random = re.compile(r"(password|url|basicAuth): [A-Za-z0-9+/=]+")
    return {path: random.sub(r"\1: random", text) for path, text in texts(values).items()}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_helm_finds_nothing_to_say_but_that_there_is_no_icon(values: dict[str, Any]) -> None:
    report = lint(CHART, values, strict=True, namespace="somewhere", kube_version="v1.30.0")
    said = [message["error"] for message in report["messages"] if "icon is recommended" not in message["error"]]
    assert (said, report["errors"] or []) == ([], [])


def test_the_same_values_render_the_same() -> None:
    assert _stable({}) == _stable({})


@pytest.mark.parametrize("path", LEAVES)
def test_a_value_changes_what_is_rendered(path: str) -> None:
    base = BASE.get(path, {})
    if path == "rbac.scope":
        base = {"rbac": {"namespaces": ["a"]}}
    changed = _with(base, path, _other(path))
    if path in ("redis.url", "redis.bundled.password"):
        before, after = texts(base), texts(changed)
        assert before["secret-redis.yaml"] != after["secret-redis.yaml"]
        assert texts(changed)["secret-redis.yaml"] == after["secret-redis.yaml"]  # not random any more
    else:
        assert _stable(base) != _stable(changed)


def test_the_probes_port_is_the_one_that_the_watcher_serves() -> None:
    both = {name: {"httpGet": {"path": "/x", "port": 9000}} for name in ("livenessProbe", "readinessProbe")}
    text = texts({"controller": both})["deployment-controller-manager.yaml"]
    assert 'value: ":9000"' in text and "containerPort: 9000" in text
    with pytest.raises(Exception, match="on one"):
        texts({"controller": {"livenessProbe": both["livenessProbe"]}})


def test_every_value_has_its_comment() -> None:
    bare = []
    for above, line in _key_lines((CHART / "values.yaml").read_text().splitlines()):
        if not above.lstrip().startswith("#"):
            bare.append(line.strip())
    assert bare == []


def _key_lines(lines: list[str]) -> list[tuple[str, str]]:
    """(line above, line) of every key, except inside resources and security contexts, which are Kubernetes' own."""
    found, inside = [], -1
    for above, line in zip(["", *lines], lines, strict=False):
        match = re.match(r"( *)([A-Za-z]+):", line)
        if match is None:
            continue
        depth = len(match[1])
        if 0 <= inside < depth:
            continue
        inside = depth if match[2] in ("resources", "podSecurityContext", "containerSecurityContext") else -1
        if match[2] != "restart":
            found.append((above, line))
    return found


def test_the_defaults_and_everything_fit_the_schema() -> None:
    Draft7Validator.check_schema(SCHEMA)
    check = Draft7Validator(SCHEMA)
    assert list(check.iter_errors(default_values())) == []
    assert list(check.iter_errors(EVERYTHING)) == []


@pytest.mark.parametrize(
    "values",
    [
        {"replicas": 3},
        {"controller": {"replicas": 3}},
        {"controller": {"replicaCount": -1}},
        {"controller": {"logLevel": "loud"}},
        {"workers": {"pool": {"queues": ["osb.pools.now"]}}},
        {"workers": {"pool": {"concurrency": 0}}},
        {"redis": {"url": "http://redis"}},
        {"rbac": {"scope": "galaxy"}},
        {"extraArgs": ["--no-such-flag"]},
        {"extraArgs": ["--concurrency=pool=3"]},
        {"flower": {"password": "x"}},
    ],
    ids=lambda values: json.dumps(values)[:50],
)
def test_a_value_that_nothing_reads_or_that_cannot_be_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"schema|additional|at '"):
        texts(values)


def test_scope_namespace_needs_namespaces() -> None:
    with pytest.raises(Exception, match=r"needs rbac\.namespaces"):
        texts({"rbac": {"scope": "namespace"}})


def test_numbers_given_as_text_still_render() -> None:
    text = texts({"controller": {"kubeClient": {"qps": "50", "burst": "80"}, "logLevel": "2"}})
    assert 'name: OSB_KUBE_CLIENT_QPS\n              value: "50"' in text["deployment-beat.yaml"]


def test_flags_that_the_chart_takes_are_those_of_the_settings_page() -> None:
    pattern = SCHEMA["properties"]["extraArgs"]["items"]["pattern"]
    assert set(pattern.split("(")[1].split(")")[0].split("|")) == {flag.name for flag in FLAGS} - REFUSED_FLAGS


def test_values_of_the_reference_s_chart_carry_over() -> None:
    theirs = {
        "namespaceOverride": "opensandbox-system",
        "controller": {
            "image": {"repository": "r", "tag": "t"}, "replicaCount": 2, "logLevel": "debug",
            "kubeClient": {"qps": 100, "burst": 200},
            "snapshot": {"imageCommitterImage": "c:1", "commitJobTimeout": "10m"},
            "livenessProbe": {"successThreshold": 1}, "readinessProbe": {"successThreshold": 1},
        },
        "serviceAccount": {"name": "mine"}, "crds": {"install": True, "keep": True},
    }  # fmt: skip
    text = texts(theirs)["deployment-controller-manager.yaml"]
    for line in ("namespace: opensandbox-system", "replicas: 2", "image: r:t", "serviceAccountName: mine"):
        assert line in text
