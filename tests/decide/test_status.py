"""What a sandbox's status says, from its pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from osb.api import names, times
from osb.decide.endpoints import endpoints
from osb.decide.lost import replaced_losses
from osb.decide.status import Change, box_status, without_types
from osb.facts.boxview import TaskSummary, Waiting
from osb.facts.pod import PodFact
from tests.doubles.boxes import NOW, UID, after, at, box, condition, pod, starting, status, told, view

COUNTERS = (
    "replicas", "allocated", "ready", "taskRunning", "taskSucceed", "taskFailed", "taskPending", "taskUnknown"
)  # fmt: skip


TASK = {"spec": {"process": {"command": ["true"]}}}


def text_of(written: dict[str, Any], kind: str) -> str:
    return next(str(c["message"]) for c in written["conditions"] if c["type"] == kind)


def waiting_with(pod_: PodFact, reason: str, *, seconds: float, container: str = "main") -> PodFact:
    values = {field: getattr(pod_, field) for field in pod_.__struct_fields__}
    changes = {"waiting": ((container, reason),), "scheduled": times.to_ms(at(-seconds)), "ready": False}
    return PodFact(**(values | changes))


def test_every_counter_is_written_even_when_it_is_zero() -> None:
    written = box_status(view(box(poolRef="warm")))
    assert [written[name] for name in COUNTERS] == [0] * 8
    assert written["conditions"] != []


def test_a_status_computed_again_from_itself_is_the_same() -> None:
    spec = box(replicas=3)
    first = box_status(view(spec, pod(), starting("box-1")))
    again = box_status(view(after(spec, first), pod(), starting("box-1"), now=at(30)))
    assert again == first


@pytest.mark.parametrize(
    ("replicas", "pods", "phase", "conditions"),
    [
        pytest.param(1, (), "Pending", {"Progressing": "Creating"}, id="no pod yet"),
        pytest.param(1, (starting(),), "Pending", {"Progressing": "Creating"}, id="starting"),
        pytest.param(1, (pod(),), "Succeed", {"Ready": "PodsReady"}, id="ready"),
        pytest.param(3, (pod(),), "Succeed", {"Progressing": "PartiallyReady"}, id="one of three"),
        pytest.param(0, (), "Succeed", {"Ready": "PodsReady"}, id="nothing wanted"),
        pytest.param(1, (pod(deleting=1),), "Pending", {"Progressing": "Creating"}, id="ready but terminating"),
    ],
)
def test_phase_and_conditions_follow_the_pods(
    replicas: int, pods: tuple[PodFact, ...], phase: str, conditions: dict[str, str]
) -> None:
    written = box_status(view(box(replicas=replicas), *pods))
    assert (written["phase"], told(written["conditions"])) == (phase, conditions)


def test_partly_ready_says_how_many() -> None:
    written = box_status(view(box(replicas=3), pod()))
    assert written["conditions"][0]["message"] == "1/3 ready"


def test_failed_recovers_as_soon_as_a_pod_is_ready_and_none_fails() -> None:
    spec = box(status=status("Failed", condition("PodFailed", "ErrImagePull")))
    written = box_status(view(spec, pod()))
    assert (written["phase"], told(written["conditions"])) == ("Succeed", {"Ready": "PodsReady"})


def test_failed_stays_while_no_pod_is_ready() -> None:
    spec = box(status=status("Failed", condition("PodFailed", "ErrImagePull")))
    written = box_status(view(spec, starting()))
    assert (written["phase"], told(written["conditions"])) == ("Failed", {"PodFailed": "ErrImagePull"})


def test_one_failing_pod_of_many_is_shown_without_failing_the_rest() -> None:
    bad = waiting_with(starting("box-1"), "CrashLoopBackOff", seconds=5)
    written = box_status(view(box(replicas=2), pod(), bad))
    assert written["phase"] == "Succeed"
    assert told(written["conditions"]) == {"Progressing": "PartiallyReady", "PodFailed": "CrashLoopBackOff"}


@pytest.mark.parametrize(
    ("reason", "seconds", "phase"),
    [
        ("ErrImagePull", 10, "Pending"),
        ("ErrImagePull", 31, "Failed"),
        ("CreateContainerConfigError", 10, "Pending"),
        ("CreateContainerError", 31, "Failed"),
        ("CrashLoopBackOff", 1, "Failed"),
        ("InvalidImageName", 1, "Failed"),
        ("ContainerCreating", 500, "Pending"),
    ],
)
def test_pull_and_config_errors_have_a_grace_others_have_none(reason: str, seconds: float, phase: str) -> None:
    written = box_status(view(box(), waiting_with(starting(), reason, seconds=seconds)))
    assert written["phase"] == phase


def test_a_resume_tolerates_pull_errors_for_two_minutes() -> None:
    spec = box(pause=False, status=status("Resuming", condition("Progressing", since=-100)))
    early = box_status(view(spec, waiting_with(starting(), "ImagePullBackOff", seconds=100)))
    late = box_status(view(spec, waiting_with(starting(), "ImagePullBackOff", seconds=121)))
    assert early["phase"] == "Resuming"
    assert (late["phase"], told(late["conditions"])) == (
        "Failed",
        {"ResumeFailed": "ImagePullBackOff", "PodFailed": "ImagePullBackOff"},
    )


def test_failing_init_containers_and_ended_pods_count_and_terminating_ones_do_not() -> None:
    init = waiting_with(starting("box-0"), "CrashLoopBackOff", seconds=1, container="setup")
    ended = pod("box-1", phase="Failed", ready=False)
    leaving = waiting_with(starting("box-2", deleting=1), "CrashLoopBackOff", seconds=1)
    written = box_status(view(box(replicas=3), init, ended, leaving))
    message = next(c["message"] for c in written["conditions"] if c["type"] == "PodFailed")
    assert message.startswith("2/2 observed pods failed; primary reason=CrashLoopBackOff; sample pod=box-0")


def test_the_most_frequent_reason_is_primary_and_the_first_to_reach_it_wins() -> None:
    reasons = ("ErrImagePull", "CrashLoopBackOff", "ErrImagePull")
    pods = [waiting_with(starting(f"box-{i}"), reason, seconds=60) for i, reason in enumerate(reasons)]
    written = box_status(view(box(replicas=4), *pods, starting("box-3")))
    message = next(c["message"] for c in written["conditions"] if c["type"] == "PodFailed")
    assert message == "3/4 observed pods failed; primary reason=ErrImagePull; sample pod=box-0"


def test_an_unschedulable_pod_is_named_and_not_failed() -> None:
    written = box_status(view(box(), starting(unschedulable=True)))
    assert written["phase"] == "Pending"
    assert "no node can take box-0" in written["conditions"][0]["message"]


def test_transition_time_moves_on_a_flip_and_not_with_the_message() -> None:
    spec = box(replicas=3, status=status("Succeed", condition("Progressing", "PartiallyReady", "1/3 ready", since=-99)))
    written = box_status(view(spec, pod(), pod("box-1")))
    assert written["conditions"][0]["message"] == "2/3 ready"
    assert written["conditions"][0]["lastTransitionTime"] == times.format(at(-99))
    done = box_status(view(spec, pod(), pod("box-1"), pod("box-2")))
    assert done["conditions"][0]["lastTransitionTime"] == times.format(NOW)


def test_a_new_operation_starts_the_clock_again() -> None:
    spec = box(status=status("Pending", condition("Progressing", "Creating", since=-900)))
    written = box_status(view(spec, pod()), Change(phase="Pausing", renew=True))
    assert written["conditions"][0]["lastTransitionTime"] == times.format(NOW)


def test_empty_conditions_are_written_as_an_empty_list() -> None:
    spec = box(status=status("Failed"), task_template=None)
    written = box_status(view(spec), Change(phase="Failed"))
    assert written["conditions"] == []


# -- pooled --------------------------------------------------------------------------------------------------


def waits(**kw: Any) -> Waiting:
    return Waiting(**{"code": names.WAIT_CAPACITY, "position": 37, "line": 178, **kw})


def test_a_waiting_sandbox_says_why_and_roughly_where_it_stands() -> None:
    written = box_status(view(box(poolRef="warm", replicas=3), waiting=waits()))
    assert written["phase"] == "Pending"
    assert written["conditions"][0]["reason"] == "WaitingForPool"
    assert written["conditions"][0]["message"] == ("PoolCapacityExhausted; missing 3 of 3; position about 37 of 180")


@pytest.mark.parametrize(
    ("position", "line", "told"), [(3, 3, "3 of 3"), (3, 8, "5 of 8"), (1008, 1010, "1000 of 1000"), (4, 0, "4 of 4")]
)
def test_no_place_in_the_line_is_behind_its_end(position: int, line: int, told: str) -> None:
    written = box_status(view(box(poolRef="warm"), waiting=waits(position=position, line=line)))
    assert written["conditions"][0]["message"].endswith(f"; position about {told}")


def test_a_moved_position_alone_does_not_rewrite_the_message_until_it_is_refreshed() -> None:
    spec = box(poolRef="warm")
    first = box_status(view(spec, waiting=waits(position=180, line=180)))
    moved = box_status(view(after(spec, first), waiting=waits(position=7)))
    told_again = box_status(view(after(spec, first), waiting=waits(position=7, refresh=True)))
    assert moved == first
    assert "position about 10 of 180" in told_again["conditions"][0]["message"]


def test_pool_allocation_pending_only_while_the_pool_cannot_grow() -> None:
    spec = box(poolRef="warm")
    growing = box_status(view(spec, waiting=waits(code=names.WAIT_NO_READY_POD)))
    full = box_status(view(spec, waiting=waits(cannot_grow=True)))
    grown = box_status(view(after(spec, full), waiting=waits(cannot_grow=False)))
    assert "PoolAllocationPending" not in told(growing["conditions"])
    assert told(full["conditions"])["PoolAllocationPending"] == "PoolCapacityExhausted"
    assert "PoolAllocationPending" not in told(grown["conditions"])


def test_pool_allocation_pending_goes_with_the_end_of_the_wait() -> None:
    given = status("Pending", condition("Progressing", "WaitingForPool", since=-61), condition("PoolAllocationPending"))
    spec = box(poolRef="warm", allocationTimeoutSeconds=60, status=given)
    gave_up = box_status(view(spec))
    assert told(gave_up["conditions"]) == {"PodFailed": "AllocationTimeout"}
    late = box_status(view(after(spec, gave_up), waiting=waits(cannot_grow=True)))
    assert told(late["conditions"]) == {"PodFailed": "AllocationTimeout"}


@pytest.mark.parametrize("given", [{"replicas": 9999}, {"record": "{"}], ids=["cannot be served", "unreadable"])
def test_who_stands_in_no_line_has_no_condition_of_waiting(given: dict[str, Any]) -> None:
    spec = box(poolRef="warm", status=status("Pending", condition("PoolAllocationPending")), **given)
    assert "PoolAllocationPending" not in told(box_status(view(spec))["conditions"])


def test_pool_allocation_pending_goes_with_the_grant() -> None:
    spec = box(poolRef="warm", status=status("Pending", condition("PoolAllocationPending")))
    written = box_status(view(spec, slots={0: pod("warm-1")}))
    assert told(written["conditions"]) == {"Ready": "PodsReady"}


def test_a_released_slot_is_neither_missing_nor_in_the_way_of_ready() -> None:
    spec = box(poolRef="warm", replicas=2, record={"pods": ["w1", "w2"], "poolRef": "warm"}, release={"pods": ["w1"]})
    written = box_status(view(spec, slots={1: pod("w2")}))
    assert (written["phase"], told(written["conditions"])) == ("Succeed", {"Ready": "PodsReady"})


def test_all_pods_given_back_after_their_tasks_is_a_success() -> None:
    spec = box(poolRef="warm", record={"pods": ["w1"], "poolRef": "warm"}, release={"pods": ["w1"]})
    written = box_status(view(spec))
    assert (written["phase"], written["replicas"]) == ("Succeed", 0)
    assert "Progressing" not in told(written["conditions"])


def test_the_wait_for_pods_ends_with_its_timeout_until_the_spec_changes() -> None:
    given = status("Pending", condition("Progressing", "WaitingForPool", since=-61))
    spec = box(poolRef="warm", allocationTimeoutSeconds=60, status=given)
    gave_up = box_status(view(spec, waiting=waits()))
    assert (gave_up["phase"], told(gave_up["conditions"])) == ("Failed", {"PodFailed": "AllocationTimeout"})
    still = box_status(view(after(spec, gave_up), waiting=waits(), now=at(500)))
    assert still["phase"] == "Failed"
    edited = box_status(view(replace(after(spec, gave_up), generation=3), waiting=waits(), now=at(500)))
    assert (edited["phase"], told(edited["conditions"])) == ("Pending", {"Progressing": "WaitingForPool"})
    assert edited["conditions"][0]["lastTransitionTime"] == times.format(at(500))


def test_a_deleted_pool_fails_its_sandbox_and_a_new_one_of_the_name_revives_it() -> None:
    spec = box(poolRef="warm", record={"pods": ["w1"], "poolRef": "warm", "poolUID": "u1"}, status=status("Succeed"))
    lost = box_status(view(spec, pool_deleted=True))
    assert (lost["phase"], told(lost["conditions"])["PodFailed"]) == ("Failed", "PoolDeleted")
    back = box_status(view(after(spec, lost), waiting=waits(code=names.WAIT_NO_READY_POD)))
    assert back["phase"] == "Pending"
    served = box_status(view(after(spec, back), slots={0: pod("w2")}))
    assert served["phase"] == "Succeed"


def test_an_edited_pool_ref_is_reported_and_restoring_it_clears_the_report() -> None:
    record = {"pods": ["w1"], "poolRef": "warm"}
    edited = box_status(view(box(poolRef="cold", record=record), slots={0: pod("w1")}))
    assert told(edited["conditions"])["PoolRefUpdateRejected"] == "PoolRefUpdateRejected"
    restored = box_status(view(after(box(poolRef="warm", record=record), edited), slots={0: pod("w1")}))
    assert "PoolRefUpdateRejected" not in told(restored["conditions"])


def test_a_lost_pod_is_told_with_the_time_of_the_latest_loss() -> None:
    record = {"pods": ["w1", "w2"], "poolRef": "warm", "open": [1], "losses": 1}
    spec = box(poolRef="warm", replicas=2, record=record)
    first = box_status(view(spec, slots={0: pod("w1")}))
    assert told(first["conditions"])["PodLost"] == "WaitingForReplacement"
    text = next(c["message"] for c in first["conditions"] if c["type"] == "PodLost")
    assert "slot 1 (pod w2): its state is gone" in text
    refilled = box(poolRef="warm", replicas=2, record=record | {"pods": ["w1", "w3"], "open": []})
    healed = box_status(view(after(refilled, first), slots={0: pod("w1"), 1: pod("w3")}, now=at(20)))
    assert told(healed["conditions"])["PodLost"] == "PodReplaced"
    since = next(c["lastTransitionTime"] for c in healed["conditions"] if c["type"] == "PodLost")
    assert since == times.format(NOW)
    twice = box(poolRef="warm", replicas=2, record=record | {"open": [0], "losses": 2})
    second = box_status(view(after(twice, healed), slots={1: pod("w3")}, now=at(40)))
    since = next(c["lastTransitionTime"] for c in second["conditions"] if c["type"] == "PodLost")
    assert since == times.format(at(40))


def test_a_pod_that_is_replaced_before_anybody_told_of_its_loss_is_still_named() -> None:
    before = {"pods": ["w1", "w2"], "poolRef": "warm", "open": [1], "losses": 1}
    lost = box(poolRef="warm", replicas=2, record=before)
    refilled = view(box(poolRef="warm", replicas=2, record=before | {"pods": ["w1", "w3"], "open": []}),
                    slots={0: pod("w1"), 1: pod("w3")})  # fmt: skip
    written = box_status(refilled, Change(conditions=replaced_losses(refilled, lost.record)))
    assert text_of(written, "PodLost") == "1 lost so far; slot 1 (pod w2): its state is gone"
    later = box_status(replace(refilled, spec=after(refilled.spec, written), now=at(60)))
    assert text_of(later, "PodLost") == text_of(written, "PodLost")
    assert replaced_losses(replace(refilled, spec=after(refilled.spec, written)), lost.record) == ()


def test_a_sandbox_whose_pods_were_all_given_back_does_not_claim_to_run() -> None:
    record = {"pods": ["w1"], "poolRef": "warm"}
    written = box_status(view(box(poolRef="warm", record=record, release={"pods": ["w1"]})))
    assert written["phase"] == "Succeed" and told(written["conditions"])["Ready"] == "PodsReady"
    assert text_of(written, "Ready") == "1 of 1 slots given back; 0 running"
    nothing = box_status(view(box(poolRef="warm", replicas=0)))
    assert nothing["phase"] == "Succeed" and text_of(nothing, "Ready") == "0 replicas asked for; 0 running"
    running = box_status(view(box(), pod()))
    assert text_of(running, "Ready") == "Sandbox is running"


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"taskTemplate": {}}, "spec.taskTemplate.spec.process"),
        ({"taskTemplate": {"spec": {"process": {"command": []}}}}, "spec.taskTemplate.spec.process.command"),
        ({"taskTemplate": TASK, "shardTaskPatches": [{}, {"spec": 5}]}, "spec.shardTaskPatches[1]"),
    ],
)
def test_a_task_that_cannot_be_sent_is_an_invalid_spec_beside_running_pods(spec: dict[str, Any], where: str) -> None:
    written = box_status(view(box(replicas=2, **spec), pod("box-0"), pod("box-1")))
    assert told(written["conditions"]) == {"Ready": "PodsReady", "SpecInvalid": "InvalidTaskTemplate"}
    assert text_of(written, "SpecInvalid").startswith(where)
    healed = box_status(view(after(box(replicas=2, taskTemplate=TASK), written), pod("box-0"), pod("box-1")))
    assert "SpecInvalid" not in told(healed["conditions"])


def test_a_slot_given_up_is_not_missing_any_more() -> None:
    record = {"pods": ["w1", "w2"], "poolRef": "warm", "failed": [1], "losses": 1}
    spec = box(poolRef="warm", replicas=2, lostPodPolicy="Fail", record=record)
    written = box_status(view(spec, slots={0: pod("w1")}))
    assert told(written["conditions"]) == {"Ready": "PodsReady", "PodLost": "SlotFailed"}
    nothing_left = record | {"failed": [0, 1], "losses": 2}
    spec = box(poolRef="warm", replicas=2, lostPodPolicy="Fail", record=nothing_left)
    assert box_status(view(spec))["phase"] == "Failed"


def test_an_unreadable_record_quarantines_its_sandbox() -> None:
    spec = box(poolRef="warm", annotations={names.ALLOC_STATUS: "{garbage"})
    assert told(box_status(view(spec))["conditions"])["Quarantined"] == "RecordUnreadable"
    forged = box_status(view(box(poolRef="warm"), quarantine=("RecordForged", "w9 is not its pod")))
    assert told(forged["conditions"])["Quarantined"] == "RecordForged"


def test_a_sandbox_with_neither_pool_nor_template_fails_and_says_so() -> None:
    spec = box(template=...)
    written = box_status(view(spec))
    assert (written["phase"], told(written["conditions"])) == ("Failed", {"SpecInvalid": "NoPodSource"})
    fixed = box_status(view(after(box(), written)))
    assert (fixed["phase"], told(fixed["conditions"])) == ("Pending", {"Progressing": "Creating"})


def test_a_running_sandbox_whose_template_was_removed_keeps_its_phase() -> None:
    written = box_status(view(box(template=...), pod()))
    assert (written["phase"], told(written["conditions"])) == (
        "Succeed",
        {"Ready": "PodsReady", "SpecInvalid": "NoPodSource"},
    )


def test_a_pool_with_a_template_as_hint_is_served_like_any_other() -> None:
    spec = box(poolRef="warm", template={"spec": {"containers": []}})
    written = box_status(view(spec, slots={0: pod("w1")}))
    assert written["phase"] == "Succeed"


def test_one_slot_given_back_and_one_lost_are_told_apart() -> None:
    record = {"pods": [], "failed": [1], "losses": 1}
    spec = box(replicas=2, lostPodPolicy="Fail", record=record, taskResourcePolicyWhenCompleted="Release")
    summary = TaskSummary(done=frozenset({0, 1}), failed="failed: task 1 (PodLost)")
    written = box_status(view(spec, tasks=summary))
    assert (written["phase"], told(written["conditions"])) == (
        "Succeed",
        {"Ready": "PodsReady", "PodLost": "SlotFailed"},
    )
    assert text_of(written, "Ready") == "1 of 2 slots given back, 1 lost; 0 running; failed: task 1 (PodLost)"
    assert text_of(written, "PodLost") == "1 lost so far; slot 1 (pod box-1): its state is gone"


def test_the_cause_of_a_loss_is_kept_and_cut_slots_leave_the_text() -> None:
    record = {"pods": [], "failed": [0, 1], "losses": 2}
    spec = box(replicas=2, lostPodPolicy="Fail", record=record)
    lost = (("PodLost", "SlotFailed", "2 lost so far; slot 1 (pod box-1 was deleted): its state is gone"),)
    first = after(spec, box_status(view(spec), Change(conditions=lost)))
    later = box_status(view(first))
    assert text_of(later, "PodLost").endswith("slot 1 (pod box-1 was deleted): its state is gone")
    fewer = box(replicas=1, lostPodPolicy="Fail", record=record | {"failed": [0]})
    cut = box_status(view(replace(fewer, status=later)))
    assert text_of(cut, "PodLost") == "2 lost so far; slot 0 (pod box-0): its state is gone"


def test_ready_says_how_tasks_failed_and_whose_executor_is_no_help_while_that_lasts() -> None:
    said = TaskSummary(failed="failed: task 0 (exit code 7, Failed)", trouble="task 1 has trouble")
    written = box_status(view(box(), pod(), tasks=said))
    assert text_of(written, "Ready") == "Sandbox is running; failed: task 0 (exit code 7, Failed); task 1 has trouble"
    partly = box_status(view(box(replicas=2), pod(), tasks=said))
    assert text_of(partly, "Progressing").startswith("1/2 ready; failed: task 0")
    well = box_status(view(after(box(), written), pod(), tasks=TaskSummary()))
    assert text_of(well, "Ready") == "Sandbox is running"


def test_an_unknown_policy_is_an_invalid_spec_and_nothing_else() -> None:
    written = box_status(view(box(taskResourcePolicyWhenCompleted="Keep"), pod()))
    assert (written["phase"], told(written["conditions"])["SpecInvalid"]) == ("Succeed", "UnknownTaskResourcePolicy")


def test_absent_replicas_mean_one() -> None:
    written = box_status(view(box(), pod()))
    assert told(written["conditions"]) == {"Ready": "PodsReady"}


# -- tasks, acknowledgement, older servers -------------------------------------------------------------------


def test_a_paused_sandbox_shows_only_final_task_results() -> None:
    stored = status("Paused", taskRunning=1, taskSucceed=2, taskPending=1, taskUnknown=1, taskFailed=1)
    written = box_status(view(box(pause=True, status=stored)), Change(phase="Paused"))
    assert [written[f"task{n}"] for n in ("Running", "Succeed", "Failed", "Pending", "Unknown")] == [0, 2, 1, 0, 0]


def test_task_counters_come_from_the_task_side() -> None:
    written = box_status(view(box(), pod(), tasks=TaskSummary(counts=(1, 2, 3, 4, 5))))
    assert [written[f"task{n}"] for n in ("Running", "Succeed", "Failed", "Unknown", "Pending")] == [1, 2, 3, 4, 5]


def test_the_acknowledged_generation_is_the_one_decided_on() -> None:
    spec = box(generation=5, status=status("Succeed", ack=2))
    assert box_status(view(spec, pod()))["pauseObservedGeneration"] == 2
    assert box_status(view(spec, pod()), Change(ack=True))["pauseObservedGeneration"] == 5


def test_a_server_with_older_schemas_gets_the_text_of_added_conditions_in_progressing() -> None:
    written = box_status(view(box(poolRef="warm"), waiting=waits(cannot_grow=True)))
    plain = without_types(written, frozenset(names.BOX_CONDITIONS_REFERENCE))
    assert set(told(plain["conditions"])) == {"Progressing"}
    assert "PoolAllocationPending: " in plain["conditions"][0]["message"]


# -- endpoints -----------------------------------------------------------------------------------------------


def addressed(name: str, last: int, **changes: Any) -> PodFact:
    return pod(name, ip=f"10.0.0.{last}", **changes)


def test_an_address_stands_at_its_slot_whatever_else_is_missing() -> None:
    pods = (addressed("box-0", 1), addressed("box-2", 3))
    assert endpoints(view(box(replicas=3), *pods)) == ["10.0.0.1", "", "10.0.0.3"]


@pytest.mark.parametrize(
    "bad",
    [addressed("box-1", 2, deleting=1), addressed("box-1", 2, phase="Failed", ready=False), starting("box-1")],
    ids=["terminating", "ended", "not addressed"],
)
def test_unusable_pods_are_not_advertised(bad: PodFact) -> None:
    pods = (addressed("box-0", 1), bad, addressed("box-2", 3))
    assert endpoints(view(box(replicas=3), *pods)) == ["10.0.0.1", "", "10.0.0.3"]


def test_a_pod_beyond_replicas_is_not_advertised() -> None:
    assert endpoints(view(box(replicas=1), addressed("box-0", 1), addressed("box-1", 2))) == ["10.0.0.1"]


def test_a_pod_of_somebody_else_is_not_advertised() -> None:
    assert endpoints(view(box(), addressed("box-0", 1, owner_uid="other"))) is None


def test_a_released_pod_leaves_a_hole_and_a_lost_one_too() -> None:
    record = {"pods": ["w1", "w2", "w3"], "poolRef": "warm"}
    spec = box(poolRef="warm", replicas=3, record=record, release={"pods": ["w1"]})
    assert endpoints(view(spec, slots={1: addressed("w2", 2)})) == ["", "10.0.0.2", ""]


def test_endpoints_are_not_created_empty_and_are_emptied_when_pods_are_gone() -> None:
    assert endpoints(view(box())) is None
    assert endpoints(view(box(endpoints=["10.0.0.1"]))) == []


def test_endpoints_are_written_only_when_they_differ() -> None:
    assert endpoints(view(box(endpoints=["10.0.0.1"]), addressed("box-0", 1))) is None


def test_nothing_is_advertised_from_the_moment_a_pause_begins() -> None:
    spec = box(endpoints=["10.0.0.1"], status=status("Succeed"))
    assert endpoints(view(spec, addressed("box-0", 1)), phase="Pausing") == []


def test_the_owner_of_a_pod_is_the_uid_and_not_the_name() -> None:
    assert pod().owner_uid == UID
    written = box_status(view(box(), pod(owner_uid="earlier-incarnation")))
    assert written["replicas"] == 0


def test_a_pool_deleted_without_its_pods_is_told_with_their_names() -> None:
    spec = box(poolRef="warm", record={"pods": ["w1"], "poolRef": "warm", "poolUID": "u1"}, status=status("Succeed"))
    lost = box_status(view(spec, pool_deleted=True, left_behind=("w1",)))
    (told_,) = [c["message"] for c in lost["conditions"] if c["type"] == "PodFailed"]
    assert lost["phase"] == "Failed" and "[w1]" in told_ and "its pods with it" not in told_


def test_a_sandbox_whose_record_cannot_be_read_waits_for_its_record_and_not_for_a_pod() -> None:
    spec = box(poolRef="warm", annotations={names.ALLOC_STATUS: "{broken"})
    written = box_status(view(spec))
    assert told(written["conditions"]) == {"Progressing": "RecordUnreadable", "Quarantined": "RecordUnreadable"}
    # When it is put right, the old reason is forgotten
    after_ = replace(box(poolRef="warm"), status=written, phase="Pending")
    (now,) = box_status(view(after_))["conditions"]
    assert now["message"].startswith("NoReadyPod")
