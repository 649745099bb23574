"""What a pod requests, as the scheduler counts it, from its template. Quantities are exact fractions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))((?:[eE][+-]?\d{1,3})|[KMGTPE]i|[numkMGTPE])?")
_SUFFIX = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    **{letter: Fraction(10 ** (3 * i)) for i, letter in enumerate("MGTPE", start=2)},
    **{f"{letter}i": Fraction(2 ** (10 * i)) for i, letter in enumerate("KMGTPE", start=1)},
}

Requests = dict[str, Fraction]


def quantity(value: object) -> Fraction | None:
    """`500m`, `1Gi`, `1e3`, 2 as an exact number; None when it is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | float) else None
    if match is None:
        return None
    number, suffix = match.group(1), match.group(2) or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return Fraction(number) * Fraction(10) ** int(suffix[1:])
    return Fraction(number) * _SUFFIX[suffix]


def shown(value: Fraction | None) -> str:
    """For a message: a whole number, else milli."""
    if value is None:
        return "none"
    return str(int(value)) if value.denominator == 1 else f"{int(value * 1000)}m"


def pod_requests(template: Mapping[str, Any] | None) -> Requests:
    """Regular and restartable init containers together, or the largest init step if that is more, plus overhead.

    Requests given for the pod as a whole take the place of the sum. A limit without a request counts
    as the request.
    """
    spec = _mapping((template or {}).get("spec"))
    steady = _total(_items(spec.get("containers")))
    peak: Requests = {}
    sidecars: Requests = {}
    for init in _items(spec.get("initContainers")):
        asked = _requests(init)
        if init.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, asked)
            peak = _most(peak, sidecars)
        else:
            peak = _most(peak, _sum(sidecars, asked))
    found = _most(_sum(steady, sidecars), peak)
    found.update(_requests(spec))
    return _sum(found, _quantities(spec.get("overhead"))) if found else found


def _requests(holder: Mapping[str, Any]) -> Requests:
    resources = _mapping(holder.get("resources"))
    return {**_quantities(resources.get("limits")), **_quantities(resources.get("requests"))}


def _quantities(value: object) -> Requests:
    found = {name: quantity(raw) for name, raw in _mapping(value).items()}
    return {name: number for name, number in found.items() if number is not None}


def _total(containers: Sequence[Mapping[str, Any]]) -> Requests:
    found: Requests = {}
    for container in containers:
        found = _sum(found, _requests(container))
    return found


def _sum(one: Requests, other: Requests) -> Requests:
    return {name: one.get(name, Fraction(0)) + other.get(name, Fraction(0)) for name in {**one, **other}}


def _most(one: Requests, other: Requests) -> Requests:
    return {name: max(one.get(name, Fraction(0)), other.get(name, Fraction(0))) for name in {**one, **other}}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, Sequence) else []
