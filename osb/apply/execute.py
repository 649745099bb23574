"""Carry out the plan of one sandbox or snapshot: in order, neighbours of one kind in parallel, the status last.

In: a `Plan` and the raw object it was decided on. Out: `Applied`. A write to the object itself carries the version that
the plan was decided on, a later one builds on the answer of the earlier one; so a plan decided on an old view ends as a
Conflict and nothing is overwritten. A failed pod does not stop the others (spec/batchsandbox.md 9.3); pools have
`osb.apply.poolplan`. Next: the mirror (write-through), then the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from osb.api import names, record
from osb.api.key import Key
from osb.apply import pods as pod_writes
from osb.apply.hand import Hand, in_parallel
from osb.apply.pods import Created
from osb.apply.status import write_status
from osb.decide.conditions import stored
from osb.decide.plan import (
    Action,
    CreateObject,
    CreatePod,
    DeleteBox,
    DeleteObject,
    DeletePod,
    EmitEvent,
    PatchObject,
    PatchPod,
    Plan,
    PublishEndpoints,
    Wake,
    names_text,
)
from osb.errors import AlreadyExists, ApiError, Conflict, NotFound
from osb.facts.adds import Add

Obj = dict[str, Any]
Restate = Callable[[Mapping[str, str]], Mapping[str, Any] | None]
MIRRORED = frozenset(("pool", "batchsandbox", "snapshot", "job"))


@dataclass(slots=True)
class Applied:
    """What was done. `obj` is the object as stored now, None when it is gone. `failed`: what the server said."""

    obj: Obj | None
    writes: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    failed: list[ApiError] = field(default_factory=list)
    gone: bool = False
    refused: dict[str, str] = field(default_factory=dict)

    def count(self, word: str, number: int = 1) -> None:
        self.counts[word] = self.counts.get(word, 0) + number
        self.writes += number


def execute(hand: Hand, kind: str, raw: Obj, plan: Plan, *, restate: Restate | None = None) -> Applied:
    """Carry out `plan` for the object `raw` of mirror kind `kind`. Raises Conflict when the object moved on.

    `restate` gives the status once more when the server refused something (name -> its words).
    """
    done = Applied(raw)
    one = _Executor(hand, kind, raw["metadata"]["namespace"], done)
    late = [action for action in plan.actions if isinstance(action, PublishEndpoints) and action.after_status]
    for _, group in groupby((a for a in plan.actions if a not in late), key=type):
        one.run(list(group))
        if done.gone:
            return done
    status = restate(done.refused) if restate is not None and done.refused else plan.status
    if status is not None and done.obj is not None:
        one.status(status)
    for action in late:
        one.endpoints(action)
    return done


@dataclass(slots=True)
class _Executor:
    hand: Hand
    kind: str
    namespace: str
    done: Applied

    def run(self, group: Sequence[Action]) -> None:
        first = group[0]
        if isinstance(first, CreatePod):
            self._create([a for a in group if isinstance(a, CreatePod)])
        elif isinstance(first, DeletePod):
            self._delete([a for a in group if isinstance(a, DeletePod)])
        else:
            for action in group:
                self._one(action)

    def _one(self, action: Action) -> None:
        match action:
            case PatchObject():
                self._patch(action)
            case PublishEndpoints():
                self.endpoints(action)
            case EmitEvent():
                self._event(action)
            case Wake():
                key = Key(action.kind, self.namespace, action.name)
                add = Add(key=key, reason=action.reason, after=action.after, deep=action.after is not None)
                self.hand.store.queue.add([add])
            case DeleteBox():
                self._delete_box(action)
            case CreateObject():
                self._create_object(action)
            case DeleteObject():
                self._delete_object(action)
            case PatchPod():
                self._patch_pod(action)
            case _:
                raise TypeError(f"{type(action).__name__} is not an action of a {self.kind} plan")

    # -- pods -------------------------------------------------------------------------------------------------

    def _create(self, group: list[CreatePod]) -> None:
        assert self.done.obj is not None
        uid = self.done.obj["metadata"]["uid"]

        def create(action: CreatePod) -> Created:
            return pod_writes.create_pod(self.hand, self.namespace, action.name, action.body, owner=uid)

        made: list[Obj] = []
        failed: list[str] = []
        read: list[Obj] = []  # made by an earlier POST: they may be ready by now, which is news
        for action, result in zip(group, in_parallel(self.hand, create, group), strict=True):
            if isinstance(result, ApiError):
                self.done.failed.append(result)
                self.done.refused[action.name] = str(result)
                failed.append(f"failed to create pod {action.name}: {result}")
            elif result.pod is None:
                self.done.refused[action.name] = "the name belongs to a pod of somebody else"
                failed.append(f"failed to create pod {action.name}: a pod of that name exists and is not ours")
            else:
                made.append(result.pod)
                read += [result.pod] if result.read else []
        if failed and not self._told_of_refusal():
            for text in failed:
                self._tell("Warning", names.EVENT_FAILED_CREATE, text)
        if made:
            self.done.count("created", len(made))
            fresh = [pod for pod in made if pod not in read]
            for pods, versioned in ((fresh, True), (read, False)):
                if pods:
                    self.hand.forward.put("boxpod", pods, own=self.hand.key, versioned=versioned)
            found = [pod["metadata"]["name"] for pod in made]
            text = f"pod {found[0]}" if len(made) == 1 else f"{len(made)} pods: {names_text(found)}"
            self._tell("Normal", names.EVENT_SUCCESSFUL_CREATE, f"succeed to create {text}")

    def _told_of_refusal(self) -> bool:
        """The stored condition names the same cause: it was told, and each try again would be another write."""
        assert self.done.obj is not None
        told = stored(self.done.obj.get("status") or {}, now=self.hand.now()).text(names.PROGRESSING)
        _, words = min(self.done.refused.items())
        return "no pod: " in told and words[:300] in told

    def _delete(self, group: list[DeletePod]) -> None:
        def delete(action: DeletePod) -> bool:
            return pod_writes.delete_pod(
                self.hand,
                self.namespace,
                action.name,
                uid=action.uid,
                version=action.version,
                grace=action.grace,
            )

        for action, result in zip(group, in_parallel(self.hand, delete, group), strict=True):
            if isinstance(result, ApiError):
                self.done.failed.append(result)
                self._tell("Warning", names.EVENT_FAILED_DELETE, f"failed to delete pod {action.name}: {result}")
            else:
                self.done.count("deleted")

    def _patch_pod(self, action: PatchPod) -> None:
        body = {**action.patch}
        if action.version:
            body["metadata"] = {**body.get("metadata", {}), "resourceVersion": action.version}
        self.hand.check()
        self.hand.kube.patch("pod", self.namespace, action.name, body)
        self.done.count("patched pods")

    # -- the object itself ------------------------------------------------------------------------------------

    def _patch(self, action: PatchObject) -> None:
        own = action.kind == self.kind and self.done.obj is not None and action.name == self._name
        body: Any = list(action.patch) if isinstance(action.patch, tuple) else dict(action.patch)
        if isinstance(body, dict) and (own or action.version):
            assert self.done.obj is not None
            version = self.done.obj["metadata"]["resourceVersion"] if own else action.version
            body["metadata"] = {**body.get("metadata", {}), "resourceVersion": version}
        self.hand.check()
        self.hand.step("patch")
        try:
            answer = self.hand.kube.patch(
                action.kind, self.namespace, action.name, body, sub=action.sub, content=action.content
            )
        except NotFound:
            self.done.gone = own
            return
        self.done.count("patched")
        self._stored(action.kind, answer, own=own)

    def endpoints(self, action: PublishEndpoints) -> None:
        """The endpoints annotation, with the version of the object as it is now."""
        if self.done.obj is None:
            return
        text = record.format_endpoints(action.addresses)
        meta = self.done.obj["metadata"]
        if (meta.get("annotations") or {}).get(names.ENDPOINTS) == text:
            return
        self._patch(PatchObject(self.kind, meta["name"], {"metadata": {"annotations": {names.ENDPOINTS: text}}},
                                version=meta["resourceVersion"]))  # fmt: skip

    def status(self, status: Mapping[str, Any]) -> None:
        assert self.done.obj is not None
        try:
            stored, wrote = write_status(self.hand, self.kind, self.done.obj, status)
        except NotFound:
            self.done.gone = True
            return
        if wrote:
            self.done.count("status")
            self._stored(self.kind, stored, own=True)

    def _stored(self, kind: str, answer: Obj, *, own: bool) -> None:
        if own:
            self.done.obj = answer
        if kind in MIRRORED:
            self.hand.forward.put(kind, [answer], own=self.hand.key, versioned=own)

    def _delete_box(self, action: DeleteBox) -> None:
        self.hand.check()
        self.hand.step("expire")
        try:
            self.hand.kube.delete(
                "batchsandbox", self.namespace, action.name, uid=action.uid, version=action.version or None
            )
        except NotFound:
            self.done.gone = True
            return
        self.done.count("deleted the sandbox")

    # -- other objects ----------------------------------------------------------------------------------------

    def _create_object(self, action: CreateObject) -> None:
        self.hand.check()
        self.hand.step("create-object")
        try:
            answer = self.hand.kube.create(action.kind, self.namespace, action.body)
        except AlreadyExists:
            return  # the next pass looks at whose it is
        except ApiError as error:
            if not error.definite:
                raise
            self.done.failed.append(error)
            self.done.refused[action.name] = str(error)
            return
        self.done.count(f"created {action.kind}")
        self._stored(action.kind, answer, own=False)

    def _delete_object(self, action: DeleteObject) -> None:
        self.hand.check()
        self.hand.step("delete-object")
        try:
            self.hand.kube.delete(
                action.kind, self.namespace, action.name, uid=action.uid or None,
                version=action.version or None, propagation="Background",
            )  # fmt: skip
        except (NotFound, Conflict):
            return
        self.done.count(f"deleted {action.kind}")

    # -- events -----------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self.hand.key.name

    def _event(self, action: EmitEvent) -> None:
        self._tell(action.type, action.reason, action.message)

    def _tell(self, type_: Any, reason: str, message: str) -> None:
        if self.done.obj is not None:
            self.hand.events.emit(self.done.obj, type_, reason, message)
