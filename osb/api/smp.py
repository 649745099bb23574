"""Patches as Kubernetes means them: strategic merge for pods and task templates, and plain JSON merge.

Lists are replaced unless the field has a merge key; the rules, directives and worked examples are in
spec/batchsandbox.md 9.4. In: JSON documents, which stay unchanged. Out: a new document. Errors name the path
inside the patch, so that a user finds the wrong element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from osb.errors import InvalidInput

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """What merging must know of a field: its elements' merge key, or union of scalars, and its own fields."""

    fields: Mapping[str, Shape] = field(default_factory=dict)
    key: str = ""
    union: bool = False

    def child(self, name: str) -> Shape:
        return self.fields.get(name, PLAIN)


PLAIN: Final = Shape()


def _keyed(key: str, **fields: Shape) -> Shape:
    return Shape(fields, key)


_CONTAINERS = _keyed(
    "name",
    env=_keyed("name"),
    ports=_keyed("containerPort"),
    volumeMounts=_keyed("mountPath"),
    volumeDevices=_keyed("devicePath"),
)

_POD = Shape(
    {
        "metadata": Shape({"ownerReferences": _keyed("uid"), "finalizers": Shape(union=True)}),
        "spec": Shape(
            {
                "containers": _CONTAINERS,
                "initContainers": _CONTAINERS,
                "ephemeralContainers": _CONTAINERS,
                "volumes": _keyed("name"),
                "imagePullSecrets": _keyed("name"),
                "hostAliases": _keyed("ip"),
                "topologySpreadConstraints": _keyed("topologyKey"),
                "schedulingGates": _keyed("name"),
                "resourceClaims": _keyed("name"),
            }
        ),
    }
)

_TASK = Shape({"spec": Shape({"process": Shape({"env": _keyed("name")})})})

SCHEMAS: Final[Mapping[str, Shape]] = {"pod": _POD, "task": _TASK}

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_REMOVE = "$deleteFromPrimitiveList/"


def merge(original: Obj, patch: Any, schema: str = "pod", *, at: str = "patch") -> Obj:
    """`original` with a strategic merge patch applied; `{}` and null change nothing.

    A patch may be the JSON text of the object as well. `at` begins every path in errors. Raises InvalidInput for a
    patch that is no object, an element without its merge key, and unknown or misplaced directives.
    """
    return _merge_object(original, read(patch, at=at), SCHEMAS[schema], at)


def read(patch: Any, *, at: str = "patch") -> Obj:
    """The patch as an object, null being an empty one. Raises InvalidInput."""
    if isinstance(patch, str):
        patch = _from_text(patch, at)
    if patch is None:
        patch = {}
    if not isinstance(patch, dict):
        raise InvalidInput(at, f"must be an object, not {patch!r:.40}")
    return patch


def _from_text(text: str, at: str) -> Any:
    try:
        patch = orjson.loads(text)
        orjson.dumps(patch)  # more than 254 levels could not be written back
    except (ValueError, TypeError) as error:
        raise InvalidInput(at, f"is text that is not usable JSON ({error})") from error
    return patch


def json_merge(original: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null removes, anything else replaces."""
    if not isinstance(patch, dict):
        return _copied(patch)
    merged = _copied(original) if isinstance(original, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = json_merge(merged.get(name), value)
    return merged


# -- objects -------------------------------------------------------------------------------------------------


def _merge_object(original: Mapping[str, Any], patch: Obj, shape: Shape, at: str) -> Obj:
    directive = patch.get(_PATCH, "merge")
    if directive == "delete":
        return {}
    if directive not in ("merge", "replace"):
        raise InvalidInput(f"{at}.{_PATCH}", f"{directive!r:.40} is none of merge, replace, delete")
    rest = {name: value for name, value in patch.items() if name != _PATCH}
    merged = {} if directive == "replace" else _retained(_copied(original), rest, at)
    for name in [name for name in rest if name.startswith(_ORDER)]:
        _merge_ordered(merged, rest, name, shape, at)
    for name, value in rest.items():
        if name == _RETAIN:
            continue
        if name.startswith(_REMOVE):
            _remove_scalars(merged, name, value, at)
        elif name.startswith("$"):
            raise InvalidInput(f"{at}.{name}", "is not a known directive")
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge_value(merged.get(name), value, shape.child(name), f"{at}.{name}")
    return merged


def _merge_value(original: Any, value: Any, shape: Shape, at: str) -> Any:
    """A type that differs from the original's is taken from the patch."""
    if isinstance(value, dict):
        return _merge_object(original if isinstance(original, dict) else {}, value, shape, at)
    if isinstance(value, list) and (shape.key or shape.union):
        return _merge_list(original if isinstance(original, list) else [], value, shape, at)
    return _copied(value)


def _retained(merged: Obj, patch: Obj, at: str) -> Obj:
    """`$retainKeys`: whatever it does not name goes; the patch may set only what it names."""
    if _RETAIN not in patch:
        return merged
    keep = patch[_RETAIN]
    if not isinstance(keep, list):
        raise InvalidInput(f"{at}.{_RETAIN}", "must be a list of field names")
    for name, value in patch.items():
        if value is not None and not name.startswith("$") and name not in keep:
            raise InvalidInput(f"{at}.{name}", f"is set, but {_RETAIN} does not name it")
    return {name: value for name, value in merged.items() if name in keep}


def _remove_scalars(merged: Obj, name: str, value: Any, at: str) -> None:
    target = name.removeprefix(_REMOVE)
    if not isinstance(value, list):
        raise InvalidInput(f"{at}.{name}", "must be a list of the values to remove")
    if isinstance(merged.get(target), list):
        merged[target] = [item for item in merged[target] if item not in value]


# -- lists ---------------------------------------------------------------------------------------------------


def _merge_list(original: Sequence[Any], patch: Sequence[Any], shape: Shape, at: str) -> list[Any]:
    """Merge element by element, then put them into order."""
    if shape.union:
        if any(isinstance(item, dict | list) for item in patch):
            raise InvalidInput(at, "must be a list of plain values")
        merged = list(dict.fromkeys([*original, *patch]))
        return _in_order(merged, list(dict.fromkeys(patch)), original)
    replaced, kept, changes = _split_directives(original, patch, shape.key, at)
    if replaced:
        return [_merge_object({}, item, shape, f"{at}[{n}]") for n, item in enumerate(changes)]
    groups = _grouped(kept, shape.key)
    for position, item in enumerate(changes):
        group = groups.setdefault(item[shape.key], [{}])
        before = group[0] if isinstance(group[0], dict) else {}
        group[0] = _merge_object(before, item, shape, f"{at}[{position}]")
    order = list(dict.fromkeys(item[shape.key] for item in changes))
    return _sorted(groups, order, [_key_of(item, shape.key) for item in kept])


def _grouped(items: Sequence[Any], key: str) -> dict[Any, list[Any]]:
    """Elements by key. A list may hold a key twice (a port for TCP and UDP): a patch changes the first."""
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(_key_of(item, key), []).append(item)
    return groups


def _sorted(groups: Mapping[Any, list[Any]], patch: Sequence[Any], original: Sequence[Any]) -> list[Any]:
    return [item for key in _in_order(list(groups), patch, original) for item in groups[key]]


def _split_directives(
    original: Sequence[Any], patch: Sequence[Any], key: str, at: str
) -> tuple[bool, list[Any], list[Obj]]:
    """(the list is replaced whole, what stays of the original, elements that add or change)."""
    replaced, kept, changes = False, list(original), []
    for position, item in enumerate(patch):
        here = f"{at}[{position}]"
        if not isinstance(item, dict):
            raise InvalidInput(here, f"must be an object, not {item!r:.40}")
        directive = item.get(_PATCH, "merge")
        if directive not in ("merge", "replace", "delete"):
            raise InvalidInput(f"{here}.{_PATCH}", f"{directive!r:.40} is none of merge, replace, delete")
        if directive == "replace":
            replaced = True
            continue
        if isinstance(item.get(key), dict | list):
            raise InvalidInput(f"{here}.{key}", f"must be a text or a number, not {item[key]!r:.40}")
        if key not in item:
            raise InvalidInput(here, f"has no {key}, by which elements of this list are merged")
        if directive == "delete":
            kept = [old for old in kept if _key_of(old, key) != item[key]]
        else:
            changes.append(item)
    return replaced, kept, changes


def _merge_ordered(merged: Obj, patch: Obj, name: str, shape: Shape, at: str) -> None:
    """`$setElementOrder/<field>`: merge that list now and put it into the wanted order."""
    target, wanted = name.removeprefix(_ORDER), patch.pop(name)
    child, here = shape.child(target), f"{at}.{name}"
    if not isinstance(wanted, list) or not (child.key or child.union):
        raise InvalidInput(here, "must be a list, for a field whose elements are merged")
    order = [_key_of(item, child.key) for item in wanted]
    original = merged.get(target) if isinstance(merged.get(target), list) else []
    changes = patch.pop(target, None) or []
    _check_order(changes, order, child.key, here)
    result = _merge_list(original or [], changes, child, f"{at}.{target}") if changes else list(original or [])
    if result:
        before = [_key_of(item, child.key) for item in original or []]
        merged[target] = _sorted(_grouped(result, child.key), order, before)


def _check_order(changes: Any, order: Sequence[Any], key: str, at: str) -> None:
    if not isinstance(changes, list):
        raise InvalidInput(at, "goes with a list")
    named = [
        _key_of(item, key)
        for item in changes
        if not (isinstance(item, dict) and item.get(_PATCH) in ("delete", "replace"))
    ]
    places = [order.index(item) if item in order else -1 for item in named]
    if -1 in places or places != sorted(places):
        raise InvalidInput(at, "does not name the elements of the patch in the order of the patch")


def _in_order(merged: Sequence[Any], patch: Sequence[Any], original: Sequence[Any]) -> list[Any]:
    """Keys of the merged list: patched ones in patch order, the others in original order.

    When both could be next, one that only the original has goes first only if the two stood in that order in
    the original; otherwise the patched one does. So new elements land in front.
    """
    present = set(merged)
    place = {key: index for index, key in reversed(list(enumerate(original)))}
    right = [key for key in patch if key in present]
    chosen = set(right)
    left = sorted((key for key in merged if key not in chosen), key=lambda key: place.get(key, len(place)))
    result: list[Any] = []
    while left and right:
        ours, theirs = place.get(left[0]), place.get(right[0])
        first = ours is not None and theirs is not None and ours < theirs
        result.append((left if first else right).pop(0))
    return result + left + right


def _key_of(item: Any, key: str) -> Any:
    value = item.get(key) if key and isinstance(item, dict) else item
    return value if not isinstance(value, dict | list) else repr(value)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
