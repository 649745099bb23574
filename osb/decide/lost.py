"""What a lost pod does to the record of its sandbox. Pure; the pool side and `osb.decide.batchpods` both use
it.

A pod is lost when it is gone by a live read, has another UID, is terminal, or is being deleted by somebody
else (spec/additions.md 2.1). Its slot waits for a substitute, or is given up under `lostPodPolicy: Fail`
after delivery.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from osb.api import names
from osb.api.record import Record


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
