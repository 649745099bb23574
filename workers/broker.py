"""Kombu's Redis channel with one client instead of a new one for every message.

Kombu makes a Redis client object (a table of some hundred callbacks) twice per message, to remember it as
unacknowledged and to acknowledge it: a sixth of a busy worker's CPU. The clients share one connection pool anyway, and
a client is safe to share. Imported by `workers.app`; what kombu does with the client stays as it is.

And a worker outlives Redis: a channel whose connection is closed already says so with the error that celery expects,
where kombu fails with an AttributeError that ends the process.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import redis as transport


class Channel(transport.Channel):  # type: ignore[misc]  # kombu has no types
    """Keeps the client as long as its pool; kombu drops the pool when connections are lost."""

    _kept: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous=True)
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = super()._create_client()
        return self._kept

    def _connparams(self, *args: Any, **kwargs: Any) -> Any:
        """Called for a new pool. Without a connection there is no address: an error of the connection, not a bug."""
        if self._orphaned():
            raise ConnectionError("the connection to the broker is closed")
        return super()._connparams(*args, **kwargs)

    def close(self) -> None:
        """Messages in work cannot be given back without a connection: they stay recorded as unacknowledged."""
        if self._orphaned():
            self.do_restore = False
        super().close()

    def _orphaned(self) -> bool:
        return getattr(self.connection, "client", None) is None


def install() -> None:
    """Every Redis connection of this process uses the channel; repeating it changes nothing."""
    transport.Transport.Channel = Channel
