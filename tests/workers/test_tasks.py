"""From a Celery message to a run: wake-ups, hand-sent tasks, repeated ones, nonsense, keys that kill their workers."""

from __future__ import annotations

import subprocess
import sys
import uuid
from typing import Any

import msgspec
import pytest
from celery import Task
from celery.exceptions import Reject
from celery.states import REJECTED

from osb.api.key import BATCHSANDBOX, POOL, Key
from osb.facts.adds import Add
from osb.kube.client import Kube
from osb.reconcile import quarantine
from osb.reconcile.handle import handle
from osb.reconcile.world import World
from osb.store import keys
from workers import tasks
from workers.app import app
from workers.routes import all_queues

KEY = Key(BATCHSANDBOX, "default", "b")
NONSENSE: list[tuple[Any, ...]] = [
    (), ("default",), ("default", ""), ("default", None), (1, 2), ("UPPER", "b"), ("default", "../etc"),
    ("a", "b", "c", "d"), ({"ns": 1}, "b"), ("default", "b\n"), ("x" * 300, "b"),
]  # fmt: skip


def run(task: Task, *args: Any, task_id: str = "", wake: bool = False) -> str:
    """As a worker runs a message of that id; a wake-up carries our header."""
    headers = {tasks.WAKE_HEADER: 1} if wake else None
    return str(task.apply(args=args, task_id=task_id or str(uuid.uuid4()), headers=headers).get())


def vanish(world: World, crash: int) -> None:
    """A worker takes the key and is gone until its lease has run out."""
    assert world.store.queue.begin(KEY, f"dead-{crash}").state == "run"
    world.store.redis.zadd(keys.queue(BATCHSANDBOX, "run"), {KEY.member: 1})


@pytest.mark.parametrize("args", NONSENSE, ids=repr)
@pytest.mark.parametrize("task", [tasks.reconcile_pool, tasks.reconcile_batchsandbox, tasks.reconcile_recycle])
def test_nonsense_is_rejected_with_words_and_touches_nothing(
    task: Task, args: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "world", lambda: pytest.fail("a rejected task must not reach for its clients"))
    said = run(task, *args)
    assert said.startswith("rejected: ") and f"{task.name}(namespace, name" in said


@pytest.mark.parametrize(("args", "kwargs", "why"), [
    (("a", "b", "c", "d"), {}, "4 arguments are too many"), (("a", "b"), {"nam": "x"}, "nam is no argument"),
    (("a",), {"namespace": "b"}, "an argument is given twice"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_rejected_in_words_of_the_caller(
    args: tuple[str, ...], kwargs: dict[str, str], why: str
) -> None:
    said = str(tasks.reconcile_pool.apply(args=args, kwargs=kwargs).get())
    assert said.startswith(f"rejected: {why}; call osb.reconcile.pool(namespace, name")


def test_a_task_sent_by_hand_runs_a_key_that_nobody_asked_for(world: World) -> None:
    assert run(tasks.reconcile_batchsandbox, "default", "nobody", "just looking") == "no such sandbox"


def test_a_key_may_be_given_in_one_word(world: World) -> None:
    assert run(tasks.reconcile_batchsandbox, "default/nobody") == "no such sandbox"


def test_a_wake_up_for_a_key_with_nothing_to_do_runs_nothing(world: World) -> None:
    assert run(tasks.reconcile_batchsandbox, "default", "b", wake=True) == "clean"


def test_a_wake_up_that_comes_twice_runs_once(world: World) -> None:
    world.store.queue.add([Add(key=KEY, reason="event")])
    assert run(tasks.reconcile_batchsandbox, "default", "b", wake=True) == "no such sandbox"
    assert run(tasks.reconcile_batchsandbox, "default", "b", wake=True) == "clean"


def test_a_wake_up_for_a_member_that_is_no_key_is_rejected_and_the_member_forgotten(world: World) -> None:
    queue = world.store.queue
    # Given a dirty member that no worker takes, as an older version or somebody else left it.
    queue._call("queue_add_v1", "seed", msgspec.msgpack.encode([["pool", "default/wärm", 2, 0, "old", 0, -1, -1]]))
    assert [one.key for one in queue.listing("pool", "dirty")] == [Key(POOL, "default", "wärm")]
    assert run(tasks.reconcile_pool, "default", "wärm", "old", wake=True).startswith("rejected: ")
    assert queue.listing("pool", "dirty") == []


def test_a_wake_up_that_reaches_a_stopping_worker_goes_back_to_the_queue(world: World) -> None:
    world.store.queue.add([Add(key=KEY, reason="event")])
    world.halt()
    done = tasks.reconcile_batchsandbox.apply(args=("default", "b"), headers={tasks.WAKE_HEADER: 1})
    assert done.state == REJECTED
    assert isinstance(done.result, Reject) and done.result.requeue


def test_a_hand_sent_task_that_is_delivered_again_runs_once(world: World) -> None:
    sent = str(uuid.uuid4())
    assert run(tasks.reconcile_batchsandbox, "default", "b", task_id=sent) == "no such sandbox"
    assert run(tasks.reconcile_batchsandbox, "default", "b", task_id=sent) == "clean"


def test_a_hundred_hand_sent_tasks_during_a_run_make_one_more(world: World) -> None:
    # Given a run in progress
    world.store.queue.add([Add(key=KEY)])
    assert world.store.queue.begin(KEY, "mine").state == "run"
    # When a hundred people dispatch the same key
    assert {run(tasks.reconcile_batchsandbox, "default", "b") for _ in range(100)} == {"busy"}
    # Then one run is owed when it ends, and no more
    assert world.store.queue.end(KEY, "mine", "done", progress=True).again
    assert run(tasks.reconcile_batchsandbox, "default", "b", wake=True) == "no such sandbox"
    assert run(tasks.reconcile_batchsandbox, "default", "b", wake=True) == "clean"


def test_a_key_that_kills_its_worker_five_times_waits_in_quarantine_but_not_for_a_person(
    world: World, kube: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Key] = []
    monkeypatch.setattr(quarantine, "tell", lambda events, key: told.append(key))
    queue = world.store.queue
    queue.add([Add(key=KEY)])
    # Given five workers that took the key and were gone when their lease ran out
    for crash in range(5):
        vanish(world, crash)
        quarantined = queue.rescue(BATCHSANDBOX).quarantined
    # Then the next wake-up does not run it, and an event does not either; other keys run
    assert quarantined == (KEY,)
    assert handle(world, KEY) == "quarantined"
    queue.add([Add(key=KEY, reason="event"), Add(key=Key(BATCHSANDBOX, "default", "other"))])
    assert handle(world, KEY) == "quarantined"
    assert handle(world, Key(BATCHSANDBOX, "default", "other")) == "no such sandbox"
    # But a person runs it at once, and with that it is as any other key again
    assert run(tasks.reconcile_batchsandbox, "default", "b") == "no such sandbox"
    queue.add([Add(key=KEY)])
    assert handle(world, KEY) == "no such sandbox"


def test_a_worker_that_takes_over_the_fifth_time_tells_of_the_quarantine(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Key] = []
    monkeypatch.setattr(quarantine, "tell", lambda events, key: told.append(key))
    queue = world.store.queue
    queue.add([Add(key=KEY)])
    for crash in range(5):
        vanish(world, crash)
    assert handle(world, KEY) == "quarantined"
    assert told == [KEY]


def test_a_recipe_that_crashes_is_a_retry_and_not_the_end_of_the_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from osb.reconcile import handle as module

    def broken(_: object) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(module.RECIPES, BATCHSANDBOX, broken)
    world.store.queue.add([Add(key=KEY)])
    assert "crashed" in handle(world, KEY)
    peek = world.store.queue.peek(KEY)
    assert peek.failures == 1 and peek.due_ms is not None and peek.due_ms < 700


def test_a_conflict_is_decided_again_on_what_is_there_now_though_no_event_has_come(world: World, kube: Kube) -> None:
    # Given a mirror that has not heard of the last change, as with a stream that is frozen
    body = {"metadata": {"name": "late"}, "spec": {"replicas": 0, "template": {"spec": {"containers": []}}}}
    old = kube.create("batchsandbox", "default", body)
    for kind in ("batchsandbox", "boxpod", "poolpod", "pool", "snapshot"):
        world.forward.relist(kind, kube.list({"boxpod": "pod", "poolpod": "pod"}.get(kind, kind), "default"))
    new = kube.patch("batchsandbox", "default", "late", {"metadata": {"labels": {"x": "y"}}})
    assert old["metadata"]["resourceVersion"] != new["metadata"]["resourceVersion"]
    # When its pass writes with the version that it knows
    key = Key(BATCHSANDBOX, "default", "late")
    said = handle(world, key, hand=True, task_id="t")
    # Then the conflict brings the object as it is, and the next pass succeeds
    assert "conflict" in said
    entry = world.store.mirror.read("batchsandbox", [key.member]).entries[key.member]
    assert entry is not None and entry.version == new["metadata"]["resourceVersion"]
    assert "conflict" not in handle(world, key, hand=True, task_id="t2")
    assert kube.get("batchsandbox", "default", "late")["status"]["observedGeneration"] == 1


def test_importing_the_tasks_and_beat_opens_no_socket() -> None:
    code = """
import socket
def no(*args, **more): raise SystemExit("a socket was opened at import")
socket.socket.connect = no
socket.create_connection = no
import workers.tasks, workers.signals, beat.app, beat.schedule, workers.process
assert workers.process._world is None
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_kind_of_key_has_its_task_and_its_queue() -> None:
    from osb.api.key import KINDS

    for kind in KINDS:
        assert f"osb.reconcile.{kind}" in app.tasks
        route = app.conf.task_routes[0](f"osb.reconcile.{kind}", (), {}, {})
        assert route["queue"] in all_queues()
    assert POOL in KINDS


def test_what_the_failure_rules_ask_of_celery_is_set() -> None:
    conf = app.conf
    assert conf.task_acks_late and not conf.task_reject_on_worker_lost and conf.task_ignore_result
    assert conf.worker_prefetch_multiplier == 1 and conf.accept_content == ["json"]
    options = conf.broker_transport_options
    assert options["visibility_timeout"] > conf.task_time_limit
    assert options["socket_timeout"] == 5 and options["socket_connect_timeout"] == 5
    assert options["unacked_restore_throttle"] == 1 and options["unacked_restore_interval"] == 5
    assert conf.broker_connection_max_retries is None and conf.broker_connection_retry_on_startup


def test_a_run_that_does_not_listen_ends_its_process() -> None:
    code = """
from osb.obs.deadline import Deadline, Watchdog
from osb.reconcile.world import _leave
dog = Watchdog(_leave, interval=0.05)
dog.start()
with dog.watching("pool/default/p", Deadline(hard=0.2)):
    while True: pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 70
    assert "pool/default/p" in done.stdout + done.stderr
