"""What the subcommands share: connections, references to objects, and how failures become exit codes.

Exit codes: 0 done, 1 failed or something was found, 2 wrong usage or setting, 3 the object does not exist, 70 a fault
of ours. Which error means which: `osb.cli.failures`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec
import typer

from osb.api.key import BATCHSANDBOX, POOL, RECYCLE, SNAPSHOT, TASKS, Key, checked, is_name
from osb.config import Settings, checked_redis
from osb.errors import NotFound, OsbError, StoreDown

if TYPE_CHECKING:
    from osb.kube.client import Kube
    from osb.reconcile.world import Pass, World
    from osb.store.client import Store

FAILED, USAGE, MISSING, FAULT = 1, 2, 3, 70
UNTOLD = "no worker told its settings within ten minutes: time limits are those of this command's own environment"
LOOK_WAITERS = 1000  # of a line, read at once by explain and plan

KINDS = {
    POOL: (POOL, "pools"),
    BATCHSANDBOX: (BATCHSANDBOX, "batchsandboxes", "sandbox", "sandboxes", "box", "bsbx"),
    SNAPSHOT: (SNAPSHOT, "snapshots", "sandboxsnapshot", "sandboxsnapshots", "sbxsnap"),
    RECYCLE: (RECYCLE,),
    TASKS: (TASKS,),
}


SHOWN = {BATCHSANDBOX: ("sandbox", "sandboxes"), POOL: ("pool", "pools"), SNAPSHOT: ("snapshot", "snapshots")}


def _namespace(value: str) -> str:
    """Callback of an option; "" is a default. Raises typer's usage error."""
    if value and not is_name(value):
        raise typer.BadParameter(f"{value!r} is not a namespace name")
    return value


Kind = Annotated[str, typer.Argument(help="pool, sandbox or snapshot")]
Name = Annotated[str, typer.Argument(help="namespace/name")]
RedisUrl = Annotated[str, typer.Option("--redis-url", help="Redis of the installation (REDIS_URL)", show_default=False)]
Kubeconfig = Annotated[str, typer.Option("--kubeconfig", help="path (KUBECONFIG)", show_default=False)]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", callback=_namespace, help="namespace of a name without one")
]
OnlyNamespace = Annotated[
    str, typer.Option("--namespace", "-n", callback=_namespace, help="only this namespace", show_default=False)
]
Output = Annotated[str, typer.Option("--output", "-o", help="table, json or yaml")]


class NoSuch(OsbError):
    """The object that was named does not exist; exit code 3."""


class Wrong(OsbError):
    """The command was called wrongly in a way that its parser cannot see; exit code 2."""


class Reach:
    """Connections, made when first used, closed by `reach`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def store(self) -> Store:
        from osb.store.client import connect

        return connect(self.settings.redis_url, name="cli")

    @cached_property
    def kube(self) -> Kube:
        from osb.kube.client import connect

        return connect(self.settings, pool=8)

    @cached_property
    def told(self) -> dict[str, Any] | None:
        """The installation's settings that decisions depend on, as its workers told them; None when none did."""
        return self.store.duty.settings_told()

    @cached_property
    def world(self) -> World:
        from osb.reconcile.world import make_world

        settings = self.settings.deciding_as(self.told or {})
        return make_world(msgspec.structs.replace(settings, serve_batch=LOOK_WAITERS), role="cli")

    def look(self, key: Key) -> Pass:
        """A pass that holds no key: it may gather and decide, and every fenced write would refuse it."""
        from osb.obs.deadline import Deadline
        from osb.reconcile.world import Pass

        return Pass(world=self.world, key=key, token="", deep=True, deadline=Deadline(), reason="osbctl")

    def fetch(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """The live object. Raises NoSuch."""
        try:
            return self.kube.get(kind, namespace, name)
        except NotFound as error:
            raise no_such(kind, f"{namespace}/{name}") from error

    def paired(self, *, without_redis: bool = False) -> None:
        """Redis is not another cluster's: then what both say does not fit. Raises Foreign.

        `without_redis`: for commands that only write to the cluster; a Redis that is away does not stop those.
        """
        from osb.cli.pairing import mismatch
        from osb.reconcile.pin import Foreign

        try:
            found = mismatch(self)
        except StoreDown:
            if without_redis:
                return
            raise
        if found:
            raise Foreign("; ".join(found))

    def close(self) -> None:
        for name in ("world", "kube", "store"):
            if name in self.__dict__:
                self.__dict__[name].close()


@contextmanager
def reach(redis_url: str = "", kubeconfig: str = "") -> Iterator[Reach]:
    """Settings of the environment with the two overrides, and connections that are closed afterwards."""
    settings = Settings.from_env()
    if redis_url:
        settings = msgspec.structs.replace(settings, redis_url=checked_redis(redis_url))
    if kubeconfig:
        settings = msgspec.structs.replace(settings, kubeconfig=kubeconfig)
    _quiet(settings)
    one = Reach(settings)
    try:
        yield one
    finally:
        one.close()


def _quiet(settings: Settings) -> None:
    """Log lines of the libraries we share with the workers would only disturb the answer on the screen."""
    from osb.obs import log

    log.setup(
        msgspec.structs.replace(settings, log_level="error", log_format="console", log_devel=False, file_log=False)
    )


def kind_of(text: str) -> str:
    """The kind behind `pool`, `pools`, `sandbox`, `bsbx`, ... Raises Wrong."""
    for kind, aliases in KINDS.items():
        if text.lower() in aliases:
            return kind
    raise Wrong(f"kind {text!r} is not known; pool, sandbox, snapshot, recycle or tasks is accepted")


def key_of(kind: str, text: str, namespace: str = "default") -> Key:
    """`ns/name`, or a name in `namespace`. Raises InvalidInput."""
    space, slash, name = text.partition("/")
    return checked(kind_of(kind), space, name) if slash else checked(kind_of(kind), namespace, text)


def no_such(kind: str, member: str) -> NoSuch:
    """The error, with the command that lists what there is."""
    word, plural = SHOWN.get(kind, (kind, f"{kind}s"))
    lists = f"osbctl get {plural}" if kind in SHOWN else f"kubectl get {plural}"
    return NoSuch(f"there is no {word} {member}; `{lists} -A` lists them")


def seconds(value: float) -> float:
    """Callback of an option: from 0 on, and finite (NaN is in no range). Raises typer's usage error."""
    if not 0 <= value < math.inf:
        raise typer.BadParameter(f"{value:g}: a number of seconds from 0 on is accepted")
    return value


def quit_with(code: int) -> NoReturn:
    """End with this exit code and nothing more on the screen."""
    raise typer.Exit(code)
