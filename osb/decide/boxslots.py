"""Which pod is in which slot of a sandbox, and which slots still need one.

In: a `BatchView`. Out: facts that `status`, `batch` and `pause` share, so that they agree. A pooled
sandbox's slots come verified with the view; a sandbox with pods of its own finds them by index label or name
(spec/batchsandbox.md 9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from osb.api import claims, names
from osb.api.record import derived
from osb.facts.boxview import BatchView
from osb.facts.pod import PodFact

POD_NAME_LIMIT = 253


@dataclass(frozen=True, slots=True)
class Owned:
    """Pods of its own by slot, and those to remove or to leave alone.

    `doubles` share a slot with an older pod and do not even carry its name: they are deleted. `strangers`
    have no readable slot: they are counted nowhere and left alone.
    """

    by_slot: Mapping[int, PodFact]
    doubles: tuple[PodFact, ...]
    strangers: tuple[PodFact, ...]


def pod_name(box: str, slot: int) -> str:
    """`<sandbox>-<slot>`, derived when too long."""
    return derived(box, POD_NAME_LIMIT, f"-{slot}")


def slot_of(pod: PodFact) -> int | None:
    """The label's number, else the number after the last '-' of the name; None when neither is one."""
    text = pod.index_label or pod.name.rpartition("-")[2]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _named(view: BatchView, pod: PodFact) -> bool:
    """Whether the pod carries the name of its slot.

    Creation times have whole seconds: of two pods of one second, the one with the slot's name came from us.
    """
    slot = slot_of(pod)
    return slot is not None and pod.name == pod_name(view.spec.name, slot)


def owned(view: BatchView) -> Owned:
    """Pods that this sandbox's UID controls, one per slot.

    Of two in one slot the live one counts, else the older (spec/batchsandbox.md 15).
    """
    best: dict[int, PodFact] = {}
    doubles: list[PodFact] = []
    strangers: list[PodFact] = []
    for pod in sorted(view.pods, key=lambda p: (not p.live, p.created, not _named(view, p), p.uid)):
        if pod.owner_uid != view.spec.uid:
            continue
        slot = slot_of(pod)
        if slot is None:
            strangers.append(pod)
        elif slot not in best:
            best[slot] = pod
        elif pod.name != pod_name(view.spec.name, slot) and not pod.deleting:
            doubles.append(pod)
    return Owned(dict(sorted(best.items())), tuple(doubles), tuple(strangers))


def listed(view: BatchView) -> Mapping[int, PodFact]:
    """Pods by slot, pooled or not, terminating and terminal ones included."""
    if claims.pooled(view.spec):
        return dict(sorted(view.slots.items()))
    return owned(view).by_slot


def given_back(view: BatchView) -> frozenset[int]:
    """Slots whose pod the sandbox no longer needs: named in alloc-release, or completed under policy Release."""
    done = set(view.tasks.done) if view.tasks else set()
    if not view.spec.detaching:
        done.update(claims.given_back(view.spec))
    return frozenset(slot for slot in done if slot < view.spec.replicas)


def failed_slots(view: BatchView) -> frozenset[int]:
    """Slots given up under `lostPodPolicy: Fail`."""
    record = view.spec.record
    if record is None or view.spec.lost_policy != names.LOST_FAIL:
        return frozenset()
    return frozenset(slot for slot in record.failed if slot < view.spec.replicas)


def needed(view: BatchView) -> frozenset[int]:
    """Slots that should have a running pod: all but those given back or given up."""
    return frozenset(range(view.spec.replicas)) - given_back(view) - failed_slots(view)


def missing(view: BatchView) -> tuple[int, ...]:
    """Needed slots without any pod object, in order."""
    present = listed(view)
    return tuple(slot for slot in sorted(needed(view)) if slot not in present)


def text(slots: Sequence[int]) -> str:
    """Ascending slots in words: `slot 3`, `slots 0, 3-99`; at most ten ranges."""
    if len(slots) == 1:
        return f"slot {slots[0]}"
    ranges: list[list[int]] = []
    for slot in slots:
        if ranges and slot == ranges[-1][1] + 1:
            ranges[-1][1] = slot
        else:
            ranges.append([slot, slot])
    shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges[:10])
    return f"slots {shown}{', ...' if len(ranges) > 10 else ''}"


def running_source(view: BatchView) -> PodFact | None:
    """The pod a pause would save: slot 0, Running, not terminating; None when there is none."""
    pod = listed(view).get(0)
    return pod if pod is not None and pod.phase == "Running" and not pod.deleting else None
