"""What becomes of a returned pod: delete it, restart its containers, or keep it (spec/pool.md 11).

Pure transitions: facts of the pod, its ledger entry and the restart record in, one `Step` out. Whoever runs
the step reads live, proves the ledger entry and writes with the version just read (spec/protocols.md 5).
Every step is safe to repeat. The policy was pinned when the release began; only Delete may override it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import orjson

from osb.api import names, times
from osb.api.restart import RestartConfig
from osb.facts import ledger
from osb.facts.ledger import LedgerEntry
from osb.facts.pod import PodFact

EXEC_SECONDS = 10.0  # for one container
OPEN_MARGIN = 30.0  # beyond the execs of an open attempt, before another process may call it abandoned
ABANDONED = "abandoned"  # in place of the opener's token, written by the run that came after it

Kind = Literal["wait", "delete", "attempt", "free", "gone"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of recycling. Its `kind`:

    * `wait`: nothing to do now.
    * `delete`: delete the pod.
    * `attempt`: one restart.
    * `free`: done; acknowledge and put the pod back.
    * `gone`: the pod is no more; acknowledge.

    `wait`: seconds until the next look, None when an event will come.
    `record`: the restart record to write before the step (by the pod's own recycle key only).
    `failed`: the policy could not be carried out, deletion takes its place.
    """

    kind: Kind
    why: str = ""
    wait: float | None = None
    record: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRecord:
    """The `restart-record` annotation. `open`: token of the worker that runs an attempt, `ABANDONED`, or ""."""

    id: str
    started: str = ""
    containers: Mapping[str, str] = field(default_factory=dict)
    last_retry: str = ""
    retries: int = 0
    open: str = ""

    def text(self) -> str:
        """Compact JSON, the reference's members first; empty ones left out as it does."""
        data: dict[str, Any] = {"id": self.id, "startTime": self.started, "containers": dict(self.containers)}
        if self.last_retry:
            data["lastRetryTime"] = self.last_retry
        if self.retries:
            data["retryCount"] = self.retries
        if self.open:
            data["open"] = self.open
        return orjson.dumps(data).decode()


def parse_record(text: str) -> RestartRecord | None:
    """None when absent or unreadable in any member: then the restart begins anew."""
    try:
        data = orjson.loads(text) if text else None
    except orjson.JSONDecodeError:
        return None
    if not isinstance(data, dict) or not isinstance(data.get("containers"), dict):
        return None
    retries = data.get("retryCount", 0)
    texts = [data.get(member, "") for member in ("id", "startTime", "lastRetryTime", "open")]
    ids = data["containers"]
    if type(retries) is not int or not all(isinstance(t, str) for t in (*texts, *ids.values())):
        return None
    identity, started, last, opened = texts
    return RestartRecord(id=identity, started=started, containers=ids, last_retry=last, retries=retries, open=opened)


def life_id(entry: LedgerEntry, epoch: str) -> str:
    """Names one claim on one pod, so that a record of an earlier life never counts: sandbox UID and sequence.

    A pod of unknown history has no claim; the ledger's epoch stands for it.
    """
    if entry.state == ledger.DIRTY or not entry.box_uid:
        return f"unclaimed:{epoch}"
    return f"{entry.box_uid}:{entry.seq}"


def policy_of(entry: LedgerEntry, pool_policy: str, *, forced: bool = False) -> str:
    """The pinned policy, unless deletion overrides it.

    It does when the pool says so now, when it is forced, or when nobody knows who used the pod and the policy
    would not touch it.
    """
    pinned = entry.policy or pool_policy
    if forced or names.RECYCLE_DELETE in (pinned, pool_policy):
        return names.RECYCLE_DELETE
    if entry.state == ledger.DIRTY and pinned == names.RECYCLE_NOOP:
        return names.RECYCLE_DELETE
    return pinned if pinned in (names.RECYCLE_NOOP, names.RECYCLE_RESTART) else names.RECYCLE_DELETE


@dataclass(frozen=True, slots=True, kw_only=True)
class Recycling:
    """One pod's recycling.

    `pod`: None means that it does not exist (any more).
    `runner`: token of the process that runs the pod's own recycle key; "" for the pool's pass, which only decides.
    """

    entry: LedgerEntry
    pod: PodFact | None
    policy: str
    config: RestartConfig
    now: datetime
    epoch: str = ""
    runner: str = ""


def next_step(work: Recycling) -> Step:
    """What to do next with a pod in `rel` or `dirty`."""
    pod = work.pod
    if pod is None or (work.entry.pod_uid and pod.uid != work.entry.pod_uid):
        return Step("gone", "the pod is gone")
    if pod.deleting:
        return Step("wait", "the pod is terminating")
    if work.policy == names.RECYCLE_DELETE:
        return Step("delete", "recycle policy Delete")
    if pod.terminal:
        return Step("delete", f"the pod ended {pod.phase}", failed=work.policy == names.RECYCLE_RESTART)
    if work.policy == names.RECYCLE_NOOP:
        return Step("free", "recycle policy Noop")
    return _restart(work, pod)


def _restart(work: Recycling, pod: PodFact) -> Step:
    if pod.phase != "Running":
        return Step("delete", f"the pod is {pod.phase or 'not running'} and cannot be restarted", failed=True)
    if pod.restart_policy != "Always":
        return Step("delete", f"restartPolicy {pod.restart_policy} would end the pod", failed=True)
    record = parse_record(pod.restart_record)
    if record is not None and record.open:  # of whatever life: its exec may still hit
        return _open(work, record)
    if record is None or record.id != life_id(work.entry, work.epoch):
        return _begin(work, pod)
    if not record.containers:
        return Step("delete", "no container was running when the restart began", failed=True)
    if _restarted(pod, record):
        return Step("free", "every container was restarted")
    return _again(work, record)


def _begin(work: Recycling, pod: PodFact) -> Step:
    skip = set(work.config.blacklist)
    running = {name: cid for name, cid, up in pod.container_ids if up and cid and name not in skip}
    if not running:
        return Step("delete", "no container is running that could be restarted", failed=True)
    record = RestartRecord(id=life_id(work.entry, work.epoch), started=times.format(work.now), containers=running)
    return Step("attempt", "first restart", record=opened(record, work.runner, work.now).text())


def _open(work: Recycling, record: RestartRecord) -> Step:
    """An attempt that nobody closed yet; the pod is never reused if its opener is gone.

    Only one run of the pod's own key exists at a time, so a later one knows that the opener is gone. It writes that
    on the pod: the pool's pass could not tell, and would wait for as long as an attempt may take.
    """
    left = "a restart attempt was left open"
    if record.open == ABANDONED:
        return Step("delete", left, failed=True)
    if record.open == work.runner:
        return Step("wait", "its own attempt is to be closed first", wait=1.0)
    if work.runner:
        return Step("delete", left, failed=True, record=replace(record, open=ABANDONED).text())
    limit = EXEC_SECONDS * len(record.containers) + OPEN_MARGIN
    age = _age(record.last_retry or record.started, work.now)
    if age is None or age > limit:
        return Step("delete", left, failed=True)
    return Step("wait", "a restart attempt is running", wait=limit - age + 1)


def _again(work: Recycling, record: RestartRecord) -> Step:
    """Another attempt once the interval after the last one has passed; given up only then, too."""
    age = _age(record.last_retry, work.now)
    if age is not None and age < work.config.retry_interval:
        return Step("wait", "waiting for the containers to restart", wait=work.config.retry_interval - age)
    if record.retries >= work.config.max_retries:
        return Step("delete", f"{record.retries} restarts changed nothing", failed=True)
    text = opened(record, work.runner, work.now).text()
    return Step("attempt", f"restart {record.retries + 1} of {work.config.max_retries}", record=text)


def _restarted(pod: PodFact, record: RestartRecord) -> bool:
    now = {name: cid for name, cid, up in pod.container_ids if up}
    return all(now.get(name, before) != before for name, before in record.containers.items())


def opened(record: RestartRecord, runner: str, now: datetime) -> RestartRecord:
    """The record as it is written, with compare-and-swap, before the exec."""
    return replace(record, open=runner, retries=record.retries + 1, last_retry=times.format(now))


def closed(record: RestartRecord, now: datetime) -> RestartRecord:
    """The record as it is written after the exec: the interval counts from here."""
    return replace(record, open="", last_retry=times.format(now))


def _age(text: str, now: datetime) -> float | None:
    moment = times.parse_or_none(text)
    return None if moment is None else (now - moment).total_seconds()
