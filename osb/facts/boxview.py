"""`BatchView` and `SnapshotView`: everything one decision about a sandbox or a snapshot may know, `now` included.

`osb.reconcile.gather` fills them; `osb.decide.batch` and `osb.decide.snapshot` read nothing else. Whatever a field
says about a pod has been verified: a pod is in `pods` only if this sandbox's UID is its controller, and in `slots`
only if record, ledger and the pod's own owner agree that the sandbox has it (spec/batchsandbox.md 9.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from osb.api.batchsandbox import BoxSpec
from osb.api.reading import part, parts, text
from osb.api.restart import DEFAULT_RESTART, RestartConfig
from osb.facts.ledger import LedgerEntry
from osb.facts.pod import PodFact


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Why a pooled sandbox misses pods, as the pool side sees it.

    `code`: one of `names.WAIT_CODES`.
    `position`: 0 means unknown.
    `cannot_grow`: True only while the pool (or every pool that fits `*`) is at its maximum.
    `refresh`: lets a changed position alone rewrite the message. The caller sets it at most every 10 s, so that a
      long line does not cost a write per grant (spec/additions.md 2.2).
    """

    code: str
    missing: int = 0
    position: int = 0
    line: int = 0
    detail: str = ""
    cannot_grow: bool = False
    refresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """What the task side knows.

    `counts`: the five status counters in the order running, succeed, failed, unknown, pending.
    `stopped`: no task runs any more.
    `done`: slots completed and given back.
    `busy`: slots whose task is not released yet, so that their pods may not be removed by a scale-down.
    `trouble`, `failed`: executors that are no help, and tasks that failed, in words; "" without any.
    """

    counts: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    stopped: bool = False
    done: frozenset[int] = frozenset()
    busy: frozenset[int] = frozenset()
    trouble: str = ""
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFact:
    """The snapshot `<sandbox>-pause`, whoever owns it. `containers` are (container, image, digest)."""

    name: str
    uid: str
    version: str
    owner_uid: str
    phase: str
    owner_box: str = ""  # name of the BatchSandbox that controls it, whatever its UID
    deleting: bool = False
    message: str = ""
    containers: tuple[tuple[str, str, str], ...] = ()
    source_pod: str = ""
    source_pod_uid: str = ""
    source_template: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Returning:
    """A pod that the ledger attributes to a terminating sandbox. `pod`: None means that it is gone."""

    name: str
    entry: LedgerEntry
    pod: PodFact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """The pool side of a sandbox that leaves it: terminating or paused, and held by the pool's finalizer.

    `exists`: the Pool is there.
    `believed`: its ledger is ready.
    `policy`, `config`: how the pool recycles pods.
    """

    pool: str
    exists: bool = True
    hold: bool = False
    believed: bool = True
    policy: str = ""
    config: RestartConfig = DEFAULT_RESTART
    epoch: str = ""
    pods: tuple[Returning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxOptions:
    """Settings a sandbox decision needs; durations in seconds."""

    task_stop_timeout: float = 60.0
    commit_timeout: float = 600.0
    resume_timeout: float = 600.0
    resume_pull_secret: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """All input of `osb.decide.batch.plan`, `osb.decide.status` and `osb.decide.pause`.

    `pool_deleted`: a live read says that the recorded pool (name and UID) is gone or terminating for good.
    `left_behind`: recorded pods that run on although that pool is gone: it was deleted without them (`orphan`).
    `source_template`: the template solidified from the live source pod, only needed when the internal
      snapshot has none.
    `create_refused`: why the server made no pod of those this pass asked for.
    """

    now: datetime
    spec: BoxSpec
    pods: tuple[PodFact, ...] = ()
    slots: Mapping[int, PodFact] = field(default_factory=dict)
    waiting: Waiting | None = None
    pool_deleted: bool = False
    left_behind: tuple[str, ...] = ()
    quarantine: tuple[str, str] | None = None  # (reason, message)
    tasks: TaskSummary | None = None
    snapshot: SnapshotFact | None = None
    source_template: Mapping[str, Any] | None = None
    pull_secret_missing: bool = False
    create_refused: str = ""
    leaving: Leaving | None = None  # only while its pool has to let it go
    options: BoxOptions = field(default_factory=BoxOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOptions:
    """Settings of the snapshot side. `registry` "" makes every snapshot fail; durations in seconds."""

    registry: str = ""
    registry_insecure: bool = False
    push_secret: str = ""
    committer_image: str = "image-committer:dev"
    containerd_socket: str = "/var/run/containerd/containerd.sock"
    job_timeout: float = 600.0
    image_template: str = "{registry}/{namespace}/{sandbox}/{container}:{tag}"
    service_account: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotView:
    """All input of `osb.decide.snapshot.plan`. Raw objects are plain dicts as the API server sent them.

    `box`: None means that a live read found none (any other failure of that read is an error of the pass).
    `source`: the live source pod: the one `status.sourcePodUID` names once it is recorded, before
      that the candidate.
    `rivals`: names of active snapshots of the same pod that come first.
    `push_secret`: "", or what is wrong with it: "missing", "of type Opaque, not ...".
    `node_gone`: the recorded node does not exist.
    `pool_template`, `pool_revision`: those of a pooled sandbox's pool.
    """

    now: datetime
    obj: Mapping[str, Any]
    box: BoxSpec | None = None
    box_pods: tuple[PodFact, ...] = ()
    box_slots: Mapping[int, PodFact] = field(default_factory=dict)
    source: Mapping[str, Any] | None = None
    commit_job: Mapping[str, Any] | None = None
    unpause_job: Mapping[str, Any] | None = None
    job_pods: tuple[Mapping[str, Any], ...] = ()
    rivals: tuple[str, ...] = ()
    push_secret: str = ""
    node_gone: bool = False
    pool_template: Mapping[str, Any] | None = None
    pool_revision: str = ""
    create_refused: str = ""  # the server's words when it refused the Job for good (Invalid, Forbidden)
    options: SnapshotOptions = field(default_factory=SnapshotOptions)


def snapshot_fact(raw: Mapping[str, Any]) -> SnapshotFact:
    """The facts of a raw SandboxSnapshot that a sandbox decision needs."""
    meta, status = part(raw, "metadata"), part(raw, "status")
    owner: Mapping[str, Any] = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), {})
    failed: Mapping[str, Any] = next((c for c in parts(status, "conditions") if c.get("type") == "Failed"), {})
    return SnapshotFact(
        name=text(meta, "name"),
        uid=text(meta, "uid"),
        version=text(meta, "resourceVersion"),
        owner_uid=text(owner, "uid"),
        owner_box=text(owner, "name") if owner.get("kind") == "BatchSandbox" else "",
        phase=text(status, "phase"),
        deleting=bool(meta.get("deletionTimestamp")),
        message=text(failed, "message") if failed.get("status") == "True" else "",
        containers=tuple(
            (text(c, "containerName"), text(c, "imageUri"), text(c, "imageDigest")) for c in parts(status, "containers")
        ),
        source_pod=text(status, "sourcePodName"),
        source_pod_uid=text(status, "sourcePodUID"),
        source_template=part(status, "sourceTemplate") or None,
    )
