"""`Key`: what travels on the queue. A message is a key, never an object (design.md 4)."""

from __future__ import annotations

import re
from typing import NamedTuple

from osb.errors import InvalidInput

POOL = "pool"
BATCHSANDBOX = "batchsandbox"
SNAPSHOT = "snapshot"
RECYCLE = "recycle"  # ns/pod: a restart exec to run (spec/pool.md 11)
TASKS = "tasks"  # ns/sandbox: its executors to poll (spec/tasks.md)

KINDS = (POOL, BATCHSANDBOX, SNAPSHOT, RECYCLE, TASKS)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Key(NamedTuple):
    """kind, namespace, name. `text` is its full form, `member` the form inside one kind's queue."""

    kind: str
    namespace: str
    name: str

    @property
    def text(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def member(self) -> str:
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return self.text


def of_member(kind: str, member: str) -> Key:
    """The key of a queue member `ns/name`. Raises InvalidInput when it is not one."""
    namespace, slash, name = member.partition("/")
    if not slash:
        raise InvalidInput("key", f"{member!r} is not namespace/name")
    return checked(kind, namespace, name)


def runnable(key: Key) -> bool:
    """Whether a worker would take the key: what users write may name no object that can exist."""
    return key.kind in KINDS and is_name(key.namespace) and is_name(key.name)


def is_name(text: object) -> bool:
    """A name that a Kubernetes object can have."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def checked(kind: object, namespace: object, name: object) -> Key:
    """A key from outside (a hand-sent task): refuses nonsense with a message that says what is accepted."""
    if kind not in KINDS:
        raise InvalidInput("kind", f"{kind!r} is not one of {', '.join(KINDS)}")
    for field, value in (("namespace", namespace), ("name", name)):
        if not is_name(value):
            raise InvalidInput(field, f"{value!r} is not a Kubernetes name (lower-case letters, digits, '-', '.')")
    return Key(str(kind), str(namespace), str(name))
