"""`BoxSpec`: a BatchSandbox as decisions read it. In: the raw object. Out: safe values and what was wrong with it.

Who holds, wants and gives back what is answered by `osb.api.claims`; this module only reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from osb.api import key, names, podtemplate, record, times
from osb.api.reading import Reader, part, shown, text, texts
from osb.api.record import Record, Release
from osb.api.spec import Spec
from osb.errors import InvalidInput, RecordUnreadable

PRIORITY_LIMIT = 100
MAX_TIMEOUT = 86400
MAX_REPLICAS = 1500  # what a record of 64 KiB holds (spec/additions.md 3); the same without a pool
BARRING = frozenset({"NoPodSource", names.REASON_TOO_MANY_REPLICAS, "InvalidPoolRef"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSpec(Spec):
    finalizers: tuple[str, ...] = ()

    replicas: int = 1
    pool_ref: str = ""
    template: dict[str, Any] | None = None  # None too when what is written cannot be used
    written: Any = None  # spec.template as it stands, whatever it is
    shard_patches: tuple[Any, ...] = ()
    expire: datetime | None = None
    task_template: dict[str, Any] | None = None
    shard_task_patches: tuple[Any, ...] = ()
    release_when_completed: bool = False
    pause: bool | None = None
    lost_policy: str = names.LOST_REPLACE
    allocation_policy: str = names.ALLOCATE_PARTIAL
    allocation_timeout: int | None = None  # seconds
    priority: int = 0

    record: Record | None = None
    release: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    endpoints: tuple[str, ...] | None = None
    record_error: RecordUnreadable | None = None

    phase: str = ""

    @property
    def has_template(self) -> bool:
        """Something is written there, usable or not."""
        return self.written is not None

    @property
    def barred(self) -> str:
        """Why the spec cannot be served as it stands, "" when it can: nothing is granted or made meanwhile."""
        return next((p.reason for p in self.problems if p.reason in BARRING), "")

    @property
    def detaching(self) -> bool:
        """A pooled pause gives its pod back: the record stays in force although poolRef is empty."""
        return self.record is not None and self.record.detaching

    @property
    def observed(self) -> int:
        """The generation that the stored status was computed from."""
        return self.counted("observedGeneration")

    @property
    def pause_observed(self) -> int:
        """The newest generation that pause and resume have acknowledged."""
        return self.counted("pauseObservedGeneration")

    def condition(self, kind: str) -> Mapping[str, Any] | None:
        """The stored condition of that type when it is True, else None."""
        return next((c for c in self.conditions if c["type"] == kind and c.get("status") == "True"), None)


def parse(obj: Mapping[str, Any]) -> BoxSpec:
    """The sandbox with every bad value replaced by its documented fallback. Never raises for user errors."""
    read = Reader()
    meta, spec, status = part(obj, "metadata"), part(obj, "spec"), part(obj, "status")
    annotations = texts(meta.get("annotations"))
    template = podtemplate.parse(read, spec)
    task_template = read.mapping(spec, "taskTemplate", at="spec")
    found, release, released, record_error = _record(annotations)
    pool_ref = _pool_ref(read, spec)
    if template is None and not pool_ref and not (found is not None and found.detaching):
        _no_source(read, spec)
    return BoxSpec(
        namespace=text(meta, "namespace"),
        name=text(meta, "name"),
        uid=text(meta, "uid"),
        version=text(meta, "resourceVersion"),
        generation=meta.get("generation") or 0,
        deleting=times.parse_or_none(meta.get("deletionTimestamp")),
        created=times.parse_or_none(meta.get("creationTimestamp")) or times.EPOCH,
        labels=texts(meta.get("labels")),
        annotations=annotations,
        finalizers=tuple(item for item in meta.get("finalizers") or () if isinstance(item, str)),
        replicas=_replicas(read, spec, found, pool_ref),
        pool_ref=pool_ref,
        template=template,
        written=spec.get("template"),
        shard_patches=read.items(spec, "shardPatches", at="spec"),
        expire=_expire(read, spec),
        task_template=task_template,
        shard_task_patches=read.items(spec, "shardTaskPatches", at="spec"),
        release_when_completed=_released_when_completed(read, spec),
        pause=read.flag(spec, "pause", at="spec"),
        lost_policy=_lost_policy(read, spec),
        allocation_policy=_allocation_policy(read, spec),
        allocation_timeout=read.number(
            spec, "allocationTimeoutSeconds", at="spec", default=None, low=1, high=MAX_TIMEOUT
        ),
        priority=_priority(read, spec, annotations),
        record=found,
        release=release.pods,
        force=release.force,
        released=released,
        endpoints=record.parse_endpoints(annotations.get(names.ENDPOINTS)),
        record_error=record_error,
        status=status,
        phase=text(status, "phase"),
        problems=read.found(),
    )


def _record(
    annotations: Mapping[str, str],
) -> tuple[Record | None, Release, tuple[str, ...], RecordUnreadable | None]:
    """All three annotations or none: one unreadable part makes the whole record unbelievable."""
    try:
        return (
            record.parse(annotations.get(names.ALLOC_STATUS)),
            record.parse_release(annotations.get(names.ALLOC_RELEASE)),
            record.parse_names(annotations.get(names.ALLOC_RELEASED)),
            None,
        )
    except RecordUnreadable as error:
        return None, Release(), (), error


def _no_source(read: Reader, spec: Mapping[str, Any]) -> None:
    """Pods come from a pool or a template. Both is allowed: with a pool, the template is only a hint."""
    what = "neither poolRef nor template is set" if spec.get("template") is None else "it cannot be used"
    remedy = "set one of them" if spec.get("template") is None else "correct it, or set poolRef"
    read.report("spec.template", f"{what}, so no pod can be made; {remedy}", reason="NoPodSource")


def most_replicas(pool: str) -> int:
    """How many replicas a sandbox of that pool ("" or "*": none yet) can have: what a record of 64 KiB holds."""
    return MAX_REPLICAS if pool in ("", names.ANY_POOL) else min(MAX_REPLICAS, record.capacity(pool))


def _replicas(read: Reader, spec: Mapping[str, Any], found: Record | None, pool_ref: str) -> int:
    """At most `most_replicas`, so that whoever counts slots is safe; a larger number is reported (`barred`).

    A record that is larger (another controller wrote it) keeps its slots: a refused number takes nothing away.
    """
    asked = read.number(spec, "replicas", at="spec", default=1)
    pool = found.pool_ref if found is not None and found.pool_ref else pool_ref
    most = most_replicas(pool)
    if asked <= most:
        return asked
    where = f" of pool {pool}" if pool else ""
    read.report(
        "spec.replicas",
        f"{asked} is more than the {most} that one sandbox{where} can have; nothing is added until it is lowered: "
        "use several sandboxes",
        reason=names.REASON_TOO_MANY_REPLICAS,
    )
    return min(asked, max(most, len(found.pods) if found is not None else 0))


def _pool_ref(read: Reader, spec: Mapping[str, Any]) -> str:
    """As written: a name that no pool can have is reported, and still means that pods do not come from a template."""
    value = spec.get("poolRef")
    ref = value if isinstance(value, str) else "" if value is None else shown(value)
    if ref not in ("", names.ANY_POOL) and not key.is_name(ref):
        read.report(
            "spec.poolRef",
            f"{ref!r:.80} is no name a pool can have (lower-case letters, digits, '-', '.'); name an existing pool",
            reason="InvalidPoolRef",
        )
    return ref


def _expire(read: Reader, spec: Mapping[str, Any]) -> datetime | None:
    if spec.get("expireTime") is None:
        return None
    try:
        return times.parse(spec["expireTime"], field="spec.expireTime")
    except InvalidInput as error:
        read.report(error.field, f"{error.message}; the sandbox does not expire", reason="InvalidExpireTime")
        return None


def _released_when_completed(read: Reader, spec: Mapping[str, Any]) -> bool:
    options = (names.POLICY_RETAIN, names.POLICY_RELEASE)
    field_name, reason = "taskResourcePolicyWhenCompleted", "UnknownTaskResourcePolicy"
    return read.choice(spec, field_name, at="spec", options=options, reason=reason) == names.POLICY_RELEASE


def _lost_policy(read: Reader, spec: Mapping[str, Any]) -> str:
    options = (names.LOST_REPLACE, names.LOST_FAIL)
    return read.choice(spec, "lostPodPolicy", at="spec", options=options, reason="UnknownLostPodPolicy")


def _allocation_policy(read: Reader, spec: Mapping[str, Any]) -> str:
    options = (names.ALLOCATE_PARTIAL, names.ALLOCATE_ALL)
    return read.choice(spec, "allocationPolicy", at="spec", options=options, reason="UnknownAllocationPolicy")


def _priority(read: Reader, spec: Mapping[str, Any], annotations: Mapping[str, str]) -> int:
    """The field, else the annotation, else 0."""
    if spec.get("priority") is not None:
        return read.number(spec, "priority", at="spec", default=0, low=-PRIORITY_LIMIT, high=PRIORITY_LIMIT)
    raw = annotations.get(names.PRIORITY)
    if raw is None:
        return 0
    digits = raw[1:] if raw[:1] in ("-", "+") else raw
    value = int(raw) if digits.isascii() and digits.isdecimal() and len(digits) <= 3 else PRIORITY_LIMIT + 1
    if abs(value) <= PRIORITY_LIMIT:
        return value
    read.report(
        f"metadata.annotations[{names.PRIORITY}]",
        f"{raw!r:.40} is not a whole number from -{PRIORITY_LIMIT} to {PRIORITY_LIMIT}; it is ignored",
        reason="InvalidPriority",
        level="warning",
    )
    return 0
