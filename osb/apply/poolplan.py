"""Carry out the plan of one pool: ledger moves before deletes, intents before creates, acknowledgements last.

In: a `Plan`, the view and the raw sandboxes it was decided on. Out: `Applied`. Every action is independent: one that
fails is reported and does not stop the others (spec/pool.md 5.2); what it left open stays in the ledger's `todo` and
is repeated by the next pass. Next: the Pool's status, written last by `osb.reconcile.poolpass`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from osb.api import names
from osb.api.key import Key
from osb.apply import poolcreates, poolidle, poolmoves, poolreturns
from osb.apply.hand import Hand, in_parallel
from osb.apply.poolwork import ADOPT, Applied, Obj, PoolWork
from osb.decide import plan as plans
from osb.decide.plan import Plan
from osb.errors import ApiError, NotFound
from osb.facts.adds import Add
from osb.facts.poolview import PoolView
from osb.store.ledger_types import Proof


def pool_plan(hand: Hand, proof: Proof, view: PoolView, plan: Plan, *, raws: Mapping[str, Obj], pool: Obj) -> Applied:
    """Carry out `plan`. `raws`: raw sandboxes by UID, `pool`: the raw Pool. Raises Fenced when the key was lost."""
    work = PoolWork(hand, proof, view, dict(raws), pool)
    for kind, group in groupby(plan.actions, key=type):
        if kind not in _HANDLERS:
            raise TypeError(f"{kind.__name__} is not an action of a pool plan")
        _HANDLERS[kind](work, list(group))
    poolreturns.finish(work)
    return work.done


def _patch_pods(work: PoolWork, group: list[plans.PatchPod]) -> None:
    def patch(action: plans.PatchPod) -> Obj | None:
        body = {**action.patch}
        if action.version:
            body["metadata"] = {**body.get("metadata", {}), "resourceVersion": action.version}
        try:
            return work.hand.kube.patch("pod", work.hand.key.namespace, action.name, body)
        except NotFound:
            return None

    results = in_parallel(work.hand, patch, group)
    stored = [r for r in results if isinstance(r, dict)]
    if stored:
        work.hand.forward.put("poolpod", stored, own=work.hand.key, versioned=True)
    for r in results:
        if isinstance(r, ApiError):
            work.failed(r)
    work.done.count("patched", [action.name for action in group])


def _patch_objects(work: PoolWork, group: list[plans.PatchObject]) -> None:
    for action in group:
        body: Any = list(action.patch) if isinstance(action.patch, tuple) else dict(action.patch)
        if action.version and isinstance(body, dict):
            body["metadata"] = {**body.get("metadata", {}), "resourceVersion": action.version}
        work.hand.check()
        try:
            stored = work.hand.kube.patch(
                action.kind,
                work.hand.key.namespace,
                action.name,
                body,
                sub=action.sub,
                content=action.content,
            )
        except ApiError as error:
            work.failed(error)
            continue
        work.done.count("patched", [action.name])
        uid = str(stored["metadata"].get("uid"))
        if uid in work.raws:
            work.raws[uid] = stored
        if action.kind in ("pool", "batchsandbox"):
            work.hand.forward.put(action.kind, [stored], own=work.hand.key, versioned=bool(action.version))


def _events(work: PoolWork, group: list[plans.EmitEvent]) -> None:
    by_name = {raw["metadata"]["name"]: raw for raw in work.raws.values()}
    for action in group:
        target = work.pool if action.kind == "pool" else by_name.get(action.name)
        if target is not None:
            work.hand.events.emit(target, action.type, action.reason, action.message, component=names.COMPONENT_POOL)


def _wakes(work: PoolWork, group: list[plans.Wake]) -> None:
    work.hand.store.queue.add(
        Add(
            key=Key(w.kind, work.hand.key.namespace, w.name),
            reason=w.reason,
            after=w.after,
            deep=w.after is not None,
        )
        for w in group
    )


def _remember(work: PoolWork, group: list[plans.Remember]) -> None:
    for action in group:
        work.done.memory.update(action.values)


_HANDLERS: dict[type, Callable[[PoolWork, list[Any]], None]] = {
    plans.Move: poolmoves.moves,
    plans.Lose: poolmoves.loses,
    plans.Settle: poolmoves.settles,
    plans.Doom: poolidle.dooms,
    plans.DeletePod: poolidle.deletes,
    plans.CreatePod: poolcreates.creates,
    plans.Recycle: poolreturns.recycles,
    plans.PatchPod: _patch_pods,
    plans.PatchObject: _patch_objects,
    plans.EmitEvent: _events,
    plans.Wake: _wakes,
    plans.Remember: _remember,
}

__all__ = ["ADOPT", "Applied", "pool_plan"]
