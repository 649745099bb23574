"""The installation's Lease: the same object that the reference controller elects its leader with.

All processes of an installation share one identity, so this is no election among them: while we hold the Lease the
reference does not act, and while anybody else holds it nothing of ours is enqueued or written. Identities are
never kept in Redis, so losing Redis does not lose the Lease. Whoever renews (beat, or a watcher when beat is
silent) is decided by the caller (`osb.reconcile.installation`), which also publishes the state.

A foreign holder counts as gone when its record did not change for its own duration *while we watched*: clocks
of two machines are never compared. States:

    free (no Lease, no holder) ──acquire──► ours ──renew every 5 s──► ours ──release──► free
    foreign ──unchanged for its duration, as seen by us──► acquire
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from osb.config import Settings
from osb.errors import AlreadyExists, ApiError, Conflict, NotFound, Refused
from osb.kube.client import Kube
from osb.obs import metrics

NAME = "2fa1c467.opensandbox.io"
DURATION = 15  # seconds
UNWATCHED_AFTER = 60.0  # seconds since our last renewal from which on nobody can vouch for unclaimed pods
LAST_RENEWED = "sandbox.opensandbox.io/last-renewed"  # survives a foreign holder: the reference keeps annotations


@dataclass(frozen=True, slots=True)
class LeaseState:
    """What the Lease says. `holder` "" = free. `renewed` is the holder's clock, for people only."""

    holder: str
    ours: bool
    renewed: str
    transitions: int
    version: str
    duration: int


_FREE = LeaseState("", False, "", 0, "", DURATION)


class InstallationLease:
    """Not thread-safe; one per process that may renew. `kube` should be without a client-side limit."""

    def __init__(
        self, kube: Kube, settings: Settings, *, clock: Callable[[], float] = time.monotonic, wall: Any = None
    ) -> None:
        self._kube = kube
        self.namespace = settings.lease_home
        self.identity = settings.identity
        self._clock = clock
        self._wall: Callable[[], datetime] = wall or (lambda: datetime.now(UTC))
        self._state = _FREE
        self._raw: dict[str, Any] | None = None
        self._seen_at = 0.0

    def observe(self) -> LeaseState:
        """Read the Lease live. Raises Refused naming the rule when reading it is not allowed."""
        try:
            raw: dict[str, Any] | None = self._kube.get("lease", self.namespace, NAME)
        except NotFound:
            raw = None
        except Refused as error:
            raise self._denied(error) from error
        return self._remember(raw)

    def acquire_or_renew(self) -> bool:
        """Take the Lease when it is free, ours or abandoned, and renew it. False: somebody else holds it.

        A lost race is False too. Raises Refused (naming the rule), NotFound (no namespace), Unavailable.
        """
        state = self.observe()
        if not (state.ours or not state.holder or self._abandoned()):
            metrics.put("opensandbox_lease_held", 0)
            return False
        try:
            self._write(state)
        except (Conflict, AlreadyExists):
            self.observe()  # another process of ours renewed it, or somebody else was faster
        except Refused as error:
            raise self._denied(error) from error
        metrics.put("opensandbox_lease_held", 1 if self._state.ours else 0)
        return self._state.ours

    def holder(self) -> str:
        """The holder's identity as last observed, "" when free; read live when nothing was observed yet."""
        return (self._state if self._raw is not None else self.observe()).holder

    def unwatched_since(self) -> float | None:
        """Seconds since an installation of ours last renewed it, when that is over 60; infinite when never.

        None: somebody of ours watched until now. Reads the Lease live.
        """
        self.observe()
        stamp = ((self._raw or {}).get("metadata") or {}).get("annotations", {}).get(LAST_RENEWED, "")
        try:
            gap = (self._wall() - datetime.fromisoformat(stamp)).total_seconds()
        except (ValueError, TypeError):
            return math.inf
        return gap if gap > UNWATCHED_AFTER else None

    def release(self) -> None:
        """Give it up, so that a successor may act at once. Does nothing when it is not ours."""
        state = self.observe()
        if not state.ours or self._raw is None:
            return
        body = dict(self._raw)
        body["spec"] = {**body.get("spec", {}), "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            self._remember(self._kube.replace("lease", self.namespace, NAME, body))
        except (Conflict, NotFound):
            pass  # renewed or removed by another process meanwhile: its decision stands
        except Refused as error:
            raise self._denied(error) from error
        metrics.put("opensandbox_lease_held", 0)

    def _write(self, state: LeaseState) -> None:
        now = self._wall()
        spec: dict[str, Any] = dict((self._raw or {}).get("spec") or {})
        spec |= {"holderIdentity": self.identity, "leaseDurationSeconds": DURATION, "renewTime": _micro(now)}
        if not state.ours:
            spec |= {
                "acquireTime": _micro(now),
                "leaseTransitions": state.transitions + (1 if self._raw else 0),
            }
        if self._raw is None:
            body: dict[str, Any] = {"metadata": {"name": NAME, "namespace": self.namespace}}
        else:
            body = {**self._raw, "metadata": dict(self._raw["metadata"])}
        notes = body["metadata"].get("annotations") or {}
        body["metadata"]["annotations"] = {**notes, LAST_RENEWED: now.isoformat()}
        body |= {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        if self._raw is None:
            self._remember(self._kube.create("lease", self.namespace, body))
        else:
            self._remember(self._kube.replace("lease", self.namespace, NAME, body))

    def _abandoned(self) -> bool:
        return self._clock() - self._seen_at >= self._state.duration

    def _remember(self, raw: dict[str, Any] | None) -> LeaseState:
        """Take over what the server said; the time of observation moves only when the record changed."""
        state = self._parsed(raw)
        if state != self._state or self._raw is None:
            self._seen_at = self._clock()
        self._raw, self._state = raw, state
        return state

    def _parsed(self, raw: dict[str, Any] | None) -> LeaseState:
        if raw is None:
            return _FREE
        spec = raw.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        return LeaseState(
            holder=holder,
            ours=holder == self.identity,
            renewed=str(spec.get("renewTime") or ""),
            transitions=int(spec.get("leaseTransitions") or 0),
            version=str(raw["metadata"].get("resourceVersion") or ""),
            duration=int(spec.get("leaseDurationSeconds") or DURATION),
        )

    def _denied(self, error: ApiError) -> Refused:
        return Refused(
            f"{error}; the installation needs verbs get, create, update on leases (coordination.k8s.io) in "
            f"namespace {self.namespace}, or --no-lease",
            status=error.status,
            reason=error.reason,
        )


def _micro(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
