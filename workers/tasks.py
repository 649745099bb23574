"""One task per kind: a message becomes a key for `osb.reconcile.handle`. No rule about sandboxes lives here.

`osb.reconcile.pool("ns", "name")` by hand (CLI, `celery call`, Flower's apply) takes the same path as a wake-up; it
differs by the header `osb-wake`, which only our own scripts set: a hand-sent task asks for one more run and skips the
back-off, a wake-up runs only if the key is dirty. The tasks belong to this application alone (`shared=False`): another
one in the same process may have its own of the same name.
"""

from __future__ import annotations

from typing import Any

from celery import Task
from celery.exceptions import Reject

from osb.api import key as keys
from osb.errors import InvalidInput
from osb.obs.log import get_logger
from osb.reconcile.handle import STOPPING, handle
from workers.app import app
from workers.process import world

log = get_logger("worker")

WAKE_HEADER = "osb-wake"


def is_wake_up(task: Task) -> bool:
    """True when one of our scripts published the message; a task sent by a person lacks the header."""
    request = task.request
    return bool(request.get(WAKE_HEADER) or (request.headers or {}).get(WAKE_HEADER))


def _run(task: Task, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    try:
        namespace, name, reason = _arguments(*args, **kwargs)
        key = keys.checked(kind, namespace, name)
    except (InvalidInput, TypeError) as error:
        why = error if isinstance(error, InvalidInput) else _misfit(args, kwargs)
        said = f"rejected: {why}; call osb.reconcile.{kind}(namespace, name, reason='')"
        log.warning(said, task=task.name, arguments=repr((args, kwargs))[:200])
        _forget(task, kind, args)
        return said
    hand = not is_wake_up(task)
    said = handle(world(), key, reason=str(reason)[:120], hand=hand, task_id=str(task.request.id or ""))
    if said == STOPPING:  # acknowledged, the wake-up would be lost until it is repeated, 10 s later
        raise Reject(said, requeue=True)
    return said


def _forget(task: Task, kind: str, args: tuple[Any, ...]) -> None:
    """A wake-up was sent for a member that is no key: left dirty, it would be sent again for ever."""
    if is_wake_up(task) and len(args) >= 2 and all(isinstance(arg, str) for arg in args[:2]):
        world().store.queue.forget(keys.Key(kind, args[0], args[1]))


def _misfit(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Why Python does not take them, in words of the caller."""
    if unknown := sorted(set(kwargs) - {"namespace", "name", "reason"}):
        return f"{', '.join(unknown)} is no argument"
    count = len(args) + len(kwargs)
    return f"{count} arguments are too many" if count > 3 else "an argument is given twice"


def _arguments(namespace: object = None, name: object = None, reason: object = "") -> tuple[object, object, object]:
    """`("ns", "name")`, or the one-argument form `("ns/name",)` that people type."""
    if name is None and isinstance(namespace, str) and "/" in namespace:
        namespace, _, name = namespace.partition("/")
    return namespace, name, reason


@app.task(name="osb.reconcile.pool", bind=True, shared=False)
def reconcile_pool(self: Task, *args: Any, **kwargs: Any) -> str:
    """Reconcile one Pool: `osb.reconcile.pool("namespace", "name")`."""
    return _run(self, keys.POOL, args, kwargs)


@app.task(name="osb.reconcile.batchsandbox", bind=True, shared=False)
def reconcile_batchsandbox(self: Task, *args: Any, **kwargs: Any) -> str:
    """Reconcile one BatchSandbox: `osb.reconcile.batchsandbox("namespace", "name")`."""
    return _run(self, keys.BATCHSANDBOX, args, kwargs)


@app.task(name="osb.reconcile.snapshot", bind=True, shared=False)
def reconcile_snapshot(self: Task, *args: Any, **kwargs: Any) -> str:
    """Reconcile one SandboxSnapshot: `osb.reconcile.snapshot("namespace", "name")`."""
    return _run(self, keys.SNAPSHOT, args, kwargs)


@app.task(name="osb.reconcile.recycle", bind=True, shared=False)
def reconcile_recycle(self: Task, *args: Any, **kwargs: Any) -> str:
    """Run the restart command in one returned pool pod: `osb.reconcile.recycle("namespace", "pod")`."""
    return _run(self, keys.RECYCLE, args, kwargs)


@app.task(name="osb.reconcile.tasks", bind=True, shared=False)
def reconcile_tasks(self: Task, *args: Any, **kwargs: Any) -> str:
    """Poll and drive the tasks of one BatchSandbox: `osb.reconcile.tasks("namespace", "name")`."""
    return _run(self, keys.TASKS, args, kwargs)
