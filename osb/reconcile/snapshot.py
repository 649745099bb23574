"""One SandboxSnapshot: gather live facts → decide → apply (spec/pause-resume-snapshot.md 8).

Snapshots are few and slow, and a commit touches a real container: every fact is read live. A Job that the server
refuses for good is decided once more with its words, so that the snapshot fails with a reason instead of repeating.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from osb.api import batchsandbox, claims, names
from osb.api import pool as pools
from osb.api.batchsandbox import BoxSpec
from osb.api.reading import part, text
from osb.apply.execute import execute
from osb.config import Settings
from osb.decide import snapshot as decision
from osb.decide.commitjob import commit_name, unpause_name
from osb.decide.commitresult import controller_uid
from osb.decide.snapsource import candidate
from osb.errors import ApiError, NotFound, Refused
from osb.facts.boxview import SnapshotOptions, SnapshotView
from osb.facts.pod import PodFact
from osb.obs import metrics
from osb.reconcile import gather
from osb.reconcile.contract import After, Done, Outcome, Retry
from osb.reconcile.gather import Obj, live
from osb.reconcile.poolload import revision_of
from osb.reconcile.world import Pass

SECRET_TYPE = "kubernetes.io/dockerconfigjson"
ACTIVE = ("", names.PENDING, names.COMMITTING)


def reconcile(p: Pass) -> Outcome:
    """The whole pass; one step of the snapshot's life."""
    raw = live(p, "snapshot", p.key.namespace, p.key.name)
    if raw is None:
        return Done(summary="no such snapshot")
    view = _view(p, raw)
    plan = decision.plan(view)
    p.step("snapshot-planned")
    done = execute(p, "snapshot", raw, plan)
    if done.refused and done.obj is not None:
        words = next(iter(done.refused.values()))
        plan = decision.plan(replace(view, obj=done.obj, create_refused=words))
        done = execute(p, "snapshot", done.obj, plan)
    _count(raw, done.obj)
    said = ", ".join(f"{word} {count}" for word, count in done.counts.items()) or "; ".join(plan.reasons[:2])
    if done.failed:
        return Retry(cause=str(done.failed[0]), summary=said or "failed")
    if plan.again is not None and not done.gone:
        return After(seconds=plan.again, summary=said, progress=done.writes > 0)
    return Done(summary=said or "in order", progress=done.writes > 0)


def _count(before: Obj, after: Obj | None) -> None:
    was = part(before, "status").get("phase")
    now = part(after or {}, "status").get("phase")
    if now != was and now in (names.SUCCEED, names.FAILED):
        metrics.inc("opensandbox_snapshots_total", result="succeed" if now == names.SUCCEED else "failed")


def look(p: Pass, raw: Obj) -> SnapshotView:
    """What the pass would decide on; reads only (`osbctl explain`, `osbctl plan`)."""
    return _view(p, raw)


def _view(p: Pass, raw: Obj) -> SnapshotView:
    meta, status = raw["metadata"], part(raw, "status")
    box = _box(p, raw)
    pods, slots = _pods(p, box) if box is not None else ((), {})
    source = _source(p, status, box, pods=pods, slots=slots)
    pool_template, pool_revision = _pool(p, box)
    unpause = live(p, "job", p.key.namespace, unpause_name(meta["name"]))
    commit = live(p, "job", p.key.namespace, commit_name(meta["name"]))
    node = text(status, "sourceNodeName") or ((source or {}).get("spec") or {}).get("nodeName") or ""
    return SnapshotView(
        now=p.now(), obj=raw, box=box, box_pods=pods, box_slots=slots, source=source, commit_job=commit,
        unpause_job=unpause, job_pods=_job_pods(p, raw, commit, unpause),
        rivals=_rivals(p, raw, source), push_secret=_push_secret(p), node_gone=_node_gone(p, node),
        pool_template=pool_template, pool_revision=pool_revision, options=options_of(p.settings),
    )  # fmt: skip


def options_of(s: Settings) -> SnapshotOptions:
    """The settings that snapshots depend on (`osb.decide.snapsource.option_problems` judges them)."""
    return SnapshotOptions(
        registry=s.snapshot_registry, registry_insecure=s.snapshot_registry_insecure,
        push_secret=s.snapshot_push_secret, committer_image=s.committer_image,
        containerd_socket=s.containerd_socket, job_timeout=s.job_timeout,
        image_template=s.snapshot_image_template,
    )  # fmt: skip


def _box(p: Pass, raw: Obj) -> BoxSpec | None:
    name = text(part(raw, "spec"), "sandboxName")
    found = live(p, "batchsandbox", p.key.namespace, name) if name else None
    return batchsandbox.parse(found) if found is not None else None


def _pods(p: Pass, box: BoxSpec) -> tuple[tuple[PodFact, ...], dict[int, PodFact]]:
    if claims.pooled(box):
        return (), gather.held_pods(p, box)
    return tuple(gather.live_pods(p, "boxpod", box.uid)), {}


def _source(
    p: Pass, status: Mapping[str, Any], box: BoxSpec | None, *, pods: tuple[PodFact, ...], slots: dict[int, PodFact]
) -> Obj | None:
    """The recorded pod by name and UID, before that the live candidate."""
    name, uid = text(status, "sourcePodName"), text(status, "sourcePodUID")
    if not name and box is not None:
        found = candidate(box, pods=pods, slots=slots)
        name, uid = (found.name, found.uid) if found is not None else ("", "")
    if not name:
        return None
    raw = live(p, "pod", p.key.namespace, name)
    return raw if raw is not None and (not uid or raw["metadata"]["uid"] == uid) else None


def _job_pods(p: Pass, raw: Obj, *jobs: Obj | None) -> tuple[Obj, ...]:
    """Pods of the two Jobs; while the snapshot is deleted also those of Jobs that are gone already."""
    found: list[Obj] = []
    name = raw["metadata"]["name"]
    for job, job_name in zip(jobs, (commit_name(name), unpause_name(name)), strict=True):
        if job is None and not raw["metadata"].get("deletionTimestamp"):
            continue
        raws, _ = p.kube.all("pod", p.key.namespace, labels=f"job-name={job_name}")
        found += [pod for pod in raws if job is None or controller_uid(pod) == job["metadata"]["uid"]]
    return tuple(found)


def _rivals(p: Pass, raw: Obj, source: Obj | None) -> tuple[str, ...]:
    """Active snapshots of the same pod that came first: two commits must not freeze one container."""
    if source is None or part(raw, "status").get("phase") == names.COMMITTING:
        return ()
    uid = source["metadata"]["uid"]
    others, _ = p.kube.all("snapshot", p.key.namespace)
    mine = _age(raw)
    return tuple(
        other["metadata"]["name"]
        for other in others
        if other["metadata"]["uid"] != raw["metadata"]["uid"]
        and part(other, "status").get("sourcePodUID") == uid
        and (part(other, "status").get("phase") or "") in ACTIVE
        and not other["metadata"].get("deletionTimestamp")
        and (part(other, "status").get("phase") == names.COMMITTING or _age(other) < mine)
    )


def _age(raw: Obj) -> tuple[str, str]:
    return str(raw["metadata"].get("creationTimestamp") or ""), str(raw["metadata"]["uid"])


def _push_secret(p: Pass) -> str:
    name = p.settings.snapshot_push_secret
    if not name:
        return ""
    try:
        secret = p.kube.get("secret", p.key.namespace, name)
    except NotFound:
        return "missing"
    except Refused:
        return ""  # not allowed to look: the Job will tell
    return "" if secret.get("type") == SECRET_TYPE else f"of type {secret.get('type')}, not {SECRET_TYPE},"


def _node_gone(p: Pass, node: str) -> bool:
    if not node:
        return False
    try:
        p.kube.get("node", None, node)
    except NotFound:
        return True
    except ApiError:
        return False  # unknown is not gone
    return False


def _pool(p: Pass, box: BoxSpec | None) -> tuple[Obj | None, str]:
    name = claims.effective_pool(box)[0] if box is not None else ""
    raw = live(p, "pool", p.key.namespace, name) if name and name != names.ANY_POOL else None
    if raw is None:
        return None, ""
    spec = pools.parse(raw)
    return spec.template, revision_of(spec)
