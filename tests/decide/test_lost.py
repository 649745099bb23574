"""What a lost pod does to the record."""

from __future__ import annotations

from osb.api.record import Record
from osb.decide.lost import mark_lost

HELD = Record(pods=("w1", "w2", "w3"), seq=4, losses=1)


def test_a_lost_slot_waits_for_a_substitute_and_keeps_its_name() -> None:
    after = mark_lost(HELD, {1}, policy="Replace", delivered={1})
    assert (after.open, after.failed, after.losses, after.seq) == ((1,), (), 2, 5)
    assert after.pods == HELD.pods


def test_under_fail_only_a_delivered_slot_is_given_up() -> None:
    after = mark_lost(HELD, {0, 2}, policy="Fail", delivered={0})
    assert (after.open, after.failed, after.losses) == ((2,), (0,), 3)


def test_a_loss_is_counted_once() -> None:
    once = mark_lost(HELD, {1}, policy="Replace", delivered=())
    assert mark_lost(once, {1}, policy="Replace", delivered=()) is once


def test_a_sandbox_without_a_record_gets_one() -> None:
    assert mark_lost(None, {0}, policy="Replace", delivered=()).losses == 1
