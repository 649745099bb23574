"""`Plan`: what a decision wants done. Pure data; `osb.apply.execute` carries it out and nothing else does.

Order matters: actions are executed in the order given, neighbours of one type in parallel. An action that
fails does not stop the later ones. Ledger moves are actions too, because a pod leaves the stock *before* it
is deleted (spec/protocols.md, rule 7): `Doom` is the move and the DELETE in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class CreatePod:
    """POST `body`. With `intend` the name is first written to the pool's ledger (`new`)."""

    name: str
    body: Mapping[str, Any]
    intend: bool = False


@dataclass(frozen=True, slots=True)
class DeletePod:
    """DELETE with preconditions; 404 is success. `version` "" = by UID only (a held or non-pooled pod).

    `grace` 0 forces a pod off a node that does not answer; None leaves the pod's own grace period.
    """

    name: str
    uid: str
    version: str = ""
    why: str = ""
    grace: int | None = None


Cause = Literal["scale-down", "rolling update", "evicted", "ended", "stuck", "suspect", "doomed before"]


@dataclass(frozen=True, slots=True)
class Doom:
    """Take an idle pod out of the stock (`from_state` > doom), then DELETE it with UID and version.

    `from_state`: may be doom already (an earlier DELETE is not known to have worked): then only the DELETE.
    `why`: one of a few short causes ("scale-down", "rolling update", "evict label"), so that events can group.
    `reason`: an event of that reason tells of the delete besides, once it is done.
    """

    name: str
    uid: str
    version: str
    from_state: str
    why: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Recycle:
    """One step for a pod in `rel` or `dirty` (see `osb.decide.recycle`); apply proves the entry first.

    The `step`:

    * `delete`: DELETE with UID.
    * `attempt`: a restart, by the pod's own recycle key.
    * `free`: the pod is clean: acknowledge on the sandbox, then put it back into the stock.
    * `gone`: the pod is no more: acknowledge, then drop its entry.

    `failed`: the pinned policy could not be carried out.
    """

    name: str
    uid: str
    version: str
    from_state: str
    policy: str
    step: Literal["delete", "attempt", "free", "gone"]
    box: str = ""
    box_uid: str = ""
    slot: int = -1
    failed: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """One ledger move: `what` is its name in `osb.store.ledger` (gone, lost, born, orphan, release, conf).

    `live`: read the pod first and move only if it is gone, terminal, terminating or another one.
    `confirm_box`: read the sandbox first and move only if `osb.decide.poolrelease.why_back` still says so.
    """

    what: str
    name: str
    uid: str
    from_state: str
    box_uid: str = ""
    policy: str = ""
    live: bool = False
    confirm_box: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Settle:
    """A reservation whose claim is not known to have landed: read live, roll forward (protocols.md 5)."""

    name: str
    uid: str
    box: str
    box_uid: str
    slot: int


@dataclass(frozen=True, slots=True)
class Lose:
    """Pods of these slots are gone and the ledger knows nothing of them: recorded as lost, so that the sandbox waits.

    They died with a former Pool of the name, or, where `pods` names them (name, UID prefix), while nobody looked:
    then each is believed only after a live read.
    """

    box_uid: str
    slots: tuple[int, ...]
    pods: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PatchPod:
    name: str
    patch: Mapping[str, Any]
    uid: str = ""
    version: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class DeleteBox:
    """DELETE a BatchSandbox (it has expired, or its owner asked). Preconditions as given."""

    name: str
    uid: str
    version: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class CreateObject:
    """POST an object of another kind (snapshot, job, ...)."""

    kind: str
    name: str
    body: Mapping[str, Any]
    why: str = ""


@dataclass(frozen=True, slots=True)
class PatchObject:
    """Patch an object; `version` becomes the precondition, `sub` = "status" for the subresource."""

    kind: str
    name: str
    patch: Mapping[str, Any] | tuple[Mapping[str, Any], ...]
    version: str = ""
    sub: str = ""
    content: Literal["merge", "json", "strategic"] = "merge"
    why: str = ""


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """DELETE an object of another kind, with preconditions as given."""

    kind: str
    name: str
    uid: str = ""
    version: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """A Kubernetes Event on an object of `kind` (pool, batchsandbox, snapshot, ...); the message is capped.

    `name` "" means the object being reconciled.
    """

    kind: str
    type: EventType
    reason: str
    message: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep these members of the pool's `Memory` (osb.facts.poolview) for the next pass; None forgets one."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AssignPool:
    """Choose a pool for a sandbox with poolRef `*` (`osb.decide.assign`) and patch it; ends the pass."""

    profile: str = ""


@dataclass(frozen=True, slots=True)
class PublishEndpoints:
    """Write the endpoints annotation: before the status, or after it when a phase must be seen first.

    A client takes an address without a phase for a running sandbox (spec/clients.md 4, 5).
    """

    addresses: tuple[str, ...]
    after_status: bool = False


@dataclass(frozen=True, slots=True)
class Wake:
    """Ask the queue for another key (`kind`, member name in the same namespace)."""

    kind: str
    name: str
    reason: str
    after: float | None = None


Action = (
    CreatePod
    | DeletePod
    | Doom
    | Recycle
    | Move
    | Settle
    | Lose
    | PatchPod
    | DeleteBox
    | CreateObject
    | PatchObject
    | DeleteObject
    | EmitEvent
    | Remember
    | AssignPool
    | PublishEndpoints
    | Wake
)


@dataclass(frozen=True, slots=True)
class Plan:
    """`status` None = leave it; `reasons`: plain sentences for explain, log, journal; `again`: seconds."""

    actions: tuple[Action, ...] = ()
    status: Mapping[str, Any] | None = None
    reasons: tuple[str, ...] = ()
    again: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Numbers behind the decision, for `osbctl explain -o json` and metrics."""


MESSAGE_LIMIT = 1000


def counted(number: int, one: str, verb: str = "", verbs: str = "") -> str:
    """`1 pod`, `3 pods`; with a verb for one and one for many `1 pod is`, `3 pods are`."""
    noun = one if number == 1 else f"{one}es" if one.endswith("x") else f"{one}s"
    return " ".join(part for part in (str(number), noun, verb if number == 1 else verbs) if part)


def names_text(names: list[str], limit: int = 900) -> str:
    """`[a b c]`, cut at about `limit` characters with the number left out: lists on events are bounded."""
    shown: list[str] = []
    length = 0
    for name in names:
        length += len(name) + 1
        if length > limit:
            return f"[{' '.join(shown)} and {len(names) - len(shown)} more]"
        shown.append(name)
    return f"[{' '.join(shown)}]"


def event(kind: str, type: EventType, reason: str, message: str, *, name: str = "") -> EmitEvent:
    """An event with its message capped at 1000 characters."""
    text = message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"
    return EmitEvent(kind, type, reason, text, name)
