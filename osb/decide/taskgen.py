"""Generate the tasks of a sandbox from its task template and shard task patches.

In: `spec.taskTemplate`, `spec.shardTaskPatches`, the index. Out: the task in its wire form, or `InvalidInput` for
that index only: one bad patch stops one task, never the object (spec/tasks.md 1, 8). Next: `osb.decide.tasks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from osb.api import smp
from osb.decide.tasknode import task_name
from osb.errors import InvalidInput

LONGEST = 2**31 - 1  # seconds; an executor refuses more


def generate(
    box: str, index: int, *, template: Mapping[str, Any] | None, patches: Sequence[Any] = ()
) -> dict[str, Any]:
    """The task of `index` as the executor gets it: `{"name", "process"}`.

    Raises InvalidInput when the template has no process, or the patch is invalid or leaves no usable process.
    `env` of a patch is merged by name; `command` and `args` replace; `timeoutSeconds` of the patch counts.
    """
    spec: dict[str, Any] = {"spec": _mapping((template or {}).get("spec"), "spec.taskTemplate.spec")}
    path = "spec.taskTemplate.spec.process"
    if index < len(patches):
        patch = patches[index]
        path = f"spec.shardTaskPatches[{index}]"
        spec = {"spec": _mapping(smp.merge(spec, patch, "task", at=path).get("spec"), path)}
    process = spec["spec"].get("process")
    if not isinstance(process, Mapping):
        raise InvalidInput(path, "a task needs spec.process; tasks that are pods are not supported")
    body = _process(process, path)
    timeout = _timeout(spec["spec"], process, path)
    if timeout is not None:
        body["timeoutSeconds"] = timeout
    return {"name": task_name(box, index), "process": body}


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
        if not isinstance(item, Mapping) or not isinstance(item.get("name"), str) or not item["name"]:
            raise InvalidInput(f"{path}[{at}]", "must have a name")
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


def _timeout(spec: Mapping[str, Any], process: Mapping[str, Any], path: str) -> int | None:
    """`timeoutSeconds` stands beside `process`; some users write it inside."""
    value = spec.get("timeoutSeconds", process.get("timeoutSeconds"))
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
