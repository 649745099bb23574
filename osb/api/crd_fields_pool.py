"""The field table of Pool (spec/pool.md 1, spec/additions.md 4)."""

from __future__ import annotations

from osb.api import names
from osb.api.crd_fields import (
    Schema,
    column,
    conditions,
    free,
    group,
    int_or_text,
    listing,
    mapping,
    number,
    rule,
    text,
)

ABOUT = "A warm pool: pods that are started ahead of time and handed to BatchSandboxes of the same namespace."

COLUMNS = (
    column("TOTAL", "integer", ".status.total"),
    column("ALLOCATED", "integer", ".status.allocated"),
    column("AVAILABLE", "integer", ".status.available"),
    column("UPDATED", "integer", ".status.updated"),
    column("AGE", "date", ".metadata.creationTimestamp"),
)

NAME = text("Name of the pool. It becomes a label value of every pod, so at most 63 characters.", longest=63)

_CAPACITY = group(
    "How many pods the pool keeps. Pods that sandboxes hold are never removed to satisfy these numbers.",
    {
        "bufferMin": number(
            "Lower edge of the idle band: with fewer ready idle pods than this, pods are created.", low=0
        ),
        "bufferMax": number(
            "Upper edge of the idle band: ready idle pods above it are deleted, least useful first.", low=0
        ),
        "poolMin": number("The pool is never scaled below this many pods, idle and held together.", low=0),
        "poolMax": number(
            "The pool never has more pods than this, held, starting and terminating ones included.", low=0
        ),
    },
    required=("bufferMin", "bufferMax", "poolMin", "poolMax"),
)

_UNAVAILABLE = (
    "A whole number of pods of at least 1, or a whole percentage such as 25% (rounded up, at least 1 pod). Default 25%."
)

_SCALE = group(
    "Pace of growing and shrinking.",
    {
        "maxUnavailable": int_or_text(
            f"How many idle pods may be starting at a time, and how many are removed per pass. {_UNAVAILABLE}"
        )
    },
)

_UPDATE = group(
    "Pace of replacing idle pods after the template changed. Held pods are never replaced.",
    {"maxUnavailable": int_or_text(f"How many of the pool's pods may be unavailable while it rolls. {_UNAVAILABLE}")},
)

_RECYCLE = group(
    "What happens to a pod that comes back from a sandbox.",
    {
        "type": text(
            "Delete: the pod is deleted and replaced. Restart: its containers are restarted in place, "
            "which leaves volumes as they are and needs restartPolicy Always. Noop: it is reused as it is, "
            "with all files and processes of the last user.",
            enum=(names.RECYCLE_DELETE, names.RECYCLE_RESTART, names.RECYCLE_NOOP),
            default=names.RECYCLE_DELETE,
        )
    },
)

_FAIRNESS = group(
    "Fair share among tenants when pods are scarce. Without it the line is first come, first served.",
    {
        "tenantLabel": text(
            "Label key on the sandboxes; its value is the tenant. Sandboxes without it share one tenant.",
            longest=317,
        ),
        "weights": mapping(
            "Share of a tenant relative to the others; 1 where nothing is said.",
            number("Weight of this tenant.", low=1, high=1000),
        ),
    },
)

_DEMAND = group(
    "Raise the idle target with demand: what was asked for lately, times how long a pod takes to start.",
    {
        "windowSeconds": number("Over how many seconds demand is averaged. Default 300.", low=60, high=3600),
        "headroomPercent": number("How much is added on top, in percent. Default 20.", low=0, high=500),
    },
)

_SCHEDULE = group(
    "A period that recurs, in which the pool is kept larger.",
    {
        "name": text("Name of the schedule, shown in status.targetReason.", longest=63),
        "start": text("When it begins: a cron expression of 5 fields, such as 0 8 * * 1-5.", longest=100),
        "timeZone": text("Time zone of start, an IANA name such as Europe/Berlin. Default UTC.", longest=64),
        "durationMinutes": number("How long it lasts, in minutes.", low=1, high=10080),
        "idle": number("At least this many idle pods while it is active. Default 0.", low=0),
        "total": number("At least this many pods while it is active. Default 0.", low=0),
    },
    required=("name", "start", "durationMinutes"),
)

_SIZING = group(
    "Raises the idle target above bufferMin; bufferMax and poolMax stay the limits.",
    {
        "demand": _DEMAND,
        "schedules": listing("At most 16 recurring periods; an invalid one is off.", _SCHEDULE, most=16),
    },
)

SPEC = group(
    "What the pool should be.",
    {
        "template": free(
            "Pod template (metadata with labels, annotations and finalizers; spec) of every pod of the pool. "
            "Changing it replaces idle pods at the pace of updateStrategy. Without it no pod is created."
        ),
        "capacitySpec": _CAPACITY,
        "scaleStrategy": _SCALE,
        "updateStrategy": _UPDATE,
        "recycleStrategy": _RECYCLE,
        "placement": text(
            "How scarce pods are dealt among waiters of equal rank. Packed: one sandbox after the other is "
            "filled. Spread: one pod each in rounds. Default Packed.",
            enum=(names.PLACEMENT_PACKED, names.PLACEMENT_SPREAD),
        ),
        "fairness": _FAIRNESS,
        "sizing": _SIZING,
    },
    required=("capacitySpec",),
)

STATUS = group(
    "What the pool is. Written by the controller only.",
    {
        "observedGeneration": number("The generation of the spec that this status was computed from.", bits=64),
        "revision": text("Revision of the template in force: a hash of 16 hex digits."),
        "total": number("Pods of the pool that are not terminating, idle and held."),
        "allocated": number("Living pods that sandboxes hold, those being recycled included."),
        "available": number("Ready idle pods: they can be handed out at once."),
        "updated": number("Pods of the current revision that are not terminating."),
        "pending": number("Idle pods that are not ready yet."),
        "terminating": number("Pods that are being deleted; poolMax counts them, total does not."),
        "waiting": number("Sandboxes in the line for pods of this pool."),
        "unmet": number("Pods that the sandboxes in the line miss."),
        "target": number("The idle target in force."),
        "targetReason": text("Where the idle target comes from: bufferMin, demand, schedule <name> or poolMax."),
        "conditions": conditions(
            "Ready is always present: True while the pool is warm. All others are present only while True: "
            "SpecInvalid, CreateFailing, CapacityExhausted, ScalingBlocked, RollingOut, LedgerRebuilding, "
            "RecycleFailing, NoopRecycling.",
            types=(),
            statuses=("True", "False", "Unknown"),
            generation=True,
        ),
    },
    required=("allocated", "available", "revision", "total"),
)

_UNAVAILABLE_RULE = rule(
    "type(self) == string ? self.matches('^[0-9]{1,9}%?$') && !self.matches('^0+%?$') : int(self) >= 1",
    "must be a whole number of at least 1, or a whole percentage such as 25%",
)

# Path of the schema that carries the rule, and the rule.
RULES: tuple[tuple[tuple[str, ...], Schema], ...] = (
    (
        ("capacitySpec",),
        rule("self.bufferMin <= self.bufferMax", "bufferMin must not be above bufferMax"),
    ),
    (("capacitySpec",), rule("self.poolMin <= self.poolMax", "poolMin must not be above poolMax")),
    (("scaleStrategy", "maxUnavailable"), _UNAVAILABLE_RULE),
    (("updateStrategy", "maxUnavailable"), _UNAVAILABLE_RULE),
    (
        (),
        rule(
            "!has(self.recycleStrategy) || self.recycleStrategy.type != 'Restart' || !has(self.template) || "
            "!has(self.template.spec) || !has(self.template.spec.restartPolicy) || "
            "self.template.spec.restartPolicy == 'Always'",
            "recycleStrategy Restart needs restartPolicy Always in the template",
        ),
    ),
)
