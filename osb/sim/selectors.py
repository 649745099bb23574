"""Label and field selectors: their text to a predicate over objects.

Used by lists, watches and deletecollection.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from osb.sim.refusals import bad_request

Obj = dict[str, Any]
Predicate = Callable[[Obj], bool]

_SET = re.compile(r"^([^\s!=,()]+)\s+(in|notin)\s*\(([^)]*)\)$")
_EQUAL = re.compile(r"^([^\s!=,()]+)\s*(==|=|!=)\s*([^\s=,()]*)$")
_EXISTS = re.compile(r"^(!?)\s*([^\s!=,()]+)$")

_FIELDS = {
    "Pod": {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
    "status.phase",
            "status.podIP", "status.nominatedNodeName"},
    "Node": {"spec.unschedulable"},
    "Job": {"status.successful"},
    "Namespace": {"status.phase"},
    "Secret": {"type"},
    "Event": {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
              "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
              "reason",
              "source", "type"},
}  # fmt: skip


_UNSET = {"Node": {"spec.unschedulable": "false"}}  # what an absent field is compared as, where not as ""


def label_selector(text: str) -> Predicate | None:
    """None selects everything. Raises Refusal 400 on a text that is no selector."""
    terms = [_label_term(part) for part in _split(text)]
    return _all_of(terms, lambda obj: obj["metadata"].get("labels") or {})


def field_selector(text: str, kind: str) -> Predicate | None:
    """Fields that `kind` supports, equality and inequality only, like the real server."""
    terms: list[Predicate] = []
    known = _FIELDS.get(kind, set()) | {"metadata.name", "metadata.namespace"}
    for part in (piece.strip() for piece in text.split(",") if piece.strip()):
        match = _EQUAL.match(part)
        if not match:
            raise bad_request(f'invalid field selector "{text}"')
        path, operator, wanted = match.groups()
        if path not in known:
            raise bad_request(f'field label not supported: "{path}"')
        unset = _UNSET.get(kind, {}).get(path, "")
        terms.append(_field_term(tuple(path.split(".")), wanted, operator != "!=", unset=unset))
    return _all_of(terms, lambda obj: obj)


def both(first: Predicate | None, second: Predicate | None) -> Predicate | None:
    if first is None or second is None:
        return first or second
    one, two = first, second
    return lambda obj: one(obj) and two(obj)


def matches_selector(selector: Obj | None, labels: Obj) -> bool:
    """A LabelSelector object against labels; an empty one selects everything, None nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(rule, labels) for rule in selector.get("matchExpressions") or ())


def _expression(rule: Obj, labels: Obj) -> bool:
    key, values = str(rule.get("key")), rule.get("values") or ()
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }.get(str(rule.get("operator")), False)


def _all_of(terms: list[Predicate], view: Callable[[Obj], Obj]) -> Predicate | None:
    if not terms:
        return None
    if len(terms) == 1:
        only = terms[0]
        return lambda obj: only(view(obj))

    def check(obj: Obj) -> bool:
        seen = view(obj)
        return all(term(seen) for term in terms)

    return check


def _split(text: str) -> list[str]:
    """At commas outside parentheses."""
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


def _label_term(part: str) -> Predicate:
    if match := _SET.match(part):
        key, operator, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUAL.match(part):
        key, operator, wanted = match.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != wanted
        return lambda labels: labels.get(key) == wanted
    if match := _EXISTS.match(part):
        absent, key = match.groups()
        return (lambda labels: key not in labels) if absent else (lambda labels: key in labels)
    raise bad_request(f'unable to parse requirement: invalid label selector "{part}"')


def _field_term(path: tuple[str, ...], wanted: str, equal: bool, *, unset: str) -> Predicate:
    def check(obj: Obj) -> bool:
        value: Any = obj
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        text = unset if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return (text == wanted) is equal

    return check
