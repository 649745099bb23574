"""The named tests notice when the protocol is broken: each plausible simplification is made, and must fail.

The table follows spec/protocols.md 8. A mutant changes the text of the scripts as they are loaded, for one test.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from osb.store import scripts
from osb.store.client import Store, connect


class Mutant(NamedTuple):
    name: str
    old: str
    new: str
    module: str
    test: str


QUEUE, TIMERS, FAULTS = "test_queue", "test_queue_timers", "test_queue_faults"

MUTANTS = [
    Mutant(
        "a wake-up marker without deadline: nobody repeats it",
        "for _, member in ipairs(expired('wake', Q_WAKE * 32)) do",
        "for _, member in ipairs({}) do",
        FAULTS, "test_an_event_after_a_lost_wake_up_is_not_stuck",
    ),
    Mutant(
        "the deadline of a marker does not double",
        "q_now() + Q_WAKE * 2 ^ math.min(repeats, 5)",
        "q_now() + Q_WAKE",
        FAULTS, "test_a_lost_wake_up_is_repeated_after_10_20_40_and_at_most_320_s",
    ),
    Mutant(
        "add publishes only for a clean key",
        "if woken and tonumber(woken) >= class then return end",
        "if woken then return end",
        QUEUE, "test_a_class_upgrade_publishes_once_more_and_the_older_message_ends_as_clean",
    ),
    Mutant(
        "dirty is cleared by end instead of begin",
        "q_drop_run(kind, member)\nredis.call('HDEL', q_key(kind, 'crash'), member)",
        "q_drop_run(kind, member)\nredis.call('ZREM', q_key(kind, 'dirty'), member)",
        QUEUE, "test_an_event_during_a_run_means_exactly_one_more_run_after_it",
    ),
    Mutant(
        "end does not look at dirty",
        "if again then q_wake(",
        "if false then q_wake(",
        QUEUE, "test_an_event_during_a_run_means_exactly_one_more_run_after_it",
    ),
    Mutant(
        "end does not compare the token",
        "if q_token(kind, member) ~= ARGV[4] then return { 0, 0, -1, 0 } end",
        "",
        FAULTS, "test_a_frozen_worker_that_returns_changes_nothing",
    ),
    Mutant(
        "renew does not compare the token",
        "local ours = q_token(kind, member) == ARGV[i + 2]",
        "local ours = q_token(kind, member)",
        FAULTS, "test_a_frozen_worker_that_returns_changes_nothing",
    ),
    Mutant(
        "begin takes a key whose lease lives",
        "if q_running(kind, member) then return { 'busy', 0, 0, '', -1, 0 } end",
        "",
        QUEUE, "test_an_event_during_a_run_means_exactly_one_more_run_after_it",
    ),
    Mutant(
        "begin does not know its own token",
        "if q_token(kind, member) == token then",
        "if false then",
        QUEUE, "test_begin_repeated_with_the_same_token_runs_once",
    ),
    Mutant(
        "an expired lease is removed, the work not marked dirty",
        "q_dirty(kind, member, 2, 'its worker vanished')",
        "",
        FAULTS, "test_a_key_whose_worker_vanished_comes_back_with_a_full_pass",
    ),
    Mutant(
        "each wake-up marks dirty",
        "return { 'clean', 0, 0, '', -1, 0 }",
        "q_dirty(kind, member, 2, '')",
        FAULTS, "test_a_repeated_wake_up_costs_no_run",
    ),
    Mutant(
        "a hand-sent task is treated as a wake-up",
        "if hand then hand = q_new_by_hand(kind, task_id) end",
        "hand = false",
        QUEUE, "test_a_hand_sent_task_runs_an_idle_key_with_a_full_pass",
    ),
    Mutant(
        "a redelivered hand-sent task counts again",
        "if hand then hand = q_new_by_hand(kind, task_id) end",
        "",
        QUEUE, "test_a_redelivered_hand_sent_task_is_a_plain_wake_up",
    ),
    Mutant(
        "due skips running keys",
        "  q_dirty(kind, member, 2, 'timer')",
        "  if not redis.call('ZSCORE', q_key(kind, 'run'), member) then q_dirty(kind, member, 2, 'timer') end",
        FAULTS, "test_a_timer_that_fires_during_a_run_means_one_more_run",
    ),
    Mutant(
        "begin clears the due time: lost after a crash",
        "if due then redis.call('HSET', q_key(kind, 'seen'), member, due) end",
        "redis.call('ZREM', q_key(kind, 'due'), member)",
        FAULTS, "test_a_timer_survives_the_crash_of_the_run_that_saw_it",
    ),
    Mutant(
        "end drops a due time that was asked for during the run",
        "    redis.call('HDEL', q_key(kind, 'seen'), member)\n    return\n",
        "    return\n",
        FAULTS, "test_a_timer_set_by_another_key_during_the_run_survives_its_end",
    ),
    Mutant(
        "a failed run drops the timer that it saw",
        "if outcome ~= 'retry' and seen and redis",
        "if seen and redis",
        TIMERS, "test_a_failed_run_keeps_a_timer_that_is_earlier_than_its_back_off",
    ),
    Mutant(
        "a partial pass drops timers",
        "if outcome ~= 'part' then\n",
        "if true then\n",
        TIMERS, "test_a_partial_pass_leaves_timers_alone",
    ),
    Mutant(
        "a partial pass drops the debt of a full one",
        "if deep_again or (outcome == 'part' and taken) then",
        "if deep_again then",
        TIMERS, "test_a_partial_pass_hands_the_debt_of_a_full_pass_on",
    ),
    Mutant(
        "rescue does not restore the debt",
        "  redis.call('SADD', q_key(kind, 'deep'), member)\n  if redis.call('HINCRBY'",
        "  if redis.call('HINCRBY'",
        FAULTS, "test_a_crash_after_a_partial_pass_still_owes_the_full_one",
    ),
    Mutant(
        "quarantine without a due time",
        "  q_due(kind, member, at)\n  q_drop_wake(kind, member)\n  return true",
        "  q_drop_wake(kind, member)\n  return true",
        FAULTS, "test_five_crashes_in_a_row_mean_quarantine_for_ten_minutes",
    ),
    Mutant(
        "an earlier due time uses the way out of quarantine up",
        "if blocked then q_due(kind, member, blocked) else q_offer(kind, member, 2) end",
        "if not blocked then q_offer(kind, member, 2) end",
        FAULTS, "test_events_in_quarantine_wait_and_an_early_timer_does_not_use_the_way_out_up",
    ),
    Mutant(
        "a lease far ahead of the clock is believed",
        "return ends > q_now() and ends <= q_now() + 2 * Q_LEASE",
        "return ends > q_now()",
        FAULTS, "test_leases_from_a_clock_that_went_back_do_not_make_a_key_busy",
    ),
    Mutant(
        "markers far ahead of the clock are believed",
        "for _, member in ipairs(ahead) do",
        "for _, member in ipairs({}) do",
        FAULTS, "test_leases_and_markers_from_a_clock_that_went_back_count_as_expired",
    ),
    Mutant(
        "later is never promoted",
        "for _, member in ipairs(late) do",
        "for _, member in ipairs({}) do",
        FAULTS, "test_what_waited_30_s_in_later_is_promoted",
    ),
    Mutant(
        "a staying worker leaves no marker",
        "if again then q_wake(kind, member, q_class(kind, member), 0, ARGV[9] == '1') end",
        "if again and ARGV[9] ~= '1' then q_wake(kind, member, q_class(kind, member), 0) end",
        QUEUE, "test_a_staying_worker_gets_no_message_but_rescue_sends_it_if_it_dies",
    ),
    Mutant(
        "the allowance is not swept",
        "redis.call('ZREMRANGEBYSCORE', q_key(kind, 'gate'), '-inf', now)",
        "",
        QUEUE, "test_an_idle_key_leaves_nothing_behind",
    ),
]  # fmt: skip


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Replace text in every script that contains it; called before the store connects."""
    real = scripts.source

    def change(old: str, new: str) -> None:
        assert any(old in real(name) for name in scripts.names()), "the mutant does not fit the scripts any more"
        monkeypatch.setattr(scripts, "source", lambda name: real(name).replace(old, new))

    return change


@pytest.fixture
def fresh(redis_url: str) -> Iterator[Callable[[], Store]]:
    stores: list[Store] = []

    def connected() -> Store:
        stores.append(connect(redis_url, clock_key="osb:clock"))
        return stores[-1]

    yield connected
    for store in stores:
        store.close()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_protocol_is_noticed(
    mutant: Mutant,
    mutate: Callable[[str, str], None],
    fresh: Callable[[], Store],
    clock: Any,
    broker: Any,
    left: Any,
) -> None:
    test = getattr(module(mutant.module), mutant.test)
    offered = {"clock": clock, "broker": broker, "left": left}
    mutate(mutant.old, mutant.new)
    wanted = test.__code__.co_varnames[: test.__code__.co_argcount]
    with pytest.raises(AssertionError):
        test(fresh(), **{name: offered[name] for name in wanted if name != "store"})
