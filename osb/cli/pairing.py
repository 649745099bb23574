"""Whether Redis and the cluster that the two addresses name belong together (`osb.reconcile.pin`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from osb.reconcile import pin

if TYPE_CHECKING:
    from osb.cli.context import Reach

REMEDY = (
    "set REDIS_URL or KUBECONFIG to the other's partner; or delete key osb:cluster in Redis if that cluster is gone"
)


def mismatch(reach: Reach) -> tuple[str, str] | None:
    """(what is wrong, what to do) when Redis is another cluster's. Raises StoreDown, ApiError, ConfigError."""
    found = reach.store.pinned()
    if not found:
        return None
    mine = pin.mark(reach.kube, reach.settings)
    if not mine or pin.same(mine, found):
        return None
    return f"this Redis is used by {pin.shown(found)}, KUBECONFIG is {pin.shown(mine)}", REMEDY
