"""Any JSON anywhere in a spec or status: nothing raises, and what cannot be used is named by its path.

One node of a sound object is replaced by another JSON value; then everything runs that decides on such an object.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osb.api import batchsandbox, claims, names
from osb.api import pool as pools
from osb.api.batchsandbox import BoxSpec
from osb.api.pool import PoolSpec
from osb.api.revision import adopted, matches
from osb.decide import allocate, assign, assign_match, batch, podbuild, route, snapshot, taskgen, validate
from osb.decide import pool as pool_decision
from osb.decide.assign_profiles import PREDICATES, Profile
from osb.facts.boxview import BatchView, Waiting, snapshot_fact
from osb.facts.index import entry
from osb.facts.ledger import LedgerEntry
from osb.facts.pod import PodFact
from osb.facts.poolview import PoolView, ServeView, WaitingBox
from tests.api import samples
from tests.doubles import boxes, snapviews

Obj = dict[str, Any]
Path = tuple[str | int, ...]

CONTAINER: Obj = {
    "name": "main",
    "image": "img:1",
    "restartPolicy": "Always",
    "resources": {"requests": {"cpu": "1", "memory": 1024}, "limits": {"cpu": "2"}},
}
EXPRESSION: Obj = {"key": "zone", "operator": "In", "values": ["a"]}
TEMPLATE: Obj = {
    "metadata": {"labels": {"app": "x"}, "annotations": {"note": "x"}, "finalizers": ["else/keep"]},
    "spec": {
        "containers": [CONTAINER],
        "initContainers": [{**CONTAINER, "name": "first"}],
        "volumes": [{"name": "data"}],
        "nodeSelector": {"zone": "a"},
        "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "1"}},
        "overhead": {"cpu": "10m"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [EXPRESSION], "matchFields": [EXPRESSION]}]
                }
            }
        },
    },
}
POOL = samples.pool(
    annotations={names.RESTART_CONFIG: '{"blacklist":["side"]}'},
    spec={
        "template": TEMPLATE,
        "scaleStrategy": {"maxUnavailable": "50%"},
        "updateStrategy": {"maxUnavailable": 2},
        "recycleStrategy": {"type": "Restart"},
        "placement": "Spread",
        "fairness": {"tenantLabel": "team", "weights": {"blue": 3}},
        "sizing": {
            "demand": {"windowSeconds": 300, "headroomPercent": 20},
            "schedules": [
                {"name": "day", "start": "0 8 * * *", "timeZone": "Europe/Berlin", "durationMinutes": 60, "idle": 1,
                 "total": 2}
            ],
        },
    },
)  # fmt: skip
TASK: Obj = {
    "spec": {
        "process": {
            "command": ["run", "x"],
            "args": ["a"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "workingDir": "/w",
        },
        "timeoutSeconds": 60,
    }
}
PATCH: Obj = {
    "metadata": {"labels": {"shard": "0"}, "finalizers": ["else/too"], "ownerReferences": [{"uid": "u", "name": "o"}]},
    "spec": {"containers": [{"name": "main", "image": "img:2", "env": [{"name": "A", "value": "1"}]}]},
}
TASK_PATCH: Obj = {
    "spec": {"process": {"env": [{"name": "B", "value": "3"}], "args": ["b"]}, "timeoutSeconds": 5},
}
OWN = samples.box(
    spec={
        "replicas": 2,
        "poolRef": None,
        "template": TEMPLATE,
        "shardPatches": [PATCH],
        "expireTime": "2036-01-31T08:00:00Z",
        "taskTemplate": TASK,
        "shardTaskPatches": [TASK_PATCH],
        "taskResourcePolicyWhenCompleted": "Release",
        "pause": False,
        "lostPodPolicy": "Fail",
    },
)
POOLED = samples.box(
    record={"pods": ["warm-a"], "poolRef": "warm", "poolUID": "pool-uid", "uids": ["uid-warm"], "seq": 1},
    spec={
        "replicas": 2,
        "poolRef": "warm",
        "template": TEMPLATE,
        "allocationPolicy": "AllOrNothing",
        "allocationTimeoutSeconds": 60,
        "priority": 5,
    },
)
ANY = samples.box(spec={"replicas": 1, "poolRef": "*", "template": TEMPLATE})
STORED: Obj = {
    "phase": "Succeed",
    "observedGeneration": 3,
    "pauseObservedGeneration": 1,
    "allocated": 1,
    "taskRunning": 1,
    "conditions": [{"type": "Progressing", "status": "True", "reason": "x", "message": "y"}],
}
OTHERS = (None, True, -7, 1e21, 1.5, "", "banana", [], ["x"], [5], [None], [[]], [{}], {}, {"a": 1}, {"name": [1]})


def nodes(value: Any, at: Path = ()) -> Iterator[Path]:
    """The paths of all parts of a document, the whole one first."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from nodes(inner, (*at, key))


def replaced(obj: Obj, path: Path, value: Any) -> Obj:
    made = deepcopy(obj)
    here: Any = made
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    return made


def at(obj: Any, path: Path) -> Any:
    for step in path:
        obj = obj[step]
    return obj


def below(obj: Obj, *roots: str) -> list[Path]:
    return [(root, *path) for root in roots for path in nodes(obj.get(root))]


# -- everything that decides on an object --------------------------------------------------------------------


def run_routes(kind: str, sound: Obj, obj: Obj) -> None:
    entry(kind, obj)
    deleted = {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": samples.CREATED}}
    star = route.Context(star=("boxes/s",))
    for old, new in ((None, obj), (sound, obj), (obj, sound), (obj, deleted), (obj, None)):
        route.route(kind, old, new, star)


def pod(name: str, **kw: Any) -> PodFact:
    return PodFact("boxes", name, f"uid-{name}", "7", "Pool", "warm", "pool-uid", phase="Running", ready=True, **kw)


def run_pool(spec: PoolSpec, box: BoxSpec) -> None:
    revision = adopted(spec.template, annotation=None, status=spec.status, generation=spec.generation)
    matches(spec.template or {}, {})
    pods = {name: pod(name) for name in ("warm-a", "warm-b")}
    held = LedgerEntry(state="held", pod_uid="uid-warm-a", box="boxes/b7", box_uid="box-uid", slot=0)
    waiting = [WaitingBox(box=box, slots=claims.wants(box, "pool-uid"))]
    view = PoolView(
        now=boxes.NOW, pool=spec, revision=revision, pods=pods, boxes={box.uid: box}, waiting=waiting,
        entries={"warm-a": held, "warm-b": LedgerEntry(state="free", pod_uid="uid-warm-b")},
        names=(f"warm-{n}" for n in itertools.count()),
    )  # fmt: skip
    pool_decision.plan(view)
    pool_decision.plan(replace(view, ledger_ready=False))
    allocate.grants(ServeView(now=boxes.NOW, pool=spec, revision=revision, waiting=waiting, available=[pods["warm-b"]]))


def run_assign(box: BoxSpec, pool: PoolSpec) -> None:
    for predicate in PREDICATES:
        profile = Profile(name="x", predicates=(predicate,), label_keys=("team",))
        choice = assign.choose(box, [pool, pools.parse(samples.pool("other"))], profile=profile)
        assign.waiting(choice, box)
    assign_match.node_labels(pool)


def run_box(spec: BoxSpec) -> None:
    slots = {0: pod("warm-a", ip="10.0.0.1")} if claims.pooled(spec) else {}
    waiting = Waiting(code="NoReadyPod", missing=1)
    batch.plan(BatchView(now=boxes.NOW, spec=spec, slots=slots, waiting=waiting))
    for slot in range(2):
        try:
            orjson.dumps(podbuild.build(spec, slot))
        except podbuild.InvalidInput:
            continue
    run_pool(pools.parse(POOL), spec)
    run_assign(spec, pools.parse(POOL))
    for phase in ("Pausing", "Paused", "Resuming", "Failed"):
        batch.plan(BatchView(now=boxes.NOW, spec=boxes.after(spec, {**spec.status, "phase": phase}), slots=slots))


def run_snapshot(obj: Obj, *, box: BoxSpec | None = None, **more: Any) -> None:
    snapshot_fact(obj)
    snapshot.plan(snapviews.view(obj, **({"box": box} if box is not None else {}), **more))


def named(kind: str, obj: Obj) -> list[str]:
    """The paths of everything that is found wrong."""
    found = [problem.field for problem in validate.problems(kind, obj)]
    if kind == "BatchSandbox":
        box = batchsandbox.parse(obj)
        found += [error.field for error in taskgen.problems(
            box.name, box.replicas, template=box.task_template, patches=box.shard_task_patches)]  # fmt: skip
    return found


# -- nothing raises ------------------------------------------------------------------------------------------


def check_pool(sound: Obj, path: Path, value: Any) -> None:
    obj = replaced(sound, path, value)
    spec = pools.parse(obj)
    run_routes("pool", sound, obj)
    run_pool(spec, batchsandbox.parse(POOLED))
    run_assign(batchsandbox.parse(ANY), spec)


def check_box(sound: Obj, path: Path, value: Any) -> None:
    obj = replaced(sound, path, value)
    spec = batchsandbox.parse(obj)
    run_routes("batchsandbox", sound, obj)
    run_box(spec)
    run_snapshot(snapviews.snap(), box=spec)
    named("BatchSandbox", obj)


SNAPS = [
    snapviews.snap(),
    snapviews.snap(**snapviews.recorded()),
    snapviews.committing(),
    snapviews.snap(**snapviews.recorded("Succeed", sourceTemplate=TEMPLATE)),
]


def check_snapshot(sound: Obj, path: Path, value: Any) -> None:
    obj = replaced(sound, path, value)
    run_routes("snapshot", sound, obj)
    deleted = {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": samples.CREATED}}
    for job in (None, snapviews.job(), snapviews.failed_job(), snapviews.done_job()):
        for one in (obj, deleted):
            run_snapshot(one, commit_job=job, job_pods=(snapviews.job_pod(snapviews.report()),))
    named("SandboxSnapshot", obj)


def test_no_json_in_a_pool_makes_anything_raise() -> None:
    sound = {**POOL, "status": STORED}
    for path in below(sound, "spec", "status"):
        for value in OTHERS:
            check_pool(sound, path, value)


@pytest.mark.parametrize("sound", [OWN, POOLED, ANY], ids=["own", "pooled", "any"])
def test_no_json_in_a_sandbox_makes_anything_raise(sound: Obj) -> None:
    sound = {**sound, "status": STORED}
    for path in below(sound, "spec", "status"):
        for value in OTHERS:
            check_box(sound, path, value)


@pytest.mark.parametrize("sound", SNAPS, ids=["new", "recorded", "committing", "final"])
def test_no_json_in_a_snapshot_makes_anything_raise(sound: Obj) -> None:
    for path in below(sound, "spec", "status"):
        for value in OTHERS:
            check_snapshot(sound, path, value)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), value=samples.JSON)
def test_no_json_whatever_makes_anything_raise(data: st.DataObject, value: Any) -> None:
    check_pool(POOL, data.draw(st.sampled_from(below(POOL, "spec"))), value)
    box = data.draw(st.sampled_from([OWN, POOLED, ANY]))
    check_box(box, data.draw(st.sampled_from(below(box, "spec"))), value)
    snap = data.draw(st.sampled_from(SNAPS))
    check_snapshot(snap, data.draw(st.sampled_from(below(snap, "spec", "status"))), value)


# -- and what cannot be used is named ------------------------------------------------------------------------

KEYED = ("labels", "annotations", "nodeSelector", "requests", "limits", "overhead")  # keys are data there
SCALARS = ("args", "command")  # numbers and booleans become text
NUMBERS = ("requests", "limits", "overhead")  # quantities


def written(path: Path) -> str:
    text = ""
    for before, step in zip(("", *path), path, strict=False):
        text += f"[{step}]" if isinstance(step, int) or before in KEYED else f".{step}"
    return text.removeprefix(".")


def usable(sound: Obj, path: Path, value: Any) -> bool:
    """A value of the kind that stood there, or of another that is documented to do."""
    was, parent = at(sound, path), path[-2] if len(path) > 1 else ""
    if value is None and not isinstance(path[-1], int):
        return True
    if isinstance(value, bool) or isinstance(was, bool):
        return isinstance(value, bool) is isinstance(was, bool) or parent in SCALARS or path[-1] == "value"
    if parent in SCALARS or parent in NUMBERS or path[-1] in ("value", "maxUnavailable"):
        return not isinstance(value, dict | list | None)
    if parent == "shardTaskPatches":  # null is an empty patch
        return value is None or isinstance(value, dict | str)
    return isinstance(value, type(was)) or (isinstance(was, float) and isinstance(value, int))


READ_BY_US = {
    "Pool": below(POOL, "spec")[1:],
    "BatchSandbox": [p for p in below(OWN, "spec")[1:] if "shardPatches" not in p[:2] and p[-1] != "poolRef"],
}


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind, paths in READ_BY_US.items() for path in paths], ids=str
)
def test_a_wrong_type_is_named_by_its_exact_path(kind: str, path: Path) -> None:
    sound = POOL if kind == "Pool" else OWN
    assert named(kind, sound) == []
    for value in (None, True, 1.5, 3, "banana", [5], ["x"], {"a": 1}):
        if usable(sound, path, value):
            continue
        fields = named(kind, replaced(sound, path, value))
        assert written(path) in fields, (value, fields)
