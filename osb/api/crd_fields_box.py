"""The field table of BatchSandbox (spec/batchsandbox.md 1-3, spec/additions.md 2)."""

from __future__ import annotations

from osb.api import names
from osb.api.crd_fields import (
    Schema,
    column,
    conditions,
    flag,
    free,
    group,
    number,
    rule,
    text,
    time,
)

ABOUT = "One or more sandboxes that belong together: pods taken from a Pool or made from a template, with tasks."

COLUMNS = (
    column("DESIRED", "integer", ".spec.replicas"),
    column("TOTAL", "integer", ".status.replicas"),
    column("ALLOCATED", "integer", ".status.allocated"),
    column("Ready", "integer", ".status.ready"),
    column("TASK_RUNNING", "integer", ".status.taskRunning", wide=True),
    column("TASK_SUCCEED", "integer", ".status.taskSucceed", wide=True),
    column("TASK_FAILED", "integer", ".status.taskFailed", wide=True),
    column("TASK_UNKNOWN", "integer", ".status.taskUnknown", wide=True),
    column("EXPIRE", "string", ".spec.expireTime"),
    column("AGE", "date", ".metadata.creationTimestamp"),
)

SPEC = group(
    "What the sandboxes should be. Set poolRef or template.",
    {
        "replicas": number("How many sandboxes (pods).", low=0, default=1),
        "poolRef": text(
            "Name of a Pool in the same namespace that provides the pods; * chooses a pool that fits. A "
            "pool that serves the sandbox stays in force: later edits are rejected by a condition."
        ),
        "template": free(
            "Pod template for sandboxes without a pool. With poolRef * it only says what a fitting pool "
            "must offer. Pausing a pooled sandbox fills it in."
        ),
        "shardPatches": free(
            "List of strategic merge patches against a whole Pod (root keys metadata and spec); element i "
            "applies to pod i when that pod is created. Only without a pool."
        ),
        "expireTime": time("When the sandboxes are deleted, in any phase. A time in the past deletes at once."),
        "taskTemplate": free(
            "Task that is sent to the task executor of every pod: spec.process with command, args, env and "
            "workingDir, and spec.timeoutSeconds. Fixed for a task once it has started."
        ),
        "shardTaskPatches": free(
            "List of strategic merge patches against taskTemplate (root key spec); element i applies to task i."
        ),
        "taskResourcePolicyWhenCompleted": text(
            "What happens to a pod whose task has completed. Retain keeps it, Release gives it back to its "
            "pool; a slot given back is not filled again.",
            default=names.POLICY_RETAIN,
        ),
        "pause": flag(
            "true: save the root filesystem as images and give the pod up. false: start again from them. "
            "Absent or null: no intent. Needs replicas 1. The controller never writes it."
        ),
        "lostPodPolicy": text(
            "What happens to a slot whose pod is lost after it was delivered. Replace: a new pod in the "
            "same slot. Fail: the slot stays empty. Default Replace.",
            enum=(names.LOST_REPLACE, names.LOST_FAIL),
        ),
        "allocationPolicy": text(
            "How a pooled sandbox is served. Partial: pods as they become free. AllOrNothing: what it "
            "misses is granted together or not at all. Default Partial.",
            enum=(names.ALLOCATE_PARTIAL, names.ALLOCATE_ALL),
        ),
        "allocationTimeoutSeconds": number(
            "How long a pooled sandbox waits for all its pods before it fails. Without it, for ever.",
            low=1,
            high=86400,
        ),
        "priority": number(
            "Rank in the line of its pool, high first; each whole minute of waiting counts like 10. "
            "Default: the annotation sandbox.opensandbox.io/priority, else 0.",
            low=-100,
            high=100,
        ),
    },
    required=("replicas",),
)

COUNTERS = (
    "allocated",
    "ready",
    "replicas",
    "taskFailed",
    "taskPending",
    "taskRunning",
    "taskSucceed",
    "taskUnknown",
)

STATUS = group(
    "What the sandboxes are. Written by the controller only.",
    {
        "observedGeneration": number("The generation of the spec that this status was computed from.", bits=64),
        "pauseObservedGeneration": number("The newest generation whose pause intent was acknowledged.", bits=64),
        "replicas": number("Pods that belong to the sandbox now."),
        "allocated": number("Pods that have a node or an address."),
        "ready": number("Pods that are running and ready."),
        "taskRunning": number("Tasks that run."),
        "taskSucceed": number("Tasks that ended well."),
        "taskFailed": number("Tasks that failed."),
        "taskUnknown": number("Tasks whose state cannot be learned at the moment."),
        "taskPending": number("Tasks that no pod has taken yet."),
        "phase": text(
            "Pending: no pod is ready yet. Succeed: at least one pod is ready. Pausing, Paused, Resuming: "
            "see spec.pause. Failed: no pod is ready and some cannot start.",
            enum=names.BOX_PHASES,
        ),
        "conditions": conditions("Stored only while True.", types=names.BOX_CONDITIONS, statuses=("True", "False")),
    },
    required=COUNTERS,
)

# Path of the schema that carries the rule, and the rule.
RULES: tuple[tuple[tuple[str, ...], Schema], ...] = (
    (
        (),
        rule(
            "(has(self.poolRef) && self.poolRef != '') || has(self.template)",
            "either poolRef or template must be set",
        ),
    ),
    (
        ("taskResourcePolicyWhenCompleted",),
        rule("self in ['', 'Retain', 'Release']", "must be Retain or Release"),
    ),
)
