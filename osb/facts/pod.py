"""`PodFact`: the few fields of a pod that decisions need, small enough to mirror ten thousand of them.

In: a pod as raw JSON. Out: a frozen struct, packed as a msgpack array. Times are milliseconds since the
epoch, 0 for "not yet".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from osb.api import names
from osb.api.times import ms

Raw = Mapping[str, Any]

TERMINAL = ("Failed", "Succeeded")
_EVICT_OFF = ("false", "0")
_NOTHING: Raw = {}


class PodFact(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """New fields go to the end and have a default, so that an older release's entries can still be read."""

    namespace: str
    name: str
    uid: str
    version: str
    owner_kind: str = ""  # the controller owner only
    owner_name: str = ""
    owner_uid: str = ""
    phase: str = ""
    ready: bool = False  # phase Running and condition Ready True
    ready_since: int = 0
    created: int = 0
    scheduled: int = 0
    node: str = ""
    ip: str = ""
    deleting: int = 0
    revision: str = ""
    pool_label: str = ""
    box_label: str = ""
    index_label: str = ""
    evict: str = ""  # the evict label asks for eviction: its value, "true" for an empty one
    suspect: str = ""
    restarts: int = 0  # of the container that restarted most
    waiting: tuple[tuple[str, str], ...] = ()  # (container, reason), init containers too
    container_ids: tuple[tuple[str, str, bool], ...] = ()  # (name, id, running) of regular containers
    restart_policy: str = "Always"
    unschedulable: bool = False
    restart_record: str = ""
    adopted: str = ""
    finalizers: tuple[str, ...] = ()
    last_transition: int = 0  # the newest of all conditions
    main_image: str = ""

    @property
    def member(self) -> str:
        """`ns/name`, as in the mirror."""
        return f"{self.namespace}/{self.name}"

    @property
    def terminal(self) -> bool:
        return self.phase in TERMINAL

    @property
    def live(self) -> bool:
        """Neither terminal nor terminating: it can still serve somebody."""
        return self.deleting == 0 and self.phase not in TERMINAL

    @property
    def offerable(self) -> bool:
        """May be handed out if nobody holds it: ready, staying, and of known history."""
        return self.ready and self.deleting == 0 and not self.evict and not self.suspect


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PodFact)


def encode(fact: PodFact) -> bytes:
    return _encoder.encode(fact)


def decode(data: bytes) -> PodFact:
    """Raises msgspec.DecodeError for anything that `encode` did not make."""
    return _decoder.decode(data)


def pod_fact(raw: Raw) -> PodFact:
    """Cut a pod down. Absent parts become empty; a Pod as the API server stores it never raises."""
    meta = raw["metadata"]
    spec = raw.get("spec") or _NOTHING
    status = raw.get("status") or _NOTHING
    labels = meta.get("labels") or _NOTHING
    annotations = meta.get("annotations") or _NOTHING
    owner = _controller(meta.get("ownerReferences"))
    phase = status.get("phase") or ""
    is_ready, ready_since, scheduled, unschedulable, last = _conditions(status.get("conditions"))
    regular = status.get("containerStatuses") or ()
    init = status.get("initContainerStatuses") or ()
    containers = spec.get("containers") or ()
    return PodFact(
        meta.get("namespace") or "",
        meta.get("name") or "",
        meta.get("uid") or "",
        meta.get("resourceVersion") or "",
        owner.get("kind") or "",
        owner.get("name") or "",
        owner.get("uid") or "",
        phase,
        is_ready and phase == "Running",
        ready_since if is_ready else 0,
        ms(meta.get("creationTimestamp")),
        scheduled,
        spec.get("nodeName") or "",
        status.get("podIP") or "",
        ms(meta.get("deletionTimestamp")),
        labels.get(names.LABEL_POOL_REVISION) or "",
        labels.get(names.LABEL_POOL_NAME) or "",
        labels.get(names.LABEL_BOX_NAME) or "",
        labels.get(names.LABEL_POD_INDEX) or "",
        _evict(labels),
        labels.get(names.LABEL_SUSPECT) or "",
        max([item.get("restartCount") or 0 for item in regular], default=0),
        _waiting(init, regular),
        _container_ids(regular),
        spec.get("restartPolicy") or "Always",
        unschedulable,
        annotations.get(names.RESTART_RECORD) or "",
        annotations.get(names.ADOPTED) or "",
        tuple(meta.get("finalizers") or ()),
        last,
        (containers[0].get("image") or "") if containers else "",
    )


def _controller(owners: Sequence[Raw] | None) -> Raw:
    for owner in owners or ():
        if owner.get("controller"):
            return owner
    return _NOTHING


def _conditions(conditions: Sequence[Raw] | None) -> tuple[bool, int, int, bool, int]:
    """(Ready, since when, scheduled when, unschedulable, newest transition)."""
    is_ready, since, scheduled, unschedulable, newest = False, 0, 0, False, ""
    for item in conditions or ():
        at = item.get("lastTransitionTime") or ""
        newest = max(newest, at)
        kind = item.get("type")
        if kind == "Ready":
            is_ready, since = item.get("status") == "True", ms(at)
        elif kind == "PodScheduled":
            if item.get("status") == "True":
                scheduled = ms(at)
            else:
                unschedulable = item.get("reason") == "Unschedulable"
    return is_ready, since, scheduled, unschedulable, ms(newest)


def _evict(labels: Raw) -> str:
    """Presence is the signal, except for the values that plainly say no."""
    value = labels.get(names.LABEL_EVICT)
    if value is None or str(value).lower() in _EVICT_OFF:
        return ""
    return str(value) or "true"


def _waiting(init: Sequence[Raw], regular: Sequence[Raw]) -> tuple[tuple[str, str], ...]:
    found = []
    for item in (*init, *regular):
        waiting = (item.get("state") or _NOTHING).get("waiting")
        if waiting is not None:
            found.append((item.get("name") or "", waiting.get("reason") or ""))
    return tuple(found)


def _container_ids(regular: Sequence[Raw]) -> tuple[tuple[str, str, bool], ...]:
    return tuple(
        (
            item.get("name") or "",
            item.get("containerID") or "",
            (item.get("state") or _NOTHING).get("running") is not None,
        )
        for item in regular
    )
