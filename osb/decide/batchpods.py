"""The pods of a sandbox that makes its own: which to create, which to delete, which are lost.

In: a `BatchView`. Out: `PodWork`. Missing slots are created in ascending order; slots beyond replicas go, the
highest first, once their tasks are stopped; terminal pods are replaced with a growing pause; a pod that
cannot be built stops its own slot only (spec/batchsandbox.md 9.3, 9.4). Next: `osb.decide.batch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from osb.api import claims, names, times
from osb.api import record as records
from osb.api.record import Record
from osb.decide import boxslots, podbuild
from osb.decide.lost import mark_lost
from osb.decide.plan import Action, CreatePod, DeletePod, PatchObject, event
from osb.errors import InvalidInput
from osb.facts.boxview import BatchView
from osb.facts.pod import PodFact

FIRST_PAUSE = 5.0  # seconds between a pod's end and its replacement; doubles with every loss
LONGEST_PAUSE = 300.0
CREATES = 100  # in one pass: its status is written, and its lease and the server's limits are looked at, in between
SOON = 0.1  # seconds until then
LONG_LIFE = 600.0  # a pod that lived this long is replaced at once


@dataclass(slots=True)
class PodWork:
    """What is to be done about a sandbox's own pods.

    `broken`: slot -> why its pod cannot be built.
    `lost`: slot -> what became of its pod.
    `again`: seconds until more is to be done.
    `record`: what the plan's own patch makes of the record, None when it stays.
    """

    actions: list[Action] = field(default_factory=list)
    broken: dict[int, InvalidInput] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    again: float | None = None
    record: Record | None = None


def pod_work(view: BatchView) -> PodWork:
    """What to do about the pods. Never called for a deleting, pausing or paused sandbox, nor in pool mode."""
    work = PodWork()
    if view.spec.barred == names.REASON_TOO_MANY_REPLICAS:
        work.reasons.append("spec.replicas is too large: no pod is made, replaced or removed")
        return work
    own = boxslots.owned(view)
    lost = _losses(view, own.by_slot, work)
    _surplus(view, own, work)
    given_up = frozenset(lost.failed) if lost and view.spec.lost_policy == names.LOST_FAIL else frozenset()
    _create(view, [slot for slot in boxslots.missing(view) if slot not in given_up], work)
    return work


def _create(view: BatchView, slots: Sequence[int], work: PodWork) -> None:
    """Create a hundred of the missing pods, lowest slots first; the next pass makes more.

    A slot whose pod cannot be built holds up nobody.
    """
    if view.spec.template is None:
        return
    made = 0
    for slot in slots:
        if made == CREATES:
            work.again = SOON
            break
        try:
            body = podbuild.build(view.spec, slot)
        except InvalidInput as error:
            work.broken[slot] = error
            continue
        work.actions.append(CreatePod(body["metadata"]["name"], body))
        made += 1
    empty = [slot for slot in slots if slot not in work.broken]
    if empty:
        verb = "has" if len(empty) == 1 else "have"
        rest = f"; the first {made} are made now" if len(empty) > made else ""
        work.reasons.append(f"{boxslots.text(empty)} {verb} no pod{rest}")


def _surplus(view: BatchView, own: boxslots.Owned, work: PodWork) -> None:
    """Slots beyond replicas, the highest first, and second pods of a slot."""
    busy = view.tasks.busy if view.tasks else frozenset()
    for slot in sorted((s for s in own.by_slot if s >= view.spec.replicas), reverse=True):
        pod = own.by_slot[slot]
        if not pod.deleting and slot not in busy:
            work.actions.append(DeletePod(pod.name, pod.uid, why=f"slot {slot} is beyond replicas"))
    for pod in own.doubles:
        work.actions.append(DeletePod(pod.name, pod.uid, why="its slot has an older pod"))


def _losses(view: BatchView, pods: Mapping[int, PodFact], work: PodWork) -> Record | None:
    """Notice losses, write them into the record, and remove terminal pods that are due. Returns the new record."""
    spec = view.spec
    delivered = frozenset(s for s in range(spec.replicas) if claims.delivered(spec, s))
    lost: dict[int, str] = {}
    ended: list[PodFact] = []
    for slot in sorted(boxslots.needed(view)):
        pod = pods.get(slot)
        if pod is not None and pod.terminal and not pod.deleting:
            at_once = spec.lost_policy == names.LOST_FAIL and slot in delivered
            if at_once or _due(view, pod, work):
                lost[slot] = f"pod {pod.name} ended as {pod.phase}"
                ended.append(pod)
        elif slot in delivered and (pod is None or pod.deleting):
            lost[slot] = f"pod {boxslots.pod_name(spec.name, slot)} was deleted"
    kept = _without_cut(view)
    if (not lost and kept is spec.record) or spec.record_error is not None:
        return spec.record  # one that cannot be read is never written over: somebody may still repair it
    # A slot of a sandbox with pods of its own is never open: the substitute has the name of the same slot.
    record = mark_lost(kept, lost.keys(), policy=spec.lost_policy, delivered=delivered)
    record = work.record = replace(record, open=())
    work.lost = lost
    why = "pods are lost" if lost else "slots that were given up are cut"
    patch = {"metadata": {"annotations": {names.ALLOC_STATUS: records.format(record)}}}
    work.actions.append(PatchObject("batchsandbox", spec.name, patch, version=spec.version, why=why))
    for slot, cause in lost.items():
        fate = "the slot is given up" if slot in record.failed else "it is replaced"
        text = f"slot {slot}: {cause}; its state is gone; {fate}"
        work.actions.append(event("batchsandbox", "Warning", names.POD_LOST, text))
        work.reasons.append(text)
    work.actions += [DeletePod(pod.name, pod.uid, why=f"the pod ended as {pod.phase}") for pod in ended]
    return record


def _without_cut(view: BatchView) -> Record | None:
    """The record without slots given up that were cut since: one of that number is a new slot, which gets a pod.

    Their tasks' results go first, so that no new slot takes over an old result.
    """
    record, busy = view.spec.record, view.tasks.busy if view.tasks else frozenset()
    if record is None:
        return None
    failed = tuple(slot for slot in record.failed if slot < view.spec.replicas or slot in busy)
    return record if failed == record.failed else replace(record, failed=failed, seq=record.seq + 1)


def _due(view: BatchView, pod: PodFact, work: PodWork) -> bool:
    """Whether an ended pod may be replaced now; otherwise remember when."""
    now, ended = times.to_ms(view.now), pod.last_transition or pod.created
    if ended - pod.created >= LONG_LIFE * 1000:
        return True
    losses = view.spec.record.losses if view.spec.record else 0
    left = min(FIRST_PAUSE * 2 ** min(losses, 10), LONGEST_PAUSE) - (now - ended) / 1000
    if left <= 0:
        return True
    work.again = min(left, work.again) if work.again is not None else left
    work.reasons.append(f"pod {pod.name} ended; it is replaced in {left:.0f} s")
    return False
