"""A pod template as far as this project reads it: the raw JSON when each part has its type, else what is wrong.

The API server keeps templates unread, so any JSON may stand in one. A wrong type anywhere makes the whole template
unusable: no API server would take its pods, and a pod without the labels that its author wrote is one that policies
do not see. What only the API server reads is left to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from osb.api.reading import Reader, shown

# A shape is an example: "" a text, 0 a number or text (a quantity), {} an object with at least these members,
# {EACH: x} an object whose values are all x, [x] a list of x. Null is as good as absent, but no element of a list.
EACH: Final = "*"
_QUANTITIES: Final = {"limits": {EACH: 0}, "requests": {EACH: 0}}
_CONTAINER: Final = {"name": "", "image": "", "restartPolicy": "", "resources": _QUANTITIES}
_EXPRESSION: Final = {"key": "", "operator": "", "values": [""]}
_TERMS: Final = [{"matchExpressions": [_EXPRESSION], "matchFields": [_EXPRESSION]}]
TEMPLATE: Final[Mapping[str, Any]] = {
    "metadata": {"labels": {EACH: ""}, "annotations": {EACH: ""}, "finalizers": [""]},
    "spec": {
        "containers": [_CONTAINER],
        "initContainers": [_CONTAINER],
        "volumes": [{"name": ""}],
        "imagePullSecrets": [{"name": ""}],
        "restartPolicy": "",
        "nodeSelector": {EACH: ""},
        "resources": _QUANTITIES,
        "overhead": {EACH: 0},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _TERMS}}},
    },
}
# What a shard patch may say of a whole pod: owners too, which no template can have.
PATCH: Final[Mapping[str, Any]] = {**TEMPLATE, "metadata": {**TEMPLATE["metadata"], "ownerReferences": [{}]}}


def parse(read: Reader, spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """`spec.template` as it was written; None when it is absent, or reported as unusable."""
    template = read.mapping(spec, "template", at="spec")
    if template is None:
        return None
    wrong = list(misfits(template, TEMPLATE, "spec.template"))
    for field, message in wrong:
        read.report(field, message, reason="TemplateInvalid")
    return None if wrong else template


def misfits(value: Any, shape: Any, at: str) -> Iterator[tuple[str, str]]:
    """(path, what is wrong) of every part of `value` that has another type than `shape` says."""
    if value is None:
        return
    if isinstance(shape, Mapping):
        yield from _of_object(value, shape, at)
    elif isinstance(shape, list):
        yield from _of_list(value, shape[0], at)
    elif isinstance(value, bool) or not isinstance(value, str if shape == "" else str | int | float):
        yield at, f"must be a {'text' if shape == '' else 'number or a text'}, not {shown(value)}"


def _of_object(value: Any, shape: Mapping[str, Any], at: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield at, f"must be an object, not {shown(value)}"
    elif EACH in shape:
        for name, item in value.items():
            yield from misfits(item, shape[EACH], f"{at}[{name}]")
    else:
        for name, inner in shape.items():
            yield from misfits(value.get(name), inner, f"{at}.{name}")


def _of_list(value: Any, shape: Any, at: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list):
        yield at, f"must be a list of {'texts' if shape == '' else 'objects'}, not {shown(value)}"
        return
    for position, item in enumerate(value):
        if item is None:
            yield f"{at}[{position}]", f"must be {'a text' if shape == '' else 'an object'}, not null"
        yield from misfits(item, shape, f"{at}[{position}]")
