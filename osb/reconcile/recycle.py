"""Run one restart attempt in a returned pool pod (key recycle/ns/pod), outside the pool's own pass.

An exec is fenced by no version, so each attempt is first recorded on the pod, with the version that was read, and
closed afterwards; a pod with an attempt left open is never reused (spec/protocols.md 1, rule 8; spec/pool.md 11). The
pool's pass decides when a pod is free again; this one only runs commands and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from osb.api import names
from osb.api import pool as pools
from osb.api.key import POOL, Key
from osb.apply.hand import in_parallel
from osb.decide import recycle as decision
from osb.decide.recycle import Recycling, RestartRecord, closed, parse_record
from osb.errors import ApiError, Conflict, NotFound, OsbError
from osb.facts.adds import Add
from osb.facts.ledger import DIRTY, REL
from osb.facts.pod import PodFact, pod_fact
from osb.obs import metrics
from osb.obs.log import get_logger
from osb.reconcile import gather
from osb.reconcile.contract import After, Done, Outcome
from osb.reconcile.world import Pass

log = get_logger("reconcile")

Obj = dict[str, Any]


def reconcile(p: Pass) -> Outcome:
    """One attempt, if the ledger says that the pod is being recycled and an attempt is due."""
    raw = gather.live(p, "pod", p.key.namespace, p.key.name)
    if raw is None:
        return Done(summary="the pod is gone")
    pod = pod_fact(raw)
    pool = gather.read_one(p, "pool", p.key.namespace, pod.owner_name) if pod.owner_kind == names.KIND_POOL else None
    if pool is None or pool["metadata"]["uid"] != pod.owner_uid:
        return Done(summary="its pool is gone")
    spec = pools.parse(pool)
    ledger = p.store.ledger(p.key.namespace, spec.name)
    entry = ledger.holders([pod.name]).get(pod.name)
    if entry is None or entry.state not in (REL, DIRTY) or entry.pod_uid != pod.uid:
        return Done(summary="nothing to recycle")
    policy = decision.policy_of(entry, spec.recycle)
    step = decision.next_step(
        Recycling(entry=entry, pod=pod, policy=policy, config=spec.restart_config, now=p.now(),
                  epoch=ledger.meta().epoch, runner=p.token)
    )  # fmt: skip
    key = Key(POOL, p.key.namespace, spec.name)
    if step.kind != "attempt":
        if step.record:
            _write_down(p, pod, step.record)
        p.store.queue.add([Add(key=key, deep=True, reason=f"pod {pod.name}: {step.why}")])
        return After(seconds=step.wait, summary=step.why) if step.wait else Done(summary=step.why)
    said = _attempt(p, pod, step.record, spec.restart_config.command)
    metrics.inc("opensandbox_recycle_total", policy=names.RECYCLE_RESTART, result="retry")
    p.store.queue.add([Add(key=key, after=0.25, reason=f"pod {pod.name} was restarted")])
    return After(seconds=spec.restart_config.retry_interval, summary=said, progress=True)


def _attempt(p: Pass, pod: PodFact, text: str, command: Sequence[str]) -> str:
    """Open the attempt on the pod, exec, close it."""
    record = parse_record(text)
    assert record is not None
    p.check()
    p.step("attempt")
    p.kube.patch("pod", pod.namespace, pod.name, _patch(text, pod.version))
    p.step("attempt-open")
    results = in_parallel(p, lambda name: _exec(p, pod, name, command), record.containers)
    p.step("attempt-done")
    _close(p, pod, record)
    failed = [str(r) for r in results if r]
    return f"restarted {len(record.containers)} containers" + (
        f", {len(failed)} refused: {failed[0]}" if failed else ""
    )


def _write_down(p: Pass, pod: PodFact, text: str) -> None:
    """Record what only this key knows, also in the mirror: the pool's pass that is asked for decides on it."""
    p.check()
    stored = p.kube.patch("pod", pod.namespace, pod.name, _patch(text, pod.version))
    p.forward.put("poolpod", [stored], own=p.key, versioned=True)


def _exec(p: Pass, pod: PodFact, container: str, command: Sequence[str]) -> str:
    """Run the command; "" or why it failed. A failure is no error: the containers' IDs tell whether it worked."""
    try:
        result = p.kube.exec(pod.namespace, pod.name, container, list(command), timeout=decision.EXEC_SECONDS)
    except ApiError as error:
        return str(error)
    return "" if result.code in (0, None) else f"exit code {result.code}"


def _close(p: Pass, pod: PodFact, record: RestartRecord) -> None:
    """Record that no exec is running any more, on whatever version the pod has by now."""
    for _ in range(5):
        raw = gather.live(p, "pod", pod.namespace, pod.name)
        if raw is None or raw["metadata"]["uid"] != pod.uid:
            return
        now = pod_fact(raw)
        stored = parse_record(now.restart_record)
        if stored is None or stored.open != record.open:
            return
        try:
            p.kube.patch("pod", pod.namespace, pod.name, _patch(closed(stored, p.now()).text(), now.version))
        except Conflict:
            continue
        except NotFound:
            return
        return
    raise OsbError(f"the restart attempt on pod {pod.namespace}/{pod.name} could not be closed; the pod is deleted")


def _patch(text: str, version: str) -> Obj:
    return {"metadata": {"resourceVersion": version, "annotations": {names.RESTART_RECORD: text}}}
