"""Recycling as transitions: what happens to a returned pod, step by step."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import orjson
import pytest

from osb.api import names
from osb.api.restart import RestartConfig
from osb.decide.recycle import (
    Recycling,
    RestartRecord,
    Step,
    closed,
    next_step,
    opened,
    parse_record,
    policy_of,
)
from osb.facts.ledger import LedgerEntry
from osb.facts.pod import PodFact

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
REL = LedgerEntry(state="rel", pod_uid="uid-p", box_uid="box-1", box="b7", slot=0, seq=5, policy="Restart")
DIRTY = LedgerEntry(state="dirty", pod_uid="uid-p")
RUNNING = (("main", "id-1", True), ("side", "id-2", True))
CONFIG = RestartConfig()


def pod(**kw: Any) -> PodFact:
    fields = {"phase": "Running", "ready": True, "container_ids": RUNNING, **kw}
    return PodFact("ns", "p", fields.pop("uid", "uid-p"), "9", **fields)


def record(**kw: Any) -> str:
    fields = {"id": "box-1:5", "containers": {"main": "id-1", "side": "id-2"}, **kw}
    return RestartRecord(**fields).text()


def step(
    the_pod: PodFact | None,
    *,
    policy: str = names.RECYCLE_RESTART,
    entry: LedgerEntry = REL,
    config: RestartConfig = CONFIG,
    after: float = 0,
    **kw: Any,
) -> Step:
    now = NOW + timedelta(seconds=after)
    return next_step(Recycling(entry=entry, pod=the_pod, policy=policy, config=config, now=now, **kw))


@pytest.mark.parametrize("policy", ["Delete", "Noop", "Restart"])
def test_a_pod_that_is_gone_is_acknowledged_whatever_the_policy(policy: str) -> None:
    assert step(None, policy=policy).kind == "gone"
    assert step(pod(uid="uid-of-another"), policy=policy).kind == "gone"
    assert step(pod(deleting=7), policy=policy).kind == "wait"


def test_delete_deletes() -> None:
    assert step(pod(), policy="Delete").kind == "delete"


def test_noop_puts_it_back_but_not_when_it_ended() -> None:
    assert step(pod(), policy="Noop").kind == "free"
    assert step(pod(phase="Failed", ready=False), policy="Noop").kind == "delete"


def test_a_restart_begins_with_a_record_of_the_running_containers() -> None:
    config = replace(CONFIG, blacklist=("side",))
    found = step(pod(), config=config, runner="token")
    assert found.kind == "attempt"
    assert orjson.loads(found.record) == {
        "id": "box-1:5",
        "startTime": "2026-05-04T12:00:00Z",
        "containers": {"main": "id-1"},
        "lastRetryTime": "2026-05-04T12:00:00Z",
        "retryCount": 1,
        "open": "token",
    }


@pytest.mark.parametrize(
    "bad",
    [
        pod(phase="Pending", ready=False),
        pod(phase="Failed", ready=False),
        pod(restart_policy="Never"),
        pod(container_ids=(("main", "id-1", False),)),
        pod(restart_record=record(containers={})),
    ],
    ids=["pending", "failed", "restartPolicy", "nothing running", "empty record"],
)
def test_a_pod_that_cannot_be_restarted_is_deleted(bad: PodFact) -> None:
    found = step(bad)
    assert (found.kind, found.failed) == ("delete", True)


def test_done_when_every_recorded_container_has_another_id() -> None:
    half = pod(container_ids=(("main", "id-9", True), ("side", "id-2", True)), restart_record=record())
    whole = msgspec.structs.replace(half, container_ids=(("main", "id-9", True), ("side", "id-8", True)))
    down = msgspec.structs.replace(half, container_ids=(("main", "id-9", True), ("side", "id-8", False)))
    assert step(half).kind == "attempt"
    assert step(whole).kind == "free"
    assert step(down).kind == "attempt"


def test_the_record_of_an_earlier_life_never_counts() -> None:
    # Given a record of the same sandbox's earlier claim, with IDs that already differ
    old = record(id="box-1:4", containers={"main": "id-0"})
    # Then the restart begins anew
    assert orjson.loads(step(pod(restart_record=old)).record)["containers"] == {
        "main": "id-1",
        "side": "id-2",
    }


def test_unknown_history_has_its_own_life_per_epoch() -> None:
    done = record(id="unclaimed:e1", containers={"main": "id-0", "side": "id-0"})
    assert step(pod(restart_record=done), entry=DIRTY, epoch="e1").kind == "free"
    assert step(pod(restart_record=done), entry=DIRTY, epoch="e2").kind == "attempt"


def test_the_next_attempt_waits_for_the_interval_and_says_when_to_look_again() -> None:
    tried = record(last_retry="2026-05-04T12:00:00Z", retries=1)
    found = step(pod(restart_record=tried), after=10)
    assert (found.kind, found.wait) == ("wait", 20.0)
    assert step(pod(restart_record=tried), after=30).kind == "attempt"


def test_the_last_attempt_gets_its_time_too() -> None:
    config = replace(CONFIG, max_retries=1)
    tried = record(last_retry="2026-05-04T12:00:00Z", retries=1)
    assert step(pod(restart_record=tried), config=config, after=29).kind == "wait"
    given_up = step(pod(restart_record=tried), config=config, after=30)
    assert (given_up.kind, given_up.failed) == ("delete", True)


def test_an_open_attempt_is_waited_for_and_then_never_reused() -> None:
    running = record(last_retry="2026-05-04T12:00:00Z", retries=1, open="other")
    assert step(pod(restart_record=running), after=5).kind == "wait"
    assert step(pod(restart_record=running), after=90).kind == "delete"


def test_whoever_runs_the_pods_own_key_deletes_a_pod_whose_attempt_another_left_open() -> None:
    running = record(last_retry="2026-05-04T12:00:00Z", retries=1, open="other")
    found = step(pod(restart_record=running), after=1, runner="mine")
    assert found.kind == "delete"
    assert step(pod(restart_record=found.record), after=1).kind == "delete"  # the pool's pass sees it, too
    assert step(pod(restart_record=running), after=1, runner="other").kind == "wait"


def test_an_open_attempt_of_an_earlier_life_counts_and_so_does_a_finished_looking_one() -> None:
    gone = record(id="box-0:1", containers={"main": "id-0"}, last_retry="2026-05-04T11:00:00Z", open="dead")
    assert step(pod(restart_record=gone)).kind == "delete"


def test_opening_and_closing_an_attempt() -> None:
    first = opened(RestartRecord(id="x", containers={"main": "id-1"}), "token", NOW)
    assert (first.open, first.retries) == ("token", 1)
    done = closed(first, NOW + timedelta(seconds=3))
    assert parse_record(done.text()) == done
    assert done.open == ""


@pytest.mark.parametrize("text", ["", "{", "[]", '{"containers":[]}', '{"id":7,"containers":{}}'])
def test_an_unreadable_record_begins_anew(text: str) -> None:
    assert parse_record(text) is None
    assert step(pod(restart_record=text)).kind == "attempt"


@pytest.mark.parametrize(
    ("entry", "pool_policy", "forced", "expected"),
    [
        (replace(REL, policy="Restart"), "Noop", False, "Restart"),
        (replace(REL, policy="Noop"), "Restart", False, "Noop"),
        (replace(REL, policy="Noop"), "Delete", False, "Delete"),
        (replace(REL, policy="Delete"), "Noop", False, "Delete"),
        (replace(REL, policy="Noop"), "Noop", True, "Delete"),
        (DIRTY, "Noop", False, "Delete"),
        (DIRTY, "Restart", False, "Restart"),
        (replace(REL, policy="?"), "?", False, "Delete"),
    ],
)
def test_the_policy_is_pinned_and_only_delete_overrides_it(
    entry: LedgerEntry, pool_policy: str, forced: bool, expected: str
) -> None:
    assert policy_of(entry, pool_policy, forced=forced) == expected
