"""Statuses and condition lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from osb.api import status

NOW = datetime(2026, 1, 31, 8, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)


def ready(now: datetime, *, prior: list[dict[str, Any]] | None = None, **fields: Any) -> list[dict[str, Any]]:
    given = {"reason": "PodsReady", "message": "Sandbox is running", **fields}
    return status.with_condition(prior or [], "Ready", now=now, **given)


def test_a_new_condition_starts_its_clock() -> None:
    assert ready(NOW) == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "PodsReady",
            "message": "Sandbox is running",
            "lastTransitionTime": "2026-01-31T08:00:00Z",
        }
    ]


def test_another_reason_or_message_does_not_move_the_transition_time() -> None:
    [changed] = ready(LATER, prior=ready(NOW), reason="Other", message="other")
    assert (changed["reason"], changed["lastTransitionTime"]) == ("Other", "2026-01-31T08:00:00Z")


def test_a_flip_of_the_status_moves_it() -> None:
    [flipped] = ready(LATER, prior=ready(NOW), status="False")
    assert flipped["lastTransitionTime"] == "2026-01-31T08:05:00Z"


def test_a_condition_that_was_removed_counts_as_false() -> None:
    gone = status.without_conditions(ready(NOW), "Ready", "Paused")
    assert gone == []
    assert ready(LATER, prior=gone)[0]["lastTransitionTime"] == "2026-01-31T08:05:00Z"


def test_a_stored_condition_without_a_time_gets_one() -> None:
    [kept] = ready(NOW, prior=[{"type": "Ready", "status": "True"}])
    assert kept["lastTransitionTime"] == "2026-01-31T08:00:00Z"


def test_others_keep_their_place_and_the_input_stays() -> None:
    before = [{"type": "A", "status": "True"}, *ready(NOW), {"type": "Z", "status": "True"}]
    after = status.with_condition(before, "Ready", reason="X", message="", now=LATER, generation=7)
    assert [item["type"] for item in after] == ["A", "Ready", "Z"]
    assert after[1]["observedGeneration"] == 7 and "observedGeneration" not in before[1]


def test_a_pool_status_writes_updated_zero_and_all_others() -> None:
    body = status.PoolStatus(observed_generation=1, revision="r").as_dict()
    assert {
        "total",
        "allocated",
        "available",
        "updated",
        "pending",
        "terminating",
        "waiting",
        "unmet",
        "target",
    } <= {name for name, value in body.items() if value == 0}
