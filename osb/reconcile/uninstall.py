"""Before an uninstall: stop whoever renews the installation's Lease, then give the Lease up.

`python -m osb.reconcile.uninstall DEPLOYMENT...` is what the chart's pre-delete hook runs. Giving the Lease up while
beat or a watcher lives would last five seconds: they take it back. So their Deployments are scaled to 0 first, and the
Lease is left alone until nobody has renewed it for longer than a renewal takes. Redis is not needed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from osb.config import Settings
from osb.errors import NotFound, OsbError
from osb.kube.client import Kube, connect
from osb.kube.lease import InstallationLease
from osb.reconcile.installation import RENEW_SECONDS

QUIET_SECONDS = 2 * RENEW_SECONDS + 1  # nobody of ours renews any more
GIVE_UP_SECONDS = 180.0


def stop(kube: Kube, namespace: str, deployments: Sequence[str]) -> None:
    """Scale them to 0; one that is not there is stopped already. Raises ApiError."""
    for name in deployments:
        try:
            kube.patch("deployment", namespace, name, {"spec": {"replicas": 0}}, sub="scale")
        except NotFound:
            continue


def hand_over(
    lease: InstallationLease,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> bool:
    """Release the Lease once it has been quiet. True when it is free or somebody else's in the end.

    False: it was still renewed after three minutes; then it runs out by itself, 15 s after the last renewal.
    """
    seen, since, began = "", clock(), clock()
    while clock() - began < GIVE_UP_SECONDS:
        state = lease.observe()
        if not state.ours:
            return True
        if state.version != seen:
            seen, since = state.version, clock()
        elif clock() - since >= QUIET_SECONDS:
            lease.release()
            return True
        pause(1.0)
    return False


def main(deployments: Sequence[str]) -> int:
    """Exit code: 0 done, 1 not done (said on stderr)."""
    settings = Settings.from_env()
    kube = connect(settings, pool=2)
    try:
        stop(kube, settings.lease_home, deployments)
        if hand_over(InstallationLease(kube, settings)):
            return 0
        sys.stderr.write(f"the Lease in {settings.lease_home} is still renewed by a process of this installation\n")
    except OsbError as error:
        sys.stderr.write(f"the Lease was not released: {error}\n")
    finally:
        kube.close()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
