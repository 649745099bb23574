"""Which cluster a Redis belongs to: everything in it is about one cluster, so a second one must not use it.

In: the UID of the cluster's namespace `kube-system` (or `default`) and the installation's name. Out: `osb:cluster` in
Redis, set by whoever starts first; a start with another value is refused. A flushed Redis has no pin and is pinned
anew. An account that may read neither namespace does not pin.
"""

from __future__ import annotations

import socket

from osb.config import Settings, masked_url
from osb.errors import ConfigError, NotFound, Refused
from osb.kube.client import Kube
from osb.store.client import Store

NAMESPACES = ("kube-system", "default")


class Foreign(ConfigError):
    """This Redis belongs to another cluster; the message says to which, and what to do."""


def mark(kube: Kube, settings: Settings) -> str:
    """`uid installation` of this start, "" when the cluster does not say who it is. Raises ApiError.

    A name that is only the machine's does not count: it changes with every new container.
    """
    name = "" if settings.installation == socket.gethostname() else settings.installation
    for namespace in NAMESPACES:
        try:
            return f"{kube.get('namespace', None, namespace)['metadata']['uid']} {name}".rstrip()
        except (NotFound, Refused):
            continue
    return ""


def pin(store: Store, kube: Kube, settings: Settings) -> str:
    """Claim the Redis for this cluster and return the mark. Raises Foreign when it is another one's."""
    mine = mark(kube, settings)
    if mine and not same(mine, found := store.pin(mine)):
        raise Foreign(f"Redis {masked_url(settings.redis_url)} is used by {shown(found)}, this is {shown(mine)}; "
                          "use another Redis or database number (REDIS_URL), or delete its key osb:cluster "
                          "if that one is gone for good")  # fmt: skip
    return mine


def same(one: str, other: str) -> bool:
    """Whether two marks may share a Redis: the same cluster, and the same installation where both have a name."""
    (uid, _, name), (uid2, _, name2) = one.partition(" "), other.partition(" ")
    return uid == uid2 and (name == name2 or not name or not name2)


def shown(text: str) -> str:
    uid, _, name = text.partition(" ")
    return f"cluster {uid}" + (f" (installation {name})" if name else "")
