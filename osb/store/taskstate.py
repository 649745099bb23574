"""What the controller remembers about the tasks of a sandbox, per sandbox UID.

In: nodes of `osb.decide.tasknode` (any msgpack value). Out: the same. A cache: after a loss it is derived
again from what the executors report and from the `task-results` annotation. Each sandbox's hash lives a day
after its last write or read, so that a sandbox whose deletion was missed leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar, overload

import msgspec
import redis

from osb.store import keys
from osb.store.scripts import redis_errors

TTL_SECONDS: Final = 24 * 3600

T = TypeVar("T")


class TaskStates:
    """Written only by the run that holds the sandbox's key, so no script is needed."""

    def __init__(self, client: redis.Redis, *, ttl: int = TTL_SECONDS) -> None:
        self._redis = client
        self._ttl = ttl

    @overload
    def get_all(self, uid: str) -> dict[int, Any]: ...

    @overload
    def get_all(self, uid: str, kind: type[T]) -> dict[int, T]: ...

    def get_all(self, uid: str, kind: Any = Any) -> dict[int, Any]:
        """All states of a sandbox by slot index, decoded as `kind`.

        One that cannot be read counts as forgotten.
        """
        with redis_errors(f"read task states of {uid}"):
            pipe = self._redis.pipeline(transaction=False)
            pipe.hgetall(keys.task_states(uid)).expire(keys.task_states(uid), self._ttl)
            stored, _ = pipe.execute()
        states: dict[int, Any] = {}
        for index, packed in stored.items():
            try:
                states[int(index)] = msgspec.msgpack.decode(packed, type=kind)
            except (msgspec.MsgspecError, ValueError):
                continue
        return states

    def set_many(self, uid: str, states: Mapping[int, Any], *, drop: Iterable[int] = ()) -> None:
        """Store the given states and forget those of the slots in `drop`; the others stay."""
        gone = [str(index) for index in drop]
        with redis_errors(f"store task states of {uid}"):
            pipe = self._redis.pipeline(transaction=True)
            if states:
                packed = {str(index): msgspec.msgpack.encode(state) for index, state in states.items()}
                pipe.hset(keys.task_states(uid), mapping=packed)
            if gone:
                pipe.hdel(keys.task_states(uid), *gone)
            pipe.expire(keys.task_states(uid), self._ttl)
            pipe.execute()

    def drop(self, uid: str) -> None:
        """Forget a sandbox."""
        with redis_errors(f"drop task states of {uid}"):
            self._redis.delete(keys.task_states(uid))
