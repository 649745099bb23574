"""`osbctl reconcile KIND NS/NAME`: send one reconcile by hand, on the same path as `celery call`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from osb.api.key import BATCHSANDBOX, POOL, RECYCLE, SNAPSHOT, TASKS, Key
from osb.cli import output as out
from osb.cli.context import FAILED, Kubeconfig, Name, Namespace, Reach, RedisUrl, key_of, quit_with, reach, seconds

EXAMPLE = "Example: osbctl reconcile pool default/warm --reason 'after the node drain' --wait"
TELL_SECONDS = 0.5
OBJECTS = {POOL: POOL, BATCHSANDBOX: BATCHSANDBOX, SNAPSHOT: SNAPSHOT, TASKS: BATCHSANDBOX, RECYCLE: "pod"}


def reconcile(
    kind: Annotated[str, typer.Argument(help="pool, sandbox, snapshot, recycle (a pod) or tasks (a sandbox)")],
    name: Name,
    reason: str = typer.Option("by hand", "--reason", help="shown in logs and in Flower"),
    wait: bool = typer.Option(False, "--wait", help="until a worker has run it"),
    timeout: float = typer.Option(60.0, "--timeout", callback=seconds, help="seconds to wait"),
    namespace: Namespace = "default",
    redis_url: RedisUrl = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Reconcile one object now: skips back-off and quarantine, never runs beside another run of it."""
    key = key_of(kind, name, namespace)
    with reach(redis_url, kubeconfig) as one:
        one.paired()
        one.fetch(OBJECTS[key.kind], key.namespace, key.name)
        task_id = one.store.queue.send_hand(key, reason)
        out.say(f"sent osb.reconcile.{key.kind} for {key.member} (task {task_id})")
        if wait:
            _wait(one, key, task_id, timeout)


def _outcome(reach: Reach, key: Key, task_id: str) -> str:
    """What the worker says of the run: it tells a moment after the key is free."""
    end = time.monotonic() + TELL_SECONDS
    while not (text := reach.store.queue.hand_outcome(key.kind, task_id)) and time.monotonic() < end:
        time.sleep(0.02)
    return text or "reconciled (another run, of an event, took it along)"


def _wait(reach: Reach, key: Key, task_id: str, timeout: float) -> None:
    started = time.monotonic()
    while time.monotonic() - started < timeout:
        if reach.store.queue.hand_seen(key.kind, task_id):
            seen = reach.store.queue.peek(key)
            if not seen.running and seen.dirty_ms is None:
                failed = f"; failed {seen.failures} times in a row" if seen.failures else ""
                took = out.span(time.monotonic() - started)
                out.say(f"done after {took}{failed}: {_outcome(reach, key, task_id)}")
                if failed:
                    quit_with(FAILED)
                return
        time.sleep(0.05)
    out.warn(f"not done after {timeout:g} s: is a worker running? `osbctl queue {key.kind}` shows what waits")
    quit_with(FAILED)
