"""What passes of an object remember for the next one, by the object's UID: back-offs, failures in a row.

Nothing here is needed to be correct: when it is lost, the defaults apply. `osb:mem:{uid}`, a hash of JSON values with a
TTL, so an object that is gone leaves nothing behind for long.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import redis

from osb.store.scripts import redis_errors

TTL_SECONDS = 2 * 3600
PREFIX = "osb:mem:"


class Memories:
    """Thread-safe; holds nothing itself."""

    def __init__(self, client: redis.Redis) -> None:
        self._redis = client

    def recall(self, uid: str) -> dict[str, Any]:
        """Everything remembered about an object; {} when nothing is."""
        with redis_errors(f"recall {uid}"):
            raw: Mapping[bytes, bytes] = self._redis.hgetall(PREFIX + uid)
        return {name.decode(): orjson.loads(value) for name, value in raw.items()}

    def keep(self, uid: str, values: Mapping[str, Any]) -> None:
        """Remember these members; None forgets one."""
        gone = [name for name, value in values.items() if value is None]
        kept = {name: orjson.dumps(value) for name, value in values.items() if value is not None}
        with redis_errors(f"remember {uid}"):
            pipe = self._redis.pipeline(transaction=False)
            if gone:
                pipe.hdel(PREFIX + uid, *gone)
            if kept:
                pipe.hset(PREFIX + uid, mapping=kept)
                pipe.expire(PREFIX + uid, TTL_SECONDS)
            pipe.execute()

    def drop(self, uid: str) -> None:
        """Forget an object."""
        with redis_errors(f"forget {uid}"):
            self._redis.delete(PREFIX + uid)
