"""The chart as objects: rendered by Helm's own library, without a helm binary and without a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import yaml
from helm_python.chart import Chart

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "osb"
RELEASE, NAMESPACE = "rel", "osb-here"

Obj = dict[str, Any]
Values = Mapping[str, Any]

EVERYTHING: Values = {
    "flower": {"enabled": True},
    "metrics": {"enabled": True, "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "networkPolicy": {
        "enabled": True,
        "ingress": [{"ports": [{"port": 9}]}],
        "egress": [{"ports": [{"port": 8}]}],
    },
    "pdb": {"enabled": True},
    "extraArgs": ["--expectation-timeout=1m", "--trust-unclaimed"],
    "extraEnv": [{"name": "MORE", "value": "yes"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "extraInitContainers": [{"name": "first", "image": "one:1"}],
    "extraContainers": [{"name": "beside", "image": "two:2"}],
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccount": {"annotations": {"who": "we"}},
    "controller": {
        "snapshot": {"registry": "reg.test/x", "snapshotPushSecret": "push", "resumePullSecret": "pull"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "podLabels": {"team": "blue"},
        "podAnnotations": {"note": "text"},
        "priorityClassName": "system-cluster-critical",
    },
    "redis": {"caSecret": "redis-ca"},
    "tasks": {"executorTokenSecret": "executor"},
    "crds": {"annotations": {"note": "text"}},
    "capabilities": {"apiVersions": ["monitoring.coreos.com/v1"]},
}


@cache
def chart() -> Chart:
    return Chart.load(CHART)


def default_values() -> Obj:
    loaded: Obj = yaml.safe_load((CHART / "values.yaml").read_text())
    return loaded


def texts(values: Values | None = None, *, name: str = RELEASE, namespace: str = NAMESPACE) -> dict[str, str]:
    """Rendered text by template, NOTES.txt included. Raises helm_python's errors."""
    rendered = chart().render(dict(values or {}), name=name, namespace=namespace)
    return {path.split("/templates/", 1)[1]: text for path, text in rendered.items()}


def objects(values: Values | None = None, **where: str) -> list[Obj]:
    """What an installation creates, hooks included; fresh copies."""
    made: list[Obj] = orjson.loads(_objects(orjson.dumps(values or {}), tuple(sorted(where.items()))))
    return made


@cache
def _objects(values: bytes, where: tuple[tuple[str, str], ...]) -> bytes:
    found: list[Obj] = []
    for path, text in texts(orjson.loads(values), **dict(where)).items():
        if path.endswith(".yaml"):
            found += [obj for obj in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if obj]
    return orjson.dumps(found)


def kinds(values: Values | None, kind: str) -> dict[str, Obj]:
    """Objects of a kind by name (namespaced ones of several namespaces: the last)."""
    return {obj["metadata"]["name"]: obj for obj in objects(values) if obj["kind"] == kind}


def pods(values: Values | None = None) -> dict[str, Obj]:
    """Every pod template by the name of what makes it."""
    return dict(_pods(objects(values)))


def _pods(found: list[Obj]) -> Iterator[tuple[str, Obj]]:
    for obj in found:
        if obj["kind"] == "Pod":
            yield obj["metadata"]["name"], obj
        elif obj["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield obj["metadata"]["name"], obj["spec"]["template"]


def env(pod: Obj) -> dict[str, Any]:
    """Variables of the first container: a value, or where it comes from."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in pod["spec"]["containers"][0].get("env", [])}


def at(version: str, values: Values | None = None, *apis: str) -> Obj:
    """Values as rendered for a server of that version."""
    given = dict(values or {})
    seen = {**given.get("capabilities", {}), "kubeVersion": version}
    return {**given, "capabilities": {**seen, **({"apiVersions": list(apis)} if apis else {})}}
