"""The assign profiles in force: ConfigMap `pool-assign-profiles` in our own namespace (spec/pool.md 12.2).

Read when needed, kept for ten seconds; a mistake keeps the last good table and is logged once; without a namespace of
our own (POD_NAMESPACE) only the built-in profile exists. Next: `osb.decide.assign`.
"""

from __future__ import annotations

import threading
import time

from osb.config import Settings
from osb.decide.assign_profiles import Table, parse_profiles
from osb.errors import ApiError, NotFound
from osb.kube.client import Kube
from osb.obs.log import get_logger

CONFIGMAP = "pool-assign-profiles"
KEY = "profiles"
KEEP_SECONDS = 10.0

log = get_logger("reconcile")


class Profiles:
    """Thread-safe; `table` never raises: what cannot be read keeps the last good table."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read = 0.0
        self._table = Table()
        self._said: tuple[str, ...] = ()

    def table(self, kube: Kube, settings: Settings) -> Table:
        """The profiles by name; problems are told once."""
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
                return self._table
            self._table = parse_profiles(text, self._table)
            self._read = time.monotonic()
            self._say(self._table.problems)
            return self._table

    def _say(self, problems: tuple[str, ...]) -> None:
        if problems != self._said:
            self._said = problems
            for problem in problems:
                log.warning("assign profiles", problem=problem)
