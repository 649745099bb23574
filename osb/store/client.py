"""Connect to Redis and hand out the structures kept there.

In: a URL. Out: `Store`, one per process, made after fork. Retries are off and sockets time out after 5 s: a
command whose reply is lost may have run, and only its caller knows how to ask again. Next: `osb.store.queue`
for the work queue, `osb.store.mirror` for the watched objects, `osb.store.ledger` for who holds which pod;
`osb.store.checks` looks at the server before it is trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from osb.store import keys
from osb.store.queue import WorkQueue
from osb.store.scripts import Scripts, redis_errors

if TYPE_CHECKING:
    from osb.store.duty import Duty
    from osb.store.journal import Journal
    from osb.store.ledger import Ledger
    from osb.store.limits import Limits
    from osb.store.memory import Memories
    from osb.store.mirror import Mirror
    from osb.store.profiles import GoodProfiles
    from osb.store.taskstate import TaskStates

_TIMEOUT_SECONDS = 5


class Store:
    """Everything we keep in one Redis. Thread-safe; not to be carried across a fork."""

    def __init__(self, client: redis.Redis, *, clock_key: str = "") -> None:
        self.redis = client
        self.scripts = Scripts(client, clock_key=clock_key)
        self.queue = WorkQueue(client, self.scripts)

    @cached_property
    def mirror(self) -> Mirror:
        from osb.store.mirror import Mirror

        return Mirror(self.redis, self.scripts)

    def ledger(self, namespace: str, pool: str) -> Ledger:
        from osb.store.ledger import Ledger

        return Ledger(self.redis, self.scripts, namespace, pool)

    @cached_property
    def duty(self) -> Duty:
        from osb.store.duty import Duty

        return Duty(self.redis, self.scripts)

    @cached_property
    def journal(self) -> Journal:
        from osb.store.journal import Journal

        return Journal(self.redis)

    @cached_property
    def limits(self) -> Limits:
        from osb.store.limits import Limits

        return Limits(self.scripts)

    @cached_property
    def tasks(self) -> TaskStates:
        from osb.store.taskstate import TaskStates

        return TaskStates(self.redis)

    @cached_property
    def profiles(self) -> GoodProfiles:
        from osb.store.profiles import GoodProfiles

        return GoodProfiles(self.redis, self.scripts)

    @cached_property
    def memories(self) -> Memories:
        from osb.store.memory import Memories

        return Memories(self.redis)

    def ledger_total(self) -> int:
        """Pods of all pools together, by their ledgers."""
        with redis_errors("count the pods of all pools"):
            members = [member.decode() for member in self.redis.smembers(keys.LEDGERS)]
            pipe = self.redis.pipeline(transaction=False)
            for member in members:
                pipe.hlen(keys.ledger(member, "pods"))
            return sum(int(size) for size in pipe.execute()) if members else 0

    def pin(self, mark: str) -> str:
        """Note whose Redis this is unless somebody did already; the mark that stands."""
        with redis_errors("note the cluster"):
            self.redis.set(keys.CLUSTER, mark, nx=True)
            return self.pinned()

    def pinned(self) -> str:
        """The mark of the cluster that uses this Redis, "" when there is none."""
        with redis_errors("read the cluster"):
            return (self.redis.get(keys.CLUSTER) or b"").decode(errors="replace")

    def unpin(self) -> None:
        """Forget it: that cluster is gone."""
        with redis_errors("forget the cluster"):
            self.redis.delete(keys.CLUSTER)

    def unready_ledgers(self) -> list[str]:
        """`ns/pool` of known pools, not being deleted, whose ledger may not be believed.

        That is one that is missing, another UID's, from another boot of Redis, or not ready. None are named while
        the mirror is not known. Two trips per 200 pools.
        """
        found: list[str] = []
        members = self.mirror.names("pool")
        for at in range(0, len(members), 200):
            part = members[at : at + 200]
            reading = self.mirror.read("pool", part)
            if not reading.known:
                return []
            for member, (uid, boot, state), boot_now in self._ledger_heads(part):
                entry = reading.entries[member]
                if entry is None or b'"deletionTimestamp"' in entry.doc:
                    continue
                if (uid, boot, state) != (entry.uid, boot_now, "ready"):
                    found.append(member)
        return found

    def _ledger_heads(self, members: list[str]) -> Iterator[tuple[str, tuple[str, str, str], str]]:
        """Each with (uid, boot, state) of its ledger and the boot of Redis."""
        with redis_errors("look at the ledgers"):
            pipe = self.redis.pipeline(transaction=False)
            for member in members:
                pipe.hmget(keys.ledger(member, "meta"), "uid", "boot", "state")
            pipe.info("server")
            *heads, server = pipe.execute()
        for member, head in zip(members, heads, strict=True):
            uid, boot, state = ((part or b"").decode() for part in head)
            yield member, (uid, boot, state), str(server["run_id"])

    def close(self) -> None:
        self.redis.close()


def connect(url: str, *, name: str = "osb", clock_key: str = "") -> Store:
    """A `Store` on the Redis at `url` with all scripts loaded. Raises StoreDown when it cannot be reached.

    `name` shows in CLIENT LIST. `clock_key` is for tests only (osb.store.scripts.Scripts).
    """
    client = redis.Redis.from_url(
        url,
        client_name=name,
        socket_timeout=_TIMEOUT_SECONDS,
        socket_connect_timeout=_TIMEOUT_SECONDS,
        socket_keepalive=True,
        health_check_interval=25,
        retry=Retry(NoBackoff(), 0),
    )
    store = Store(client, clock_key=clock_key)
    store.scripts.load()
    return store
