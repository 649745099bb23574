"""The part of JSONPath that printer columns use: fields, quoted fields, indexes, [*], equality filters."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_STEP = re.compile(
    r"""\.(?P<field>[A-Za-z_$][\w$-]*(?:\\.[\w$-]+)*)       # .field, with \. inside
    | \[\s*['"](?P<quoted>[^'"]+)['"]\s*\]                  # ['field']
    | \[(?P<index>-?\d+)\]                                  # [0]
    | \[(?P<every>\*)\] | \.(?P<star>\*)                    # [*]
    | \[\?\(\s*@\.(?P<key>[\w.]+)\s*==\s*['"]?(?P<value>[^'"\)]*)['"]?\s*\)\]   # [?(@.type=="Ready")]
    """,
    re.VERBOSE,
)


@lru_cache(maxsize=512)
def _steps(path: str) -> tuple[dict[str, str | None], ...] | None:
    text = path.strip().strip("{}")
    text = text if text.startswith((".", "[")) else "." + text
    steps, at = [], 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            return None
        steps.append(match.groupdict())
        at = match.end()
    return tuple(steps)


def find(path: str, obj: Any) -> list[Any]:
    """All values at `path`; empty when there are none or the path is beyond this part of the language."""
    found = [obj]
    for step in _steps(path) or ():
        found = [value for node in found for value in _follow(step, node)]
    return found if _steps(path) else []


def _follow(step: dict[str, str | None], node: Any) -> list[Any]:
    name = step["field"] or step["quoted"]
    if name is not None:
        name = name.replace("\\.", ".")
        return [node[name]] if isinstance(node, dict) and name in node else []
    if step["index"] is not None:
        at = int(step["index"])
        return [node[at]] if isinstance(node, list) and -len(node) <= at < len(node) else []
    if step["key"] is not None:
        key, value = step["key"], step["value"]
        return (
            [item for item in node if isinstance(item, dict) and str(item.get(key)) == value]
            if isinstance(node, list)
            else []
        )
    return list(node.values()) if isinstance(node, dict) else list(node) if isinstance(node, list) else []
