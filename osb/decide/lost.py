"""What a lost pod does to the record of its sandbox, and how it is told. Pure.

The pool side and `osb.decide.batchpods` both use it. A pod is lost when it is gone by a live read, has another
UID, is terminal, or is being deleted by somebody else (spec/additions.md 2.1). Its slot waits for a substitute, or
is given up under `lostPodPolicy: Fail` after delivery.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from osb.api import names
from osb.api.record import Record
from osb.decide.conditions import stored
from osb.facts.boxview import BatchView

_TOLD = re.compile(r"; slot (\d+) \(([^()]*)\): its state is gone")


def mark_lost(record: Record | None, slots: Collection[int], *, policy: str, delivered: Collection[int]) -> Record:
    """The record after losing the pods of `slots`; the same record when all of them are marked already.

    `delivered` are slots whose address was published: only those can be given up; before delivery a slot is
    always refilled. Names stay until the slot gets another pod. `seq` grows by one.
    """
    old = record or Record()
    known = {*old.open, *old.failed}
    fresh = {slot for slot in slots if slot not in known}
    if not fresh:
        return old
    given_up = {slot for slot in fresh if policy == names.LOST_FAIL and slot in delivered}
    return replace(
        old,
        open=tuple(sorted({*old.open, *(fresh - given_up)})),
        failed=tuple(sorted({*old.failed, *given_up})),
        losses=old.losses + len(fresh),
        seq=old.seq + 1,
    )


def told_loss(record: Record, pods: Mapping[int, str]) -> tuple[str, str]:
    """Reason and message of PodLost. `pods`: slot -> its pod and, when known, what became of it.

    Later passes keep the text although the record has forgotten the pod.
    """
    if record.failed:
        reason = names.REASON_SLOT_FAILED
    else:
        reason = names.REASON_WAITING_FOR_REPLACEMENT if record.open else names.REASON_POD_REPLACED
    told = [f"slot {slot} ({pods[slot]}): its state is gone" for slot in sorted(pods)[:10]]
    return reason, "; ".join([lost_count(record), *told])


def told_pods(message: str) -> dict[int, str]:
    """Slot -> its pod and what became of it, as a message of `told_loss` has it."""
    return {int(slot): pod for slot, pod in _TOLD.findall(message)}


def replaced_losses(view: BatchView, before: Record | None) -> tuple[tuple[str, str, str], ...]:
    """PodLost as a condition of a `Change`, for the write that refills slots of which no status has told yet.

    `before` is the record that still names the lost pods. Empty when there is nothing to tell.
    """
    record = view.spec.record
    if before is None or record is None or not before.open or record.open or record.losses != before.losses:
        return ()
    if stored(view.spec.status, now=view.now).text(names.POD_LOST).startswith(f"{lost_count(record)};"):
        return ()
    pods = {slot: f"pod {before.pods[slot]}" for slot in before.open if slot < len(before.pods)}
    return ((names.POD_LOST, *told_loss(record, pods)),) if pods else ()


def lost_count(record: Record) -> str:
    """How the message of PodLost begins."""
    return f"{record.losses} lost so far"
