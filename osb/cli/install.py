"""What `up` and `demo` do with the API server and Redis around the processes they start."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from osb.config import Settings
from osb.ending import Ending
from osb.errors import AlreadyExists, ConfigError, NotFound, Refused, StoreDown
from osb.kube.client import connect
from osb.kube.install import install_crds, make_namespace
from osb.local.up import Everything

if TYPE_CHECKING:
    from osb.store.client import Store

READY_SECONDS = 60.0
ROLES = ("watcher", "worker", "beat")  # what their connections are called
LEASE_REMEDY = "kubectl create namespace {}, or name another with --lease-namespace, or use none with --no-lease"


def install_definitions(settings: Settings) -> None:
    """Create the CRDs, and the Lease's namespace, in a simulated cluster."""
    kube = connect(settings, pool=2)
    try:
        make_namespace(kube, settings.lease_home)
        install_crds(kube)
    finally:
        kube.close()


def lease_home(settings: Settings) -> bool:
    """Create the Lease's namespace in a cluster that lacks it; True when it was made.

    Raises ConfigError when it is missing and this account may not make it.
    """
    if settings.no_lease:
        return False
    name, missing = settings.lease_home, False
    kube = connect(settings, pool=2)
    try:
        try:
            kube.get("namespace", None, name)
            return False
        except NotFound:
            missing = True
        except Refused:
            pass  # it may be there all the same
        kube.create("namespace", None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return True
    except AlreadyExists:
        return False
    except Refused as error:
        if missing:
            raise ConfigError(f"the Lease's namespace {name} does not exist and this account may not create it: "
                              f"{LEASE_REMEDY.format(name)}") from error  # fmt: skip
        return False
    finally:
        kube.close()


def release_lease(settings: Settings, redis_url: str) -> None:
    """Give the installation's Lease up, so that another controller may act at once; not while others of it go on."""
    from osb.reconcile.installation import Installation
    from osb.store.client import connect as connect_store

    store = connect_store(redis_url, name="up")
    try:
        if not _others(store):
            Installation(store, settings).release()
    finally:
        store.close()


def _others(store: Store) -> bool:
    """Whether processes of the installation are connected when our own have ended; False where one may not ask."""
    from osb.store.scripts import redis_errors

    try:
        with redis_errors("look who is connected"):
            return any(client.get("name") in ROLES for client in store.redis.client_list())
    except StoreDown:
        return False


def wait_ready(everything: Everything, over: Ending | threading.Event, *, timeout: float = READY_SECONDS) -> None:
    """Until all that passes need is mirrored and workers and beat showed life. Raises ConfigError after `timeout`."""
    from osb.store.client import connect as connect_store
    from osb.store.mirror import KINDS

    store = connect_store(everything.redis_url, name="up")
    deadline = time.monotonic() + timeout
    try:
        while not over.wait(0.1):
            everything.watch()
            if everything.ready() and all(store.mirror.synced(kind) for kind in KINDS):
                return
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"not ready after {timeout:g} s; look into the logs in {everything.supervisor.folder}"
                )
    finally:
        store.close()
