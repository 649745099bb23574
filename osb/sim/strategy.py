"""What the real API server does to an object of one kind before it stores it: defaults, resets, immutable fields.

`prepare_create` and `prepare_update` change a fresh copy in place and return the causes of a 422. Custom
objects go through their schema (`osb.sim.schema`); of the core kinds only what the controller and kubectl can
notice is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osb.sim.kinds import Resource
from osb.sim.schema import Cause, conform

Obj = dict[str, Any]

_POD_MUTABLE = "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, `spec.activeDeadlineSeconds` or `spec.tolerations` (only additions to existing tolerations)"  # noqa: E501 -- the server's own words


def prepare_create(res: Resource, obj: Obj) -> list[Cause]:
    """Defaults and resets of a new object."""
    if res.custom:
        if res.has_status:
            obj.pop("status", None)
        obj["metadata"]["generation"] = 1
        return conform(res.schema, obj)
    if res.counts_generation:
        obj["metadata"]["generation"] = 1
    prepare = {"Pod": _new_pod, "Namespace": _new_namespace, "Job": _new_job, "Secret": _new_secret}.get(res.kind)
    return prepare(obj) if prepare else []


def prepare_update(res: Resource, old: Obj, new: Obj, *, sub: str) -> list[Cause]:
    """Keep what this path may not change, count the generation, refuse what is immutable."""
    if sub == "status":
        _keep_for_status(res, old, new)
    elif res.has_status:
        _restore(old, new, "status")
    causes = conform(res.schema, new, unique=sub != "status") if res.custom else []
    if res.custom or res.counts_generation:
        _count_generation(res, old, new, sub)
    if res.kind == "Pod" and not sub and _frozen_part(old) != _frozen_part(new):
        causes.append(("spec", "FieldValueForbidden", f"Forbidden: {_POD_MUTABLE}"))
    if res.kind == "Job" and not sub and old["spec"].get("template") != new.get("spec", {}).get("template"):
        causes.append(("spec.template", "FieldValueInvalid", "Invalid value: template: field is immutable"))
    return causes


def _restore(old: Obj, new: Obj, part: str) -> None:
    if part in old:
        new[part] = old[part]
    else:
        new.pop(part, None)


def _keep_for_status(res: Resource, old: Obj, new: Obj) -> None:
    """Custom objects: only the status moves. Core kinds: labels and annotations may move with it."""
    if res.custom:
        status = new.get("status")
        version = new["metadata"].get("resourceVersion")
        new.clear()
        new.update(old)
        new["metadata"] = {**old["metadata"], "resourceVersion": version}
        if status is not None:
            new["status"] = status
        else:
            new.pop("status", None)
        return
    for part in [key for key in {*old, *new} if key not in ("apiVersion", "kind", "metadata", "status")]:
        _restore(old, new, part)


def _count_generation(res: Resource, old: Obj, new: Obj, sub: str) -> None:
    generation = old["metadata"].get("generation", 1)
    if sub != "status":
        ignored = {"metadata", "status"} if res.has_status else {"metadata"}
        before = {key: value for key, value in old.items() if key not in ignored}
        after = {key: value for key, value in new.items() if key not in ignored}
        if before != after:
            generation += 1
    new["metadata"]["generation"] = generation


def _frozen_part(pod: Obj) -> Obj:
    spec = dict(pod.get("spec") or {})
    for key in ("activeDeadlineSeconds", "tolerations"):
        spec.pop(key, None)
    for key in ("containers", "initContainers"):
        spec[key] = [{k: v for k, v in item.items() if k != "image"} for item in spec.get(key) or ()]
    return spec


# -- new objects of core kinds -------------------------------------------------------------------------------


def _part(holder: Obj, key: str) -> Obj:
    """A struct inside a struct: absent and null are the empty one."""
    if holder.get(key) is None:
        holder[key] = {}
    part: Obj = holder[key]
    return part


def _new_secret(obj: Obj) -> list[Cause]:
    obj.setdefault("type", "Opaque")
    return []


def _new_namespace(obj: Obj) -> list[Cause]:
    _part(obj, "spec")["finalizers"] = ["kubernetes"]
    obj["status"] = {"phase": "Active"}
    _part(obj["metadata"], "labels")["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
    return []


def _new_job(obj: Obj) -> list[Cause]:
    spec = _part(obj, "spec")
    uid = obj["metadata"]["uid"]
    spec.setdefault("parallelism", 1)
    spec.setdefault("completions", 1)
    spec.setdefault("backoffLimit", 6)
    template = _part(spec, "template")
    labels = _part(_part(template, "metadata"), "labels")
    labels.update({"controller-uid": uid, "job-name": obj["metadata"]["name"]})
    spec["selector"] = {"matchLabels": {"controller-uid": uid}}
    obj["metadata"]["labels"] = obj["metadata"].get("labels") or dict(labels)
    obj["status"] = {}
    pod_spec = _part(template, "spec")
    causes = _default_pod_spec(pod_spec, "spec.template.spec")
    policy = pod_spec.get("restartPolicy")
    if policy not in ("Never", "OnFailure"):
        text = f'Unsupported value: "{policy}": supported values: "OnFailure", "Never"'
        causes.append(("spec.template.spec.restartPolicy", "FieldValueNotSupported", text))
    return causes


def _new_pod(obj: Obj) -> list[Cause]:
    spec = _part(obj, "spec")
    causes = _default_pod_spec(spec, "spec") + _unsupported(spec, "spec", {"restartPolicy": _RESTARTS})
    obj["status"] = {"phase": "Pending", "qosClass": _qos(spec)}
    spec.setdefault("priority", 0)
    spec.setdefault("enableServiceLinks", True)
    return causes


def _default_pod_spec(spec: Obj, path: str) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in (("restartPolicy", "Always"), ("terminationGracePeriodSeconds", 30), ("dnsPolicy",
    "ClusterFirst"),
                       ("securityContext", {}), ("schedulerName", "default-scheduler")):  # fmt: skip
        if spec.get(key) is None:
            spec[key] = value
    causes += _unsupported(spec, path, {"dnsPolicy": _DNS})
    if not spec.get("containers"):
        causes.append((f"{path}.containers", "FieldValueRequired", "Required value"))
    seen: set[str] = set()
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            where = f"{path}.{group}[{index}]"
            causes += _default_container(container, where)
            if (name := container.get("name")) in seen:
                causes.append((f"{where}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
            seen.add(container.get("name") or "")
    return causes


def _default_container(container: Obj, where: str) -> list[Cause]:
    image = container.get("image") or ""
    tag = image.rsplit("/", 1)[-1]
    latest = "@" not in tag and (":" not in tag or tag.endswith(":latest"))
    for key, value in (("terminationMessagePath", "/dev/termination-log"), ("terminationMessagePolicy",
    "File"),
                       ("imagePullPolicy", "Always" if latest else "IfNotPresent"), ("resources",
                       {})):  # fmt: skip
        if container.get(key) is None:
            container[key] = value
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for entry in container.get("env") or ():
        if entry.get("value", "") is None:
            del entry["value"]
    missing = [
        (f"{where}.{key}", "FieldValueRequired", "Required value")
        for key in ("name", "image")
        if not container.get(key)
    ]
    return missing + _unsupported(container, where, {"imagePullPolicy": _PULLS})


_RESTARTS = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PULLS = ("Always", "IfNotPresent", "Never")


def _unsupported(holder: Obj, path: str, allowed: Mapping[str, tuple[str, ...]]) -> list[Cause]:
    """Fields whose value is none of those that exist."""
    return [
        (f"{path}.{key}", "FieldValueNotSupported",
         f'Unsupported value: "{holder[key]}": supported values: ' + ", ".join(f'"{one}"' for one in values))
        for key, values in allowed.items()
        if holder.get(key) not in (None, *values)
    ]  # fmt: skip


def _qos(spec: Obj) -> str:
    resources = [item.get("resources") or {} for item in spec.get("containers") or ()]
    if all(not entry.get("limits") and not entry.get("requests") for entry in resources):
        return "BestEffort"
    limits_rule = all(
        {"cpu", "memory"} <= set(entry.get("limits") or {})
        and all((entry.get("requests") or {}).get(key, value) == value for key, value in entry["limits"].items())
        for entry in resources
    )
    return "Guaranteed" if limits_rule else "Burstable"
