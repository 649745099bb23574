"""The assign profiles in force: ConfigMap `pool-assign-profiles` in our own namespace (spec/pool.md 12.2).

A choice is final, so all workers must decide alike: they read the ConfigMap from the mirror (a watcher follows it), or
live, and keep nothing of it. The last good text is shared through Redis: a mistake keeps it in force. Without it
nobody knows what a named profile means, and whoever names one waits. Without a namespace of our own (POD_NAMESPACE)
only the built-in profile exists. Next: `osb.decide.assign`.
"""

from __future__ import annotations

import threading
from typing import Any

import orjson

from osb.config import Settings
from osb.decide.assign_profiles import Table, parse_profiles
from osb.errors import ApiError, NotFound, Refused
from osb.kube.client import Kube
from osb.obs.log import get_logger
from osb.store.client import Store
from osb.store.mirror import CONFIGMAP, STALE_MS

NAME = "pool-assign-profiles"
KEY = "profiles"

Obj = dict[str, Any]

log = get_logger("reconcile")


class Profiles:
    """Thread-safe. Holds only what was told of the profiles, so that each news is told once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: tuple[str, ...] = ()
        self._problems: tuple[str, ...] = ()

    def table(self, store: Store, kube: Kube, settings: Settings, *, live: bool = False) -> Table:
        """The profiles by name. Raises ApiError when they can neither be read nor were they ever.

        `live`: do not ask the mirror, which may be a moment behind.
        """
        if not settings.pod_namespace:
            return Table()
        try:
            table = _table(store, _read(store, kube, settings, live=live))
        except ApiError as error:
            problem = f"ConfigMap {settings.pod_namespace}/{NAME} cannot be read: {error}"
            good = store.profiles.last()
            if good is None and not isinstance(error, Refused):
                raise
            table = _kept(good, (problem,))
        self._tell(table)
        return table

    def _tell(self, table: Table) -> None:
        names = tuple(sorted({"default", *table.profiles}))
        with self._lock:
            changed, broken = names != self._names, table.problems != self._problems
            self._names, self._problems = names, table.problems
        for problem in table.problems if broken else ():
            log.warning("assign profiles", problem=problem, last_good_known=table.known)
        if changed:
            log.info("assign profiles in force", profiles=list(names))


def remember(store: Store, obj: Obj) -> None:
    """Keep what the ConfigMap says for the time when it is broken, if it is good now."""
    text, meta = text_of(obj), obj["metadata"]
    if not parse_profiles(text, None).problems:
        store.profiles.keep(meta["uid"], meta["resourceVersion"], text or "")


def text_of(obj: Obj | None) -> str | None:
    """What the profiles are read from; None without a ConfigMap or without its key."""
    return ((obj or {}).get("data") or {}).get(KEY)


def _read(store: Store, kube: Kube, settings: Settings, *, live: bool) -> Obj | None:
    member = f"{settings.pod_namespace}/{NAME}"
    reading = store.mirror.read(CONFIGMAP, [member])
    if not live and reading.fresh(STALE_MS):
        entry = reading.entries[member]
        return orjson.loads(entry.doc) if entry is not None else None
    try:
        found = kube.get("configmap", settings.pod_namespace, NAME)
    except NotFound:
        return None
    remember(store, found)
    return found


def _table(store: Store, obj: Obj | None) -> Table:
    table = parse_profiles(text_of(obj), None)
    if obj is None or table.known:
        return table
    return _kept(store.profiles.last(obj["metadata"]["uid"]), table.problems)


def _kept(good: str | None, problems: tuple[str, ...]) -> Table:
    """The last good table, or one that knows nothing."""
    if good is None:
        return Table({}, problems, known=False)
    return Table(parse_profiles(good, None).profiles, problems)
