"""`BatchView` of one sandbox: its pods, verified; what the tasks say; its pause snapshot. Next: `osb.decide.batch`.

A pool pod counts only if record, ledger and the pod's own controller agree (spec/batchsandbox.md 9.1): the record is
an annotation that any user of the namespace can edit.
"""

from __future__ import annotations

from typing import Any

import orjson

from osb.api import batchsandbox, claims, names
from osb.api import pool as pools
from osb.api.batchsandbox import BoxSpec
from osb.api.record import derived
from osb.decide import podbuild, tasks
from osb.decide.tasknode import Node
from osb.errors import NotFound, Refused
from osb.facts.boxview import BatchView, BoxOptions, Leaving, Returning, SnapshotFact, Waiting, snapshot_fact
from osb.facts.ledger import CONF, HELD, REL, RESV
from osb.facts.pod import PodFact
from osb.reconcile import gather, readable
from osb.reconcile.gather import Obj
from osb.reconcile.world import Pass

PAUSE_PHASES = (names.PAUSING, names.PAUSED, names.RESUMING)
PAUSE_SUFFIX = "-pause"


def build(p: Pass, raw: Obj, *, waiting: Waiting | None = None) -> BatchView:
    """Everything that one decision about the sandbox may know."""
    spec = batchsandbox.parse(raw)
    pooled = claims.pooled(spec)
    slots: dict[int, PodFact] = {}
    quarantine: tuple[str, str] | None = None
    owned: tuple[PodFact, ...] = ()
    pool_deleted, left_behind = False, tuple[str, ...]()
    if pooled:
        slots, quarantine = _pool_slots(p, spec)
        pool_deleted = _pool_deleted(p, spec)
        left_behind = _left_behind(p, spec) if pool_deleted else ()
        if left_behind and quarantine is not None and quarantine[0] == names.REASON_RECORD_FORGED:
            quarantine = None  # they are foreign because their owner is gone, not because somebody edited the record
        if waiting is None and claims.wants(spec):
            waiting = _waiting(p, spec)
    else:
        found, _ = gather.pods_of(p, "boxpod", spec.uid)
        owned = tuple(found)
    snapshot, template, secret_missing = _pause_facts(p, spec, slots)
    return BatchView(
        now=p.now(), spec=spec, pods=owned, slots=slots, waiting=waiting,
        pool_deleted=pool_deleted, left_behind=left_behind, quarantine=quarantine, tasks=_tasks(p, spec),
        snapshot=snapshot, source_template=template, pull_secret_missing=secret_missing, options=_options(p),
        leaving=_leaving(p, spec),
    )  # fmt: skip


def _options(p: Pass) -> BoxOptions:
    settings = p.settings
    return BoxOptions(
        task_stop_timeout=settings.task_stop_timeout, commit_timeout=settings.job_timeout,
        resume_timeout=settings.resume_timeout, resume_pull_secret=settings.resume_pull_secret,
    )  # fmt: skip


def _leaving(p: Pass, spec: BoxSpec) -> Leaving | None:
    """What its pool has of a sandbox that is deleted, or paused and giving its pod back: for the words about it."""
    if (spec.deleting is None and not spec.detaching) or names.FINALIZER_POOL not in spec.finalizers:
        return None
    pool = claims.effective_pool(spec)[0] or (spec.record.pool_ref if spec.record is not None else "")
    if pool in ("", names.ANY_POOL):
        return Leaving(pool="")
    raw = gather.read_one(p, "pool", spec.namespace, pool)
    if raw is None:
        return Leaving(pool=pool, exists=False)
    how, ledger = pools.parse(raw), p.store.ledger(spec.namespace, pool)
    meta = ledger.meta()
    entries = ledger.of_box(spec.uid, spec.replicas) if meta.ready else {}
    facts = gather.pods_named(p, "poolpod", [name for name, _ in entries.values()]) if entries else {}
    returning = tuple(Returning(name=name, entry=entry, pod=facts.get(name)) for name, entry in entries.values())
    return Leaving(
        pool=pool, hold=how.hold, believed=meta.ready, policy=how.recycle, config=how.restart_config,
        epoch=meta.epoch, pods=returning,
    )  # fmt: skip


def _pool_slots(p: Pass, spec: BoxSpec) -> tuple[dict[int, PodFact], tuple[str, str] | None]:
    """(slot -> pod that this sandbox really has, why it must be quarantined)."""
    pool, pool_uid = claims.effective_pool(spec)
    if spec.record_error is not None:
        return _attributed(p, spec, pool), None
    recorded = claims.slots(spec)
    found = gather.matching(recorded, gather.pods_named(p, "poolpod", [name for name, _ in recorded.values()]))
    if not found:
        return {}, None
    ledger = p.store.ledger(spec.namespace, pool)
    meta = ledger.meta()
    believed = meta.ready and (not pool_uid or meta.uid == pool_uid)
    entries = ledger.holders([pod.name for pod in found.values()]) if believed else {}
    slots: dict[int, PodFact] = {}
    foreign: list[str] = []
    disputed: list[str] = []
    for slot, pod in found.items():
        entry = entries.get(pod.name)
        if pod.owner_kind != names.KIND_POOL or pod.owner_name != pool:
            foreign.append(pod.name)
        elif not believed or (entry is not None and entry.box_uid == spec.uid and entry.state in (RESV, HELD, REL)):
            slots[slot] = pod
        elif entry is not None and entry.state == CONF:
            disputed.append(pod.name)
            if _claimed_first(p, spec, pod.name):
                slots[slot] = pod
        else:
            foreign.append(pod.name)
    if disputed:
        text = f"two sandboxes claim {', '.join(disputed[:5])}; it is handed to nobody until one of them is gone"
        return slots, (names.REASON_ALLOCATION_CONFLICT, text)
    if foreign:
        text = f"its record names {', '.join(foreign[:5])}, which the pool has not given to it; such names are ignored"
        return slots, (names.REASON_RECORD_FORGED, text)
    return slots, None


def _claimed_first(p: Pass, spec: BoxSpec, pod: str) -> bool:
    """Of two claimants the older one keeps the address while the conflict lasts (spec/pool.md 16)."""
    members = p.store.mirror.index("batchsandbox", "holder", f"{spec.namespace}/{pod}")
    found = p.store.mirror.read("batchsandbox", members).entries.values()
    others = (readable.box(orjson.loads(entry.doc)) for entry in found if entry is not None)
    return all((spec.created, spec.uid) <= (other.created, other.uid) for other in others)


def _attributed(p: Pass, spec: BoxSpec, pool: str) -> dict[int, PodFact]:
    """Its record cannot be read, so what the ledger gives it is what it has: its user keeps the addresses meanwhile."""
    ledger = p.store.ledger(spec.namespace, pool)
    if not ledger.meta().ready:
        return {}
    entries = ledger.of_box(spec.uid, spec.replicas)
    found = gather.pods_named(p, "poolpod", [name for name, _ in entries.values()])
    return {
        slot: found[name]
        for slot, (name, entry) in entries.items()
        if name in found and found[name].uid == entry.pod_uid and entry.state in (HELD, REL)
    }


def _waiting(p: Pass, spec: BoxSpec) -> Waiting | None:
    """Why it waits, when this side knows: there is no such pool, or it is going. Else the pool's pass tells."""
    pool = claims.effective_pool(spec)[0]
    if pool == names.ANY_POOL:
        return None
    raw = gather.read_one(p, "pool", spec.namespace, pool)
    if raw is None:
        return Waiting(code=names.WAIT_POOL_NOT_FOUND, detail=f"there is no Pool {pool} in namespace {spec.namespace}")
    if raw["metadata"].get("deletionTimestamp"):
        return Waiting(code=names.WAIT_POOL_DELETING, detail=f"Pool {pool} is being deleted")
    return None


def _pool_deleted(p: Pass, spec: BoxSpec) -> bool:
    """A live read says that the recorded pool is gone for good: absent, another UID, or terminating."""
    pool, uid = claims.effective_pool(spec)
    if pool in ("", names.ANY_POOL) or not uid:
        return False
    found = gather.read_one(p, "pool", spec.namespace, pool)
    if found is not None and found["metadata"]["uid"] == uid and not found["metadata"].get("deletionTimestamp"):
        return False
    fresh = gather.live(p, "pool", spec.namespace, pool)
    return fresh is None or bool(fresh["metadata"].get("deletionTimestamp"))


def _left_behind(p: Pass, spec: BoxSpec) -> tuple[str, ...]:
    """Pods of the deleted pool that lost their owner instead of their life; nobody's now, so nobody removes them."""
    return tuple(pod.name for pod in gather.held_pods(p, spec).values() if pod.live and not pod.owner_uid)


def _tasks(p: Pass, spec: BoxSpec) -> Any:
    """Counters and stop state, from the states that the tasks' pass keeps; None without tasks."""
    if spec.task_template is None and names.FINALIZER_TASKS not in spec.finalizers:
        return None
    return tasks.summary(p.store.tasks.get_all(spec.uid, Node).values(), spec)


def _pause_facts(p: Pass, spec: BoxSpec, slots: dict[int, PodFact]) -> tuple[SnapshotFact | None, Obj | None, bool]:
    """(the pause snapshot, the live source pod's template when it may be needed, pull secret missing)."""
    if spec.pause is None and spec.phase not in PAUSE_PHASES and not spec.detaching:
        return None, None, False
    name = derived(spec.name, 253, PAUSE_SUFFIX)
    raw = gather.live(p, "snapshot", spec.namespace, name)
    snapshot = snapshot_fact(raw) if raw is not None else None
    template = None
    if claims.pooled(spec) and snapshot is not None and snapshot.source_template is None and 0 in slots:
        pod = gather.live(p, "pod", spec.namespace, slots[0].name)
        if pod is not None and pod["metadata"]["uid"] == slots[0].uid:
            template = podbuild.solidify(pod)
    return snapshot, template, _secret_missing(p, spec)


def _secret_missing(p: Pass, spec: BoxSpec) -> bool:
    secret = p.settings.resume_pull_secret
    if not secret or spec.pause is not False:
        return False
    try:
        p.kube.get("secret", spec.namespace, secret)
    except NotFound:
        return True
    except Refused:
        return False  # not allowed to look: the pull will tell
    return False
