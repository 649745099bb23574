"""Tell of an object that our own code cannot read, once for each state of it.

Passes about other objects leave it out and go on; its own pass crashes, is retried with a growing pause and shown as
such. That is the second fence: the first is that nothing a user writes makes reading raise.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from osb.obs.log import get_logger

REMEMBERED = 1000

R = TypeVar("R")

log = get_logger("unread")

_lock = threading.Lock()
_told: OrderedDict[tuple[str, str], None] = OrderedDict()


def state(kind: str, obj: Mapping[str, Any]) -> tuple[str, str]:
    """(key, version) of an object: what was told of it once is not told again until it changes."""
    meta = obj["metadata"]
    return f"{kind}/{meta.get('namespace') or ''}/{meta['name']}", str(meta.get("resourceVersion") or "")


def tried(key: str, version: str, work: Callable[..., R], *args: Any) -> R | None:
    """What `work` gives; None when it fails, which is told."""
    try:
        return work(*args)
    except Exception as error:  # noqa: BLE001  the fence: whatever it is, the other objects go on
        tell(key, version, error)
        return None


def tell(key: str, version: str, error: Exception) -> None:
    """One log line with the object's key and where reading it failed; nothing for what was told before."""
    with _lock:
        if (key, version) in _told:
            return
        _told[key, version] = None
        if len(_told) > REMEMBERED:
            _told.popitem(last=False)
    log.error("an object cannot be read; others are served without it", key=key, error=repr(error), exc_info=error)
