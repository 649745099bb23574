"""Cutting pods down: what is kept, what an odd pod becomes, and how small it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from osb.api import names
from osb.facts.pod import PodFact, decode, encode, pod_fact

T0, T1, T2 = "2026-01-31T08:00:00Z", "2026-01-31T08:00:05Z", "2026-01-31T08:00:09Z"
MS0 = 1769846400000


def raw(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "warm-4f2kq",
            "namespace": "boxes",
            "uid": "pod-uid",
            "resourceVersion": "42",
            "creationTimestamp": T0,
            "labels": {names.LABEL_POOL_NAME: "warm", names.LABEL_POOL_REVISION: "r1"},
            "annotations": {names.RESTART_RECORD: "{}", names.ADOPTED: "e1"},
            "finalizers": ["x/y"],
            "ownerReferences": [
                {"kind": "Other", "name": "o", "uid": "other-uid"},
                {"kind": "Pool", "name": "warm", "uid": "pool-uid", "controller": True},
            ],
        },
        "spec": {
            "nodeName": "n1",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "img:1"}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": T0},
                {"type": "Ready", "status": "True", "lastTransitionTime": T1},
                {"type": "Custom", "status": "False", "lastTransitionTime": T2},
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "containerID": "c://1",
                    "restartCount": 2,
                    "state": {"running": {"startedAt": T0}},
                },
                {"name": "side", "restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ],
            "initContainerStatuses": [{"name": "init", "state": {"waiting": {"reason": "ErrImagePull"}}}],
            **status,
        },
    }


def test_a_running_pool_pod() -> None:
    assert pod_fact(raw()) == PodFact(
        namespace="boxes",
        name="warm-4f2kq",
        uid="pod-uid",
        version="42",
        owner_kind="Pool",
        owner_name="warm",
        owner_uid="pool-uid",
        phase="Running",
        ready=True,
        ready_since=MS0 + 5000,
        created=MS0,
        scheduled=MS0,
        node="n1",
        ip="10.0.0.1",
        revision="r1",
        pool_label="warm",
        restarts=5,
        waiting=(("init", "ErrImagePull"), ("side", "CrashLoopBackOff")),
        container_ids=(("main", "c://1", True), ("side", "", False)),
        restart_policy="Never",
        restart_record="{}",
        adopted="e1",
        finalizers=("x/y",),
        last_transition=MS0 + 9000,
        main_image="img:1",
    )


def test_only_the_controller_owner_counts() -> None:
    pod = raw()
    pod["metadata"]["ownerReferences"].pop()
    assert pod_fact(pod).owner_uid == pod_fact(pod).owner_kind == ""


@pytest.mark.parametrize(("phase", "ready"), [("Running", True), ("Pending", False), ("Unknown", False)])
def test_a_stale_ready_condition_outside_running_does_not_count(phase: str, ready: bool) -> None:
    assert pod_fact(raw(phase=phase)).ready is ready


def test_a_pod_just_created_is_all_empty() -> None:
    fact = pod_fact({"metadata": {"name": "p", "namespace": "n"}})
    assert fact == PodFact("n", "p", "", "")
    assert fact.live and not fact.terminal and not fact.offerable


def test_a_pod_that_no_node_can_take() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "lastTransitionTime": T1,
    }
    fact = pod_fact(raw(phase="Pending", conditions=[condition]))
    assert fact.unschedulable and fact.scheduled == 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, ""), ("true", "true"), ("", "true"), ("yes", "yes"), ("false", ""), ("False", ""), ("0", "")],
)
def test_the_evict_label_counts_unless_it_plainly_says_no(value: str | None, expected: str) -> None:
    pod = raw()
    if value is not None:
        pod["metadata"]["labels"][names.LABEL_EVICT] = value
    assert pod_fact(pod).evict == expected
    assert pod_fact(pod).offerable is (expected == "")


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_terminal_pods_are_not_live(phase: str) -> None:
    assert pod_fact(raw(phase=phase)).terminal and not pod_fact(raw(phase=phase)).live


def test_a_terminating_pod_is_neither_live_nor_offerable() -> None:
    pod = raw()
    pod["metadata"]["deletionTimestamp"] = T2
    fact = pod_fact(pod)
    assert fact.deleting == MS0 + 9000 and fact.ready and not fact.live and not fact.offerable


def test_a_suspect_pod_is_live_but_not_offerable() -> None:
    pod = raw()
    pod["metadata"]["labels"][names.LABEL_SUSPECT] = "box-uid"
    assert pod_fact(pod).live and not pod_fact(pod).offerable


def test_nulls_of_other_serialisers_are_like_absent_parts() -> None:
    pod = raw(conditions=None, containerStatuses=None, initContainerStatuses=None, podIP=None)
    pod["metadata"].update(labels=None, annotations=None, ownerReferences=None, finalizers=None)
    assert pod_fact(pod).container_ids == ()


def test_encoding_round_trips_and_stays_small() -> None:
    fact = pod_fact(raw())
    assert decode(encode(fact)) == fact
    assert len(encode(fact)) < 512


def test_an_entry_of_an_older_release_with_fewer_fields_is_readable() -> None:
    older = msgspec.msgpack.encode(["n", "p", "u", "9", "Pool", "warm", "pool-uid"])
    assert decode(older) == PodFact("n", "p", "u", "9", "Pool", "warm", "pool-uid")
