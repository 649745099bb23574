"""The checks of pool assignment: does this pool's template fit that sandbox's (spec/pool.md 12.3)?

Each check returns "" or the reason why the pool does not fit, for `Progressing` and `osbctl explain`.
Kubernetes' own rules apply: image names are completed, requests are what the scheduler would count, an empty
term matches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from osb.api.batchsandbox import BoxSpec
from osb.api.pool import PoolSpec
from osb.decide.assign_requests import pod_requests, shown

Template = Mapping[str, Any]


def _part(value: object, *members: str) -> Mapping[str, Any]:
    for member in members:
        value = value.get(member) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, Sequence) else []


# -- images --------------------------------------------------------------------------------------------------


def normalised(image: str) -> str:
    """The full reference: registry, path, tag or digest. `nginx` is `docker.io/library/nginx:latest`."""
    name, _, digest = image.partition("@")
    slash = name.rfind("/")
    colon = name.rfind(":")
    tag = name[colon + 1 :] if colon > slash else ""
    path = name[:colon] if tag else name
    first, _, rest = path.partition("/")
    if not rest or not ("." in first or ":" in first or first == "localhost"):
        path = f"docker.io/{path}" if rest else f"docker.io/library/{path}"
    path = path.replace("index.docker.io/", "docker.io/", 1)
    return f"{path}@{digest}" if digest else f"{path}:{tag or 'latest'}"


def _images(template: Template | None) -> list[str]:
    spec = _part(template, "spec")
    containers = [*_items(spec.get("containers")), *_items(spec.get("initContainers"))]
    return [c["image"] for c in containers if isinstance(c.get("image"), str) and c["image"]]


def image(box: BoxSpec, pool: PoolSpec) -> str:
    """Every image that the sandbox names is in the pool's template."""
    offered = {normalised(name) for name in _images(pool.template)}
    missing = [name for name in _images(box.template) if normalised(name) not in offered]
    return f"image {missing[0]} is not in its template" if missing else ""


# -- resources -----------------------------------------------------------------------------------------------


def resource(box: BoxSpec, pool: PoolSpec) -> str:
    """The pool's pods request at least what the sandbox requests, of each resource that it names."""
    asked, offered = pod_requests(box.template), pod_requests(pool.template)
    for name, quantity in sorted(asked.items()):
        if offered.get(name, 0) < quantity:
            return f"its pods have {name} {shown(offered.get(name))}, {shown(quantity)} is asked for"
    return ""


# -- nodes ---------------------------------------------------------------------------------------------------


def _terms(template: Template | None) -> list[Mapping[str, Any]] | None:
    """Required node affinity terms; None when there is no requirement."""
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    required = _part(template, "spec", "affinity", "nodeAffinity").get(key)
    return _items(required.get("nodeSelectorTerms")) if isinstance(required, Mapping) else None


def node_labels(pool: PoolSpec) -> tuple[dict[str, str], dict[str, str]]:
    """(labels, fields) that every node of the pool's pods is known to have.

    Its own labels, what its template selects, and what its single affinity term fixes to one value.
    """
    labels = dict(pool.labels)
    fields: dict[str, str] = {}
    terms = _terms(pool.template)
    if terms is not None and len(terms) == 1:
        labels.update(_fixed(_items(terms[0].get("matchExpressions"))))
        fields.update(_fixed(_items(terms[0].get("matchFields"))))
    labels.update({k: str(v) for k, v in _part(pool.template, "spec", "nodeSelector").items()})
    return labels, fields


def _fixed(expressions: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {
        str(e.get("key")): str(e["values"][0])
        for e in expressions
        if e.get("operator") == "In" and isinstance(e.get("values"), list) and len(e["values"]) == 1
    }


def nodeselector(box: BoxSpec, pool: PoolSpec) -> str:
    """Node selector pairs and one of the required affinity terms hold on the pool's nodes, as far as known."""
    labels, fields = node_labels(pool)
    for key, value in sorted(_part(box.template, "spec", "nodeSelector").items()):
        if labels.get(key) != str(value):
            return f"its nodes are not known to have {key}={value}"
    terms = _terms(box.template)
    if terms is not None and not any(term_matches(term, labels, fields) for term in terms):
        return "no node affinity term is known to hold on its nodes"
    return ""


def term_matches(term: Mapping[str, Any], labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    """All expressions and fields hold; a term without any matches nothing."""
    expressions, on_fields = _items(term.get("matchExpressions")), _items(term.get("matchFields"))
    if not expressions and not on_fields:
        return False
    return all(_holds(e, labels) for e in expressions) and all(_holds(e, fields) for e in on_fields)


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator = str(expression.get("key")), expression.get("operator")
    raw = expression.get("values")
    values = [str(v) for v in raw] if isinstance(raw, list) else []
    value = labels.get(key)
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator in ("Gt", "Lt") and value is not None and len(values) == 1:
        try:
            left, right = int(value), int(values[0])
        except ValueError:
            return False
        return left > right if operator == "Gt" else left < right
    return False


# -- labels --------------------------------------------------------------------------------------------------


def labelselector(box: BoxSpec, pool: PoolSpec, keys: Sequence[str]) -> str:
    """Each key has the same value on the sandbox and on the Pool."""
    for key in keys:
        if key not in box.labels:
            return f"the sandbox has no label {key}"
        if pool.labels.get(key) != box.labels[key]:
            return f"its label {key} is not {box.labels[key]}"
    return ""
