"""Tell of an object that our own code cannot read, once for each state of it.

Passes about other objects leave it out and go on; its own pass crashes, is retried with a growing pause and shown as
such. That is the second fence: the first is that nothing a user writes makes reading raise.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from osb.obs.log import get_logger

REMEMBERED = 1000

log = get_logger("unread")

_lock = threading.Lock()
_told: OrderedDict[tuple[str, str, str], None] = OrderedDict()


def tell(kind: str, obj: Mapping[str, Any], error: Exception) -> None:
    """One log line with the object's key and where reading it failed; nothing for what was told before."""
    meta = obj["metadata"]
    key = f"{kind}/{meta.get('namespace') or ''}/{meta['name']}"
    state = (key, str(meta.get("uid") or ""), str(meta.get("resourceVersion") or ""))
    with _lock:
        if state in _told:
            return
        _told[state] = None
        if len(_told) > REMEMBERED:
            _told.popitem(last=False)
    log.error("an object cannot be read; others are served without it", key=key, error=repr(error), exc_info=error)
