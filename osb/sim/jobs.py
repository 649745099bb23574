"""A small Job controller: pods for Jobs, their conditions, deadline, retries and time to live.

Only inside the simulated server; a real control plane brings its own. Pods are completed by `osb.sim.kubelet`.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from osb.sim.kinds import JOB, POD, Resource
from osb.sim.patches import clone
from osb.sim.refusals import Refusal
from osb.sim.storage import Change, Ref
from osb.sim.writes import DeleteOptions, Writes, timestamp

Obj = dict[str, Any]


class JobController:
    """Listens to Jobs and their pods; a sync looks at one Job as a whole."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._storage = writes.storage
        self._queue: dict[Ref, None] = {}
        self._wake = asyncio.Event()
        self._storage.listeners.append(self._changed)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._queue = list(self._queue), {}
            for ref in batch:
                self._sync(ref)

    def _add(self, ref: Ref) -> None:
        self._queue[ref] = None
        self._wake.set()

    def _changed(self, res: Resource, change: Change) -> None:
        meta = change.record.obj["metadata"]
        if res.bucket == JOB.bucket and change.type != "DELETED":
            self._add(Ref(JOB.bucket, meta["namespace"], meta["name"]))
        elif res.bucket == POD.bucket:
            for owner in meta.get("ownerReferences") or ():
                if owner.get("kind") == "Job":
                    self._add(Ref(JOB.bucket, meta["namespace"], owner["name"]))

    def _sync(self, ref: Ref) -> None:
        record = self._storage.get(ref)
        if record is None or "deletionTimestamp" in record.obj["metadata"]:
            return
        job = record.obj
        if finished_at(job) is not None:
            self._expire(ref, job)
            return
        pods = self._pods(job)
        failed = sum(1 for pod in pods if _phase(pod) == "Failed")
        succeeded = sum(1 for pod in pods if _phase(pod) == "Succeeded")
        active = [pod for pod in pods if _phase(pod) not in ("Failed", "Succeeded") and not _leaving(pod)]
        spec, status = job["spec"], dict(job.get("status") or {})
        status.setdefault("startTime", timestamp())
        if failed > spec["backoffLimit"]:
            self._finish(status, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        elif self._overdue(ref, job, status):
            failed += len(active)
            self._finish(status, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
        elif succeeded >= spec["completions"]:
            self._finish(status, "Complete", "", "")
            status["completionTime"] = timestamp()
        elif not spec.get("suspend"):
            missing = min(spec["parallelism"], spec["completions"] - succeeded) - len(active)
            active += [self._create_pod(job) for _ in range(missing)]
        if status.get("conditions"):
            self._drop(active)
            active = []
        for key, count in (("active", len(active)), ("succeeded", succeeded), ("failed", failed)):
            status.pop(key, None)
            if count:
                status[key] = count
        if status != job.get("status"):
            self._storage.put(JOB, {**job, "status": status})

    def _pods(self, job: Obj) -> list[Obj]:
        refs = self._storage.dependents.get(job["metadata"]["uid"], set())
        records = [self._storage.get(ref) for ref in refs if ref.bucket == POD.bucket]
        return [record.obj for record in records if record is not None]

    def _create_pod(self, job: Obj) -> Obj:
        meta, template = job["metadata"], clone(job["spec"]["template"])
        owner = {
            "apiVersion": JOB.api_version, "kind": "Job", "name": meta["name"], "uid": meta["uid"],
            "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        pod_meta = {
            "generateName": f"{meta['name']}-", "labels": template["metadata"].get("labels"),
            "annotations": template["metadata"].get("annotations") or {}, "ownerReferences": [owner],
        }  # fmt: skip
        record = self._writes.create(POD, meta["namespace"], {"metadata": pod_meta, "spec": template["spec"]})
        return record.obj

    def _drop(self, pods: list[Obj]) -> None:
        for pod in pods:
            try:
                self._writes.delete(POD, pod["metadata"]["namespace"], pod["metadata"]["name"], DeleteOptions())
            except Refusal:
                continue  # gone meanwhile

    @staticmethod
    def _finish(status: Obj, kind: str, reason: str, message: str) -> None:
        now = timestamp()
        condition = {"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
        if reason:
            condition.update(reason=reason, message=message)
        status["conditions"] = [condition]

    def _overdue(self, ref: Ref, job: Obj, status: Obj) -> bool:
        limit = job["spec"].get("activeDeadlineSeconds")
        if limit is None:
            return False
        return self._passed(ref, status["startTime"], float(limit))

    def _passed(self, ref: Ref, since: str, seconds: float) -> bool:
        """Whether that many seconds have gone since; if not, the Job is looked at again when they have."""
        gone = (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
        if gone >= seconds:
            return True
        asyncio.get_running_loop().call_later(seconds - gone + 0.05, self._add, ref)
        return False

    def _expire(self, ref: Ref, job: Obj) -> None:
        ttl, end = job["spec"].get("ttlSecondsAfterFinished"), finished_at(job)
        if ttl is not None and end is not None and self._passed(ref, end, float(ttl)):
            self._writes.delete(JOB, ref.namespace, ref.name, DeleteOptions(propagation="Background"))


def finished_at(job: Obj) -> str | None:
    """When the Job became Complete or Failed, None while it has not."""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return str(condition["lastTransitionTime"])
    return None


def _phase(pod: Obj) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _leaving(pod: Obj) -> bool:
    return "deletionTimestamp" in pod["metadata"]
