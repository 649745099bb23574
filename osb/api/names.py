"""Every fixed text that others can see: group, labels, annotations, finalizers, phases, conditions, event reasons.

These are the words of the contract with clients (spec/pool.md 2, 14; spec/batchsandbox.md 4, 13;
spec/additions.md 2, 3), so nothing else in the code spells them out.
"""

from __future__ import annotations

from typing import Final

# -- the API group -----------------------------------------------------------------------------------------

GROUP: Final = "sandbox.opensandbox.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

KIND_POOL: Final = "Pool"
KIND_BOX: Final = "BatchSandbox"
KIND_SNAPSHOT: Final = "SandboxSnapshot"

PLURALS: Final = {KIND_POOL: "pools", KIND_BOX: "batchsandboxes", KIND_SNAPSHOT: "sandboxsnapshots"}

# -- annotations -------------------------------------------------------------------------------------------

ALLOC_STATUS: Final = f"{GROUP}/alloc-status"
ALLOC_RELEASE: Final = f"{GROUP}/alloc-release"
ALLOC_RELEASED: Final = f"{GROUP}/alloc-released"
ALLOC_EPOCH: Final = f"{GROUP}/alloc-epoch"  # touched by a rebuild: kills claims from before the loss
ENDPOINTS: Final = f"{GROUP}/endpoints"
TASK_RESULTS: Final = f"{GROUP}/task-results"
RESUMED_FROM: Final = f"{GROUP}/resumed-from"
PRIORITY: Final = f"{GROUP}/priority"
ASSIGN_PROFILE: Final = f"{GROUP}/assign-profile"
ADOPTED_REVISION: Final = f"{GROUP}/adopted-revision"
RESTART_CONFIG: Final = f"{GROUP}/restart-config"
RESTART_RECORD: Final = f"{GROUP}/restart-record"
ADOPTED: Final = f"{GROUP}/adopted"  # on a pod: the epoch in which its unknown history was settled
FULL_NAME: Final = f"{GROUP}/full-name"
HOLD: Final = f"{GROUP}/hold"  # on a Pool: stop creating, deleting and handing out; watching goes on

# -- labels ------------------------------------------------------------------------------------------------

LABEL_POOL_NAME: Final = f"{GROUP}/pool-name"
LABEL_POOL_REVISION: Final = f"{GROUP}/pool-revision"
LABEL_EVICT: Final = "pool.opensandbox.io/evict"
LABEL_EVICTION_HANDLER: Final = "pool.opensandbox.io/eviction-handler"
LABEL_SUSPECT: Final = f"{GROUP}/suspect"
LABEL_BOX_NAME: Final = f"batch-sandbox.{GROUP}/name"
LABEL_POD_INDEX: Final = f"batch-sandbox.{GROUP}/pod-index"
LABEL_SNAPSHOT_NAME: Final = f"{GROUP}/sandbox-snapshot-name"
LABEL_PRIVILEGED: Final = f"{GROUP}/privileged-node-access"

# -- finalizers --------------------------------------------------------------------------------------------

FINALIZER_POOL: Final = f"pool.{GROUP}/pool-allocation"
FINALIZER_TASKS: Final = f"batch-sandbox.{GROUP}/task-cleanup"
FINALIZER_SNAPSHOT: Final = f"sandboxsnapshot.{GROUP}/cleanup"

# -- values of spec fields ---------------------------------------------------------------------------------

ANY_POOL: Final = "*"  # poolRef: choose a pool for me
RECYCLE_DELETE: Final = "Delete"
RECYCLE_RESTART: Final = "Restart"
RECYCLE_NOOP: Final = "Noop"
PLACEMENT_PACKED: Final = "Packed"
PLACEMENT_SPREAD: Final = "Spread"
LOST_REPLACE: Final = "Replace"
LOST_FAIL: Final = "Fail"
ALLOCATE_PARTIAL: Final = "Partial"
ALLOCATE_ALL: Final = "AllOrNothing"
POLICY_RETAIN: Final = "Retain"
POLICY_RELEASE: Final = "Release"
EVICTION_HANDLER_DEFAULT: Final = "default"

# -- phases ------------------------------------------------------------------------------------------------

PENDING: Final = "Pending"
SUCCEED: Final = "Succeed"
PAUSING: Final = "Pausing"
PAUSED: Final = "Paused"
RESUMING: Final = "Resuming"
FAILED: Final = "Failed"
COMMITTING: Final = "Committing"

BOX_PHASES: Final = (PENDING, SUCCEED, PAUSING, PAUSED, RESUMING, FAILED)
SNAPSHOT_PHASES: Final = (PENDING, COMMITTING, SUCCEED, FAILED)

# -- condition types ---------------------------------------------------------------------------------------

READY: Final = "Ready"
PROGRESSING: Final = "Progressing"
COND_PAUSED: Final = "Paused"
PAUSE_FAILED: Final = "PauseFailed"
RESUME_FAILED: Final = "ResumeFailed"
POD_FAILED: Final = "PodFailed"
POOL_ALLOCATION_PENDING: Final = "PoolAllocationPending"
POOL_REF_UPDATE_REJECTED: Final = "PoolRefUpdateRejected"
POD_LOST: Final = "PodLost"
SPEC_INVALID: Final = "SpecInvalid"
QUARANTINED: Final = "Quarantined"

BOX_CONDITIONS_REFERENCE: Final = (READY, PROGRESSING, COND_PAUSED, PAUSE_FAILED, RESUME_FAILED, POD_FAILED)
BOX_CONDITIONS_ADDED: Final = (
    POOL_ALLOCATION_PENDING,
    POOL_REF_UPDATE_REJECTED,
    POD_LOST,
    SPEC_INVALID,
    QUARANTINED,
)
BOX_CONDITIONS: Final = BOX_CONDITIONS_REFERENCE + BOX_CONDITIONS_ADDED
SNAPSHOT_CONDITIONS_REFERENCE: Final = (READY, FAILED)
SNAPSHOT_CONDITIONS: Final = (READY, FAILED, PROGRESSING)

CREATE_FAILING: Final = "CreateFailing"
CAPACITY_EXHAUSTED: Final = "CapacityExhausted"
SCALING_BLOCKED: Final = "ScalingBlocked"
ROLLING_OUT: Final = "RollingOut"
LEDGER_REBUILDING: Final = "LedgerRebuilding"
RECYCLE_FAILING: Final = "RecycleFailing"
NOOP_RECYCLING: Final = "NoopRecycling"

POOL_CONDITIONS: Final = (
    READY,
    SPEC_INVALID,
    CREATE_FAILING,
    CAPACITY_EXHAUSTED,
    SCALING_BLOCKED,
    ROLLING_OUT,
    LEDGER_REBUILDING,
    RECYCLE_FAILING,
    NOOP_RECYCLING,
)

# -- condition reasons -------------------------------------------------------------------------------------

REASON_CREATING: Final = "Creating"
REASON_CREATE_FAILING: Final = "CreateFailing"  # the server refuses the pods, or a name is somebody else's
REASON_WAITING_FOR_POOL: Final = "WaitingForPool"
REASON_PARTIALLY_READY: Final = "PartiallyReady"
REASON_PODS_READY: Final = "PodsReady"
REASON_PAUSE_IN_PROGRESS: Final = "PauseInProgress"
REASON_PAUSED: Final = "Paused"
REASON_RESUME_IN_PROGRESS: Final = "ResumeInProgress"

REASON_WAITING_FOR_RECYCLING: Final = "WaitingForRecycling"  # terminating: its pool has pods of it to take back

REASON_POOL_DELETED: Final = "PoolDeleted"
REASON_ALLOCATION_TIMEOUT: Final = "AllocationTimeout"

REASON_POD_REPLACED: Final = "PodReplaced"
REASON_SLOT_FAILED: Final = "SlotFailed"
REASON_WAITING_FOR_REPLACEMENT: Final = "WaitingForReplacement"

REASON_RECORD_UNREADABLE: Final = "RecordUnreadable"
REASON_RECORD_FORGED: Final = "RecordForged"
REASON_ALLOCATION_CONFLICT: Final = "AllocationConflict"
REASON_TOO_MANY_REPLICAS: Final = "TooManyReplicas"

REASON_UNSUPPORTED_REPLICAS: Final = "UnsupportedReplicas"
REASON_SNAPSHOT_FAILED: Final = "SnapshotFailed"
REASON_POD_NOT_FOUND: Final = "PodNotFound"
REASON_WAITING_FOR_POD: Final = "WaitingForPod"
REASON_PAUSE_TIMEOUT: Final = "PauseTimeout"
REASON_RESUME_TIMEOUT: Final = "ResumeTimeout"
REASON_SNAPSHOT_NAME_CONFLICT: Final = "SnapshotNameConflict"
REASON_SNAPSHOT_NOT_FOUND: Final = "SnapshotNotFound"
REASON_SNAPSHOT_NOT_READY: Final = "SnapshotNotReady"

REASON_SNAPSHOT_READY: Final = "SnapshotReady"
REASON_REGISTRY_NOT_CONFIGURED: Final = "RegistryNotConfigured"
REASON_LOOKUP_FAILED: Final = "BatchSandboxLookupFailed"
REASON_SOURCE_POD_NOT_FOUND: Final = "SourcePodNotFound"
REASON_NO_CONTAINERS: Final = "NoContainers"
REASON_BUILD_JOB_FAILED: Final = "BuildCommitJobFailed"
REASON_WAITING_FOR_SNAPSHOT: Final = "WaitingForSnapshot"
REASON_COMMITTING: Final = "Committing"
REASON_WAITING_FOR_JOB: Final = "WaitingForJob"

# Codes that begin the message of Progressing/WaitingForPool (spec/additions.md 2.2).
WAIT_CAPACITY: Final = "PoolCapacityExhausted"
WAIT_NO_READY_POD: Final = "NoReadyPod"
WAIT_POOL_NOT_FOUND: Final = "PoolNotFound"
WAIT_POOL_DELETING: Final = "PoolDeleting"
WAIT_POOL_SPEC_INVALID: Final = "PoolSpecInvalid"
WAIT_LEDGER_REBUILDING: Final = "LedgerRebuilding"
WAIT_NO_POOL_FITS: Final = "NoPoolFits"
WAIT_REQUEST_EXCEEDS_POOL: Final = "RequestExceedsPool"
WAIT_FOR_OTHERS: Final = "WaitingForOthers"
WAIT_CANNOT_CREATE: Final = "CannotCreatePods"

WAIT_CODES: Final = (
    WAIT_CAPACITY,
    WAIT_NO_READY_POD,
    WAIT_POOL_NOT_FOUND,
    WAIT_POOL_DELETING,
    WAIT_POOL_SPEC_INVALID,
    WAIT_LEDGER_REBUILDING,
    WAIT_NO_POOL_FITS,
    WAIT_REQUEST_EXCEEDS_POOL,
    WAIT_FOR_OTHERS,
    WAIT_CANNOT_CREATE,
)

# -- Kubernetes events -------------------------------------------------------------------------------------

COMPONENT_POOL: Final = "pool-controller"
COMPONENT_BOX: Final = "batchsandbox-controller"
COMPONENT_SNAPSHOT: Final = "sandboxsnapshot-controller"

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

EVENT_SUCCESSFUL_CREATE: Final = "SuccessfulCreate"
EVENT_FAILED_CREATE: Final = "FailedCreate"
EVENT_SUCCESSFUL_DELETE: Final = "SuccessfulDelete"
EVENT_FAILED_DELETE: Final = "FailedDelete"
EVENT_POD_EVICTED: Final = "PodEvicted"
EVENT_POD_UPDATED: Final = "PodUpdated"
EVENT_ALLOCATION_SUCCEEDED: Final = "AllocationSucceeded"
EVENT_ALLOCATION_FAILED: Final = "AllocationFailed"
EVENT_POD_RECYCLED: Final = "PodRecycled"
EVENT_FAILED_RECYCLE: Final = "FailedRecyclePod"
EVENT_SCHEDULED: Final = "Scheduled"
EVENT_POOL_ASSIGNED: Final = "PoolAssigned"
EVENT_FAILED_ASSIGN: Final = "FailedPoolAssign"
EVENT_ENDPOINTS_REPAIRED: Final = "EndpointsRepaired"
EVENT_POD_RELEASED: Final = "PodReleased"
EVENT_FAILED_RELEASE: Final = "FailedRelease"
EVENT_EXPIRED: Final = "Expired"
EVENT_DELETION_WAITS: Final = "DeletionWaits"
EVENT_PAUSING: Final = "Pausing"
EVENT_PAUSED: Final = "Paused"
EVENT_SNAPSHOT_DELETED: Final = "PauseSnapshotDeleted"
EVENT_RESUMING: Final = "Resuming"
EVENT_RESUMED: Final = "Resumed"
EVENT_CREATED_JOB: Final = "CreatedJob"
EVENT_FAILED_JOB: Final = "FailedCreateJob"
EVENT_INVALID_SHARD_PATCH: Final = "InvalidShardPatch"
EVENT_INVALID_TASK_TEMPLATE: Final = "InvalidTaskTemplate"
EVENT_TASK_CHANGE_IGNORED: Final = "TaskTemplateChangeIgnored"
EVENT_TASK_REFUSED: Final = "TaskRefused"
EVENT_TASK_RESTARTED: Final = "TaskRestarted"
EVENT_TASK_STOP_TIMEOUT: Final = "TaskStopTimeout"
EVENT_EXECUTOR_UNREACHABLE: Final = "TaskExecutorUnreachable"
EVENT_POD_NOT_CLEAN: Final = "PodNotClean"
EVENT_PULL_SECRET_MISSING: Final = "ResumePullSecretMissing"
