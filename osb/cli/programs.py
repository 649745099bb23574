"""Start another program of this project by its name.

The command line knows that these exist and no more: the watcher and the measurements are siblings of this package
(they do not know each other), and loading them only when asked keeps `osbctl get` quick.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from osb.errors import ConfigError


def program(module: str, function: str, *, what: str) -> Callable[..., Any]:
    """The function. Raises ConfigError when this installation does not have it."""
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigError(f"{what} is not part of this installation ({error}); install the full package") from error
    return found
