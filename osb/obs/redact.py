"""What a log line or an Event may not show: secrets, environment values, whole objects.

The rule looks at the key first (a value called `token` is masked whatever it is), then at the shape (a
mapping or a list under the name of an object, such as `spec` or `body`, is left out), then at the text
(bearer tokens, passwords in URLs).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"
LEFT_OUT = "(object, not logged)"
TEXT_LIMIT = 4000

_SECRET_KEY = re.compile(r"token|passw|secret|authorization|credential|private_?key|api_?key", re.IGNORECASE)
_PLAIN = frozenset({"token_age", "secret_name"})
_OBJECTS = frozenset(
    {
        "spec",
        "template",
        "env",
        "body",
        "pod",
        "patch",
        "object",
        "obj",
        "manifest",
        "data",
        "stringdata",
        "containers",
    }
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}")
_URL = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")


def redacted(key: str, value: Any) -> Any:
    """`value` as it may be shown under `key`."""
    if _SECRET_KEY.search(key) and key not in _PLAIN and value:
        return MASK
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        if key.lower() in _OBJECTS or "containers" in value or "spec" in value:
            return LEFT_OUT
        return {name: redacted(str(name), member) for name, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        if key.lower() in _OBJECTS:
            return LEFT_OUT
        return [redacted("", member) for member in value]
    return value


def text(value: str) -> str:
    """Tokens and URL passwords masked; capped."""
    if "://" in value:
        value = _URL.sub(rf"\1{MASK}@", value)
    value = _BEARER.sub(rf"\1 {MASK}", value)
    if len(value) > TEXT_LIMIT:
        return f"{value[:TEXT_LIMIT]}... and {len(value) - TEXT_LIMIT} more characters"
    return value
