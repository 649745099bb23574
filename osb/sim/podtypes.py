"""Types of what Pods, Jobs and all metadata carry, as far as the simulated server and its clients look at them.

The real API server decodes core kinds into structs and answers 400 for a value of another type, before anything is
defaulted or validated. `check` does that for a body; null counts as absent, unknown fields are nobody's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from osb.sim import refusals
from osb.sim.kinds import Resource

Obj = dict[str, Any]
# A type, [shape] = a list, {"": shape} = a map, {field: shape} = a struct
Shape = Any

_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
_MAP: Shape = {"": str}
_ANY: Shape = {}
_CONTAINER: Shape = {
    "name": str, "image": str, "command": [str], "args": [str], "workingDir": str, "imagePullPolicy": str,
    "env": [{"name": str, "value": str, "valueFrom": _ANY}], "envFrom": [_ANY],
    "ports": [{"name": str, "containerPort": int, "hostPort": int, "protocol": str}],
    "resources": {"limits": _ANY, "requests": _ANY},
    "volumeMounts": [{"name": str, "mountPath": str, "subPath": str, "readOnly": bool}],
    "securityContext": _ANY, "lifecycle": _ANY, "livenessProbe": _ANY, "readinessProbe": _ANY, "startupProbe": _ANY,
    "stdin": bool, "tty": bool, "terminationMessagePath": str, "terminationMessagePolicy": str,
}  # fmt: skip
_POD_SPEC: Shape = {
    "containers": [_CONTAINER], "initContainers": [_CONTAINER], "volumes": [{"name": str}], "restartPolicy": str,
    "terminationGracePeriodSeconds": int, "activeDeadlineSeconds": int, "dnsPolicy": str, "nodeName": str,
    "nodeSelector": _MAP, "tolerations": [_ANY], "affinity": _ANY, "serviceAccountName": str, "hostname": str,
    "subdomain": str, "hostNetwork": bool, "hostPID": bool, "hostIPC": bool, "shareProcessNamespace": bool,
    "automountServiceAccountToken": bool, "imagePullSecrets": [{"name": str}], "securityContext": _ANY,
    "schedulerName": str, "priority": int, "priorityClassName": str, "runtimeClassName": str, "overhead": _ANY,
    "enableServiceLinks": bool,
}  # fmt: skip
_META: Shape = {
    "name": str, "generateName": str, "namespace": str, "uid": str, "resourceVersion": str, "labels": _MAP,
    "annotations": _MAP, "finalizers": [str],
    "ownerReferences": [{"apiVersion": str, "kind": str, "name": str, "uid": str, "controller": bool}],
}  # fmt: skip
_STATUS: Shape = {
    "phase": str, "podIP": str, "reason": str, "message": str, "conditions": [_ANY], "containerStatuses": [_ANY],
    "initContainerStatuses": [_ANY],
}  # fmt: skip
_KINDS: dict[str, Shape] = {
    "Pod": {"metadata": _META, "spec": _POD_SPEC, "status": _STATUS},
    "Job": {
        "metadata": _META, "status": _ANY,
        "spec": {
            "parallelism": int, "completions": int, "backoffLimit": int, "activeDeadlineSeconds": int,
            "ttlSecondsAfterFinished": int, "template": {"metadata": _META, "spec": _POD_SPEC},
        },
    },
    "ConfigMap": {"metadata": _META, "data": _MAP},
}  # fmt: skip


def check(res: Resource, body: Obj) -> None:
    """400 for the first value of a wrong type."""
    shape = _KINDS.get(res.kind, {"metadata": _META}) if not res.custom else {"metadata": _META}
    for field, value, wanted in _wrong(shape, body, ""):
        given = _NAMES.get(type(value), "value")
        words = f"json: cannot unmarshal {given} into Go struct field {res.kind}.{field} of type {wanted}"
        raise refusals.bad_request(f'{res.kind} in version "{res.version}" cannot be handled as a {res.kind}: {words}')


def _wrong(shape: Shape, value: Any, path: str) -> Iterator[tuple[str, Any, str]]:
    """(field, value, type that it should have), in order."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            yield path, value, "object"
            return
        fields = dict.fromkeys(value, shape[""]) if "" in shape else shape
        for field, inner in fields.items():
            if value.get(field) is not None:
                yield from _wrong(inner, value[field], f"{path}.{field}" if path else field)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield path, value, "array"
            return
        for item in value:
            yield from _wrong(shape[0], item, path)
    elif not isinstance(value, shape) or (shape is int and isinstance(value, bool)):
        yield path, value, {int: "int64"}.get(shape, _NAMES[shape])
