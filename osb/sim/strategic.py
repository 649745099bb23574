"""Strategic merge patch for the core kinds: lists that merge by a key, and their directives.

The controller has its own for pod templates (`osb.api.smp`); this one is separate on purpose, so that neither
hides a mistake of the other, and covers statuses and other kinds too.
"""

from __future__ import annotations

from typing import Any

from osb.sim.kinds import Resource
from osb.sim.refusals import bad_request

Obj = dict[str, Any]

# field name -> merge key; "" = a list of plain values that is united. Any other field is replaced whole.
_KEYS: dict[str, str] = {
    "containers": "name", "initContainers": "name", "ephemeralContainers": "name", "env": "name",
    "volumeMounts": "mountPath", "volumeDevices": "devicePath", "volumes": "name", "imagePullSecrets": "name",
    "hostAliases": "ip", "topologySpreadConstraints": "topologyKey", "ports": "containerPort",
    "conditions": "type",
    "podIPs": "ip", "addresses": "type", "ownerReferences": "uid", "finalizers": "", "secrets": "name",
}  # fmt: skip
_BY_KIND = {("Service", "ports"): "port"}
_ATOMIC = {("CustomResourceDefinition", "conditions"), ("NetworkPolicy", "ports"), ("Lease", "conditions")}


def strategic(target: Obj, patch: Obj, res: Resource) -> Obj:
    """A new object. Raises Refusal 400 for a directive that makes no sense."""
    merged = _merge(target, patch, res.kind)
    if not isinstance(merged, dict):
        raise bad_request("the patch would remove the object")
    return merged


def _merge(target: Any, patch: Any, kind: str) -> Any:
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch")
    rest = {key: value for key, value in patch.items() if key not in ("$patch", "$retainKeys")}
    if directive == "replace":
        return rest
    if directive == "delete":
        return None
    merged = dict(target) if isinstance(target, dict) else {}
    if retained := patch.get("$retainKeys"):
        merged = {key: value for key, value in merged.items() if key in retained}
    for key, value in rest.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.split("/", 1)[1]
            merged[field] = [item for item in merged.get(field) or () if item not in value]
        elif key.startswith("$setElementOrder/"):
            continue
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _field(merged.get(key), value, key, kind)
    for key, order in rest.items():
        if key.startswith("$setElementOrder/"):
            _reorder(merged, key.split("/", 1)[1], order, kind)
    return merged


def _merge_key(field: str, kind: str) -> str | None:
    if (kind, field) in _ATOMIC:
        return None
    return _BY_KIND.get((kind, field), _KEYS.get(field))


def _field(old: Any, new: Any, field: str, kind: str) -> Any:
    if not isinstance(new, list):
        return _merge(old, new, kind)
    key = _merge_key(field, kind)
    if key is None or (key and not all(isinstance(item, dict) for item in new)):
        return new
    base = old if isinstance(old, list) else []
    if key == "":
        return base + [item for item in new if item not in base]
    return _merge_list(base, new, key, kind)


def _merge_list(base: list[Any], new: list[Obj], key: str, kind: str) -> list[Any]:
    if any(item.get("$patch") == "replace" for item in new):
        return [item for item in new if item.get("$patch") != "replace"]
    merged = list(base)
    for item in new:
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next((i for i, old in enumerate(merged) if isinstance(old, dict) and old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            merged = [old for old in merged if not (isinstance(old, dict) and old.get(key) == item[key])]
        elif at is None:
            merged.append(_merge({}, item, kind))
        else:
            merged[at] = _merge(merged[at], item, kind)
    return merged


def _reorder(merged: Obj, field: str, order: Any, kind: str) -> None:
    """Put the named elements in the order that the patch gives; others keep their place behind them."""
    items, key = merged.get(field), _merge_key(field, kind)
    if not isinstance(items, list) or not isinstance(order, list) or key is None:
        return
    marks = [item.get(key) if isinstance(item, dict) else item for item in order]

    def rank(item: Any) -> int:
        mark = item.get(key) if isinstance(item, dict) else item
        return marks.index(mark) if mark in marks else len(marks)

    merged[field] = sorted(items, key=rank)
