"""Generate the tasks of a sandbox from its task template and shard task patches.

In: `spec.taskTemplate`, `spec.shardTaskPatches`, the index. Out: the task in its wire form, or `InvalidInput` for
that index only: one bad patch stops one task, never the object (spec/tasks.md 1, 8). Next: `osb.decide.tasks`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from osb.api import smp
from osb.decide.tasknode import task_name
from osb.errors import InvalidInput

LONGEST = 2**31 - 1  # seconds; an executor refuses more
_TEMPLATE = "spec.taskTemplate"
_STEP = re.compile(r"(\w+)(?:\[(\d+)\])?")  # of a path: a member, and the place in its list


def generate(
    box: str, index: int, *, template: Mapping[str, Any] | None, patches: Sequence[Any] = ()
) -> dict[str, Any]:
    """The task of `index` as the executor gets it: `{"name", "process"}`.

    Raises InvalidInput when the template has no process, or the patch is invalid or leaves no usable process; its
    field is the path at which the user wrote what is wrong. `env` of a patch is merged by name; `command` and `args`
    replace; `timeoutSeconds` of the patch counts.
    """
    whole: dict[str, Any] = dict(template or {})
    sources = [(_TEMPLATE, template or {})]
    _mapping(whole.get("spec"), f"{_TEMPLATE}.spec")
    if index < len(patches):
        at = f"spec.shardTaskPatches[{index}]"
        patch = smp.read(patches[index], at=at)
        whole = smp.merge(whole, patch, "task", at=at)
        sources.insert(0, (at, patch))
    try:
        return {"name": task_name(box, index), "process": _task(whole)}
    except InvalidInput as error:
        raise InvalidInput(_written(error.field, whole, sources), error.message) from error


def _task(whole: Mapping[str, Any]) -> dict[str, Any]:
    """The process of a task. Paths of errors begin at the task's own root, `spec`."""
    spec = _mapping(whole.get("spec"), "spec")
    if spec.get("process") is None:
        raise InvalidInput(
            "spec.process", "is missing: there is nothing to run (tasks that are pods are not supported)"
        )
    process = _mapping(spec["process"], "spec.process")
    body = _process(process, "spec.process")
    beside = "timeoutSeconds" in spec
    timeout = _timeout(spec, "spec") if beside else _timeout(process, "spec.process")  # some users write it inside
    if timeout is not None:
        body["timeoutSeconds"] = timeout
    return body


# -- where a user wrote what is wrong ------------------------------------------------------------------------


def _written(path: str, whole: Mapping[str, Any], sources: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The path in the patch if that says anything of it, else in the template."""
    found = ((at, _place(path, whole, source)) for at, source in sources)
    return next((f"{at}.{place}" for at, place in found if place), f"{sources[-1][0]}.{path}")


def _place(path: str, whole: Mapping[str, Any], source: Mapping[str, Any]) -> str:
    """`path` of the merged task as it is in `source`, "" when that says nothing of it."""
    place: list[str] = []
    merged: Any = whole
    here: Any = source
    for name, index in _STEP.findall(path):
        if not isinstance(here, Mapping) or "$patch" in here:
            return path
        if name not in here:
            return ""
        merged = merged.get(name) if isinstance(merged, Mapping) else None
        here = here[name]
        if not index or not isinstance(here, list) or not isinstance(merged, list):
            place.append(f"{name}[{index}]" if index else name)
            continue
        item = merged[int(index)]  # merging by name has put two lists into one
        at = next((n for n, other in enumerate(here) if other == item or _same_name(other, item)), None)
        if at is None:
            return ""
        place.append(f"{name}[{at}]")
        merged, here = item, here[at]
    return ".".join(place)


def _same_name(one: object, other: object) -> bool:
    return (
        isinstance(one, Mapping) and isinstance(other, Mapping) and "name" in one and one["name"] == other.get("name")
    )


# -- members -------------------------------------------------------------------------------------------------


def _mapping(value: object, path: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput(path, "must be an object")
    return dict(value)


def _process(process: Mapping[str, Any], path: str) -> dict[str, Any]:
    """command, args, env, workingDir; numbers and booleans become text (samples write `args: [3600]`)."""
    command = _words(process.get("command"), f"{path}.command")
    if not command:
        raise InvalidInput(f"{path}.command", "must name a program")
    body: dict[str, Any] = {"command": command}
    if args := _words(process.get("args"), f"{path}.args"):
        body["args"] = args
    if env := _env(process.get("env"), f"{path}.env"):
        body["env"] = env
    folder = process.get("workingDir")
    if folder is not None and not isinstance(folder, str):
        raise InvalidInput(f"{path}.workingDir", "must be text")
    if folder:
        body["workingDir"] = folder
    return body


def _words(value: object, path: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInput(path, "must be a list")
    return [_scalar(item, f"{path}[{at}]") for at, item in enumerate(value)]


def _env(value: object, path: str) -> list[dict[str, str]]:
    """Only literal values.

    An executor cannot resolve `valueFrom`, so it is refused instead of silently dropped.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInput(path, "must be a list")
    found: dict[str, str] = {}
    for at, item in enumerate(value):
        if not isinstance(item, Mapping) or item.get("name") in (None, ""):
            raise InvalidInput(f"{path}[{at}]", "must be an object with a name")
        if not isinstance(item["name"], str):
            raise InvalidInput(f"{path}[{at}].name", "must be text")
        if item.get("valueFrom") is not None:
            raise InvalidInput(f"{path}[{at}].valueFrom", "is not supported for tasks; use value")
        raw = item.get("value")
        found[item["name"]] = "" if raw is None else _scalar(raw, f"{path}[{at}].value")
    return [{"name": name, "value": text} for name, text in found.items()]


def _scalar(value: object, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return repr(value)
    raise InvalidInput(path, "must be text")


def _timeout(holder: Mapping[str, Any], path: str) -> int | None:
    value = holder.get("timeoutSeconds")
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LONGEST:
        raise InvalidInput(f"{path}.timeoutSeconds", f"must be a whole number of seconds, at most {LONGEST}")
    return value


def generate_all(
    box: str, replicas: int, *, template: Mapping[str, Any] | None, patches: Sequence[Any] = ()
) -> dict[int, dict[str, Any] | InvalidInput]:
    """Every index with its task, or with why it has none."""
    found: dict[int, dict[str, Any] | InvalidInput] = {}
    for index in range(replicas):
        try:
            found[index] = generate(box, index, template=template, patches=patches)
        except InvalidInput as error:
            found[index] = error
    return found


def problems(
    box: str, replicas: int, *, template: Mapping[str, Any] | None, patches: Sequence[Any] = ()
) -> tuple[InvalidInput, ...]:
    """What is wrong with the template and the patches, each once: for a condition, before anything starts."""
    errors = generate_all(box, min(replicas, len(patches) + 1), template=template, patches=patches).values()
    unique = {str(error): error for error in errors if isinstance(error, InvalidInput)}
    return tuple(unique.values())
