"""The wire: requests read leniently, answers in the exact shape that controllers know (spec/tasks.md 2.1).

Flat task objects, whole seconds in UTC with `Z`, empty members left out, JSON with a trailing newline.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

Obj = dict[str, Any]

LONGEST = 2**31 - 1  # seconds of a time limit

# The name of an object (253 characters at most) with an index, and some room: see `Folder.of`.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,509}[A-Za-z0-9])?")


class BadRequest(ValueError):
    """The request cannot be read: 400."""


def stamp(seconds: float) -> str | None:
    """RFC 3339 in whole seconds; None (JSON null) for a time that is not set."""
    if not seconds:
        return None
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def dump(value: object) -> bytes:
    """Compact JSON and a newline. Half a surrogate pair (a file name in an error) becomes a question mark."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="replace") + b"\n"


def error(status: str, message: str) -> bytes:
    return dump({"code": status, "message": message})


def read_list(body: bytes) -> list[Obj]:
    """The desired tasks of a `setTasks` body; `null` is none, elements without a name are skipped."""
    value = _json(body)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequest("invalid request body: an array of tasks is expected")
    if not all(isinstance(item, dict) for item in value):
        raise BadRequest("invalid request body: every element must be a task object")
    return [read_task(item) for item in value if item.get("name")]


def read_one(body: bytes) -> Obj:
    value = _json(body)
    if not isinstance(value, dict):
        raise BadRequest("invalid request body: a task object is expected")
    if not value.get("name"):
        raise BadRequest("task name is required")
    return read_task(value)


def _json(body: bytes) -> Any:
    try:
        value = json.loads(body)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair could not be answered or stored
    except UnicodeEncodeError as failed:
        raise BadRequest("invalid request body: a text holds half a surrogate pair") from failed
    except RecursionError as failed:
        raise BadRequest("invalid request body: nested too deeply") from failed
    except ValueError as failed:
        raise BadRequest(f"invalid request body: {failed}") from failed
    return value


def read_task(raw: Mapping[str, Any]) -> Obj:
    """Name and process of a request; status and unknown members are ignored. Raises BadRequest for wrong types."""
    name = raw["name"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadRequest(f"invalid request body: {name!r} cannot be a task name")
    process = raw.get("process")
    if process is not None and not isinstance(process, dict):
        raise BadRequest(f"invalid request body: process of {name} must be an object")
    return {"name": name, "process": _process(process, name) if process is not None else None}


def _process(raw: Mapping[str, Any], name: str) -> Obj:
    process: Obj = {"command": _texts(raw.get("command"), f"{name}: command")}
    if args := _texts(raw.get("args"), f"{name}: args"):
        process["args"] = args
    if env := _env(raw.get("env"), name):
        process["env"] = env
    folder = raw.get("workingDir")
    if folder is not None and not isinstance(folder, str):
        raise BadRequest(f"invalid request body: {name}: workingDir must be text")
    if folder:
        process["workingDir"] = folder
    if timeout := _timeout(raw.get("timeoutSeconds"), name):
        process["timeoutSeconds"] = timeout
    return process


def _timeout(value: object, name: str) -> int:
    """Seconds; 0, as Go clients write an absent number, is no limit."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LONGEST:
        raise BadRequest(f"invalid request body: {name}: timeoutSeconds must be a whole number from 1 to {LONGEST}")
    return value


def _texts(value: object, what: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadRequest(f"invalid request body: {what} must be a list of texts")
    return value


def _env(value: object, name: str) -> list[Obj]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRequest(f"invalid request body: {name}: env must be a list")
    found: list[Obj] = []
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise BadRequest(f"invalid request body: {name}: an env entry needs a name")
        text = item.get("value", "")
        if not isinstance(text, str):
            raise BadRequest(f"invalid request body: {name}: the value of env {item['name']} must be text")
        found.append({"name": item["name"], "value": text})
    return found


def command_of(process: Mapping[str, Any]) -> Sequence[str]:
    return [*process.get("command", ()), *process.get("args", ())]
