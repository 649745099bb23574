"""The assign profiles in force: ConfigMap `pool-assign-profiles` in our own namespace (spec/pool.md 12.2).

Read when needed, kept for ten seconds; a mistake keeps the last good table and is logged once; without a namespace of
our own (POD_NAMESPACE) only the built-in profile exists. Until the ConfigMap was read once (or is known to be absent or
forbidden) nobody is assigned: the built-in profile may not be what the operator wants. Next: `osb.decide.assign`.
"""

from __future__ import annotations

import threading
import time

from osb.config import Settings
from osb.decide.assign_profiles import Table, parse_profiles
from osb.errors import ApiError, NotFound, Refused
from osb.kube.client import Kube
from osb.obs.log import get_logger

CONFIGMAP = "pool-assign-profiles"
KEY = "profiles"
KEEP_SECONDS = 10.0

log = get_logger("reconcile")


class Profiles:
    """Thread-safe. What cannot be read keeps the last good table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read = 0.0
        self._table = Table()
        self._said: tuple[str, ...] = ()

    def table(self, kube: Kube, settings: Settings) -> Table:
        """The profiles by name; mistakes and what is in force are told once. Raises ApiError before the first read."""
        if not settings.pod_namespace:
            return self._table
        with self._lock:
            if self._read and time.monotonic() - self._read < KEEP_SECONDS:
                return self._table
            try:
                found = kube.get("configmap", settings.pod_namespace, CONFIGMAP)
                text = (found.get("data") or {}).get(KEY)
            except NotFound:
                text = None
            except ApiError as error:
                self._say((f"ConfigMap {settings.pod_namespace}/{CONFIGMAP} cannot be read: {error}",))
                if not self._read and not isinstance(error, Refused):
                    raise
                self._read = time.monotonic()
                return self._table
            before, first = self._table, not self._read
            self._table = parse_profiles(text, before)
            self._read = time.monotonic()
            self._say(self._table.problems)
            if first or self._table.profiles != before.profiles:
                log.info("assign profiles in force", profiles=sorted({"default", *self._table.profiles}))
            return self._table

    def _say(self, problems: tuple[str, ...]) -> None:
        if problems != self._said:
            self._said = problems
            for problem in problems:
                log.warning("assign profiles", problem=problem)
