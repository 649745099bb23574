"""The last good text of the assign profiles, so that all workers choose alike while the ConfigMap is broken.

In: a text that was found to be good, with the UID and version of its ConfigMap. Out: that text, for the same
ConfigMap only. Lost with Redis; then what a broken ConfigMap meant before is not known. Next:
`osb.reconcile.profiles`.
"""

from __future__ import annotations

import redis

from osb.store import keys
from osb.store.scripts import Scripts, redis_errors


class GoodProfiles:
    """Thread-safe; holds nothing itself."""

    def __init__(self, client: redis.Redis, scripts: Scripts) -> None:
        self._redis = client
        self._scripts = scripts

    def keep(self, uid: str, version: str, text: str) -> bool:
        """Keep a good text. False: this version or a later one is kept already."""
        return bool(self._scripts.call("profiles_keep_v1", [keys.PROFILES], [uid, version, text]) == 1)

    def last(self, uid: str = "") -> str | None:
        """The last good text of the ConfigMap of that UID (of any, without one); None when none is known."""
        with redis_errors("read the last good profiles"):
            known, text = self._redis.hmget(keys.PROFILES, "uid", "text")
        return text.decode() if text is not None and uid in ("", known.decode()) else None
