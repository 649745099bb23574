"""Gather and decide without apply: what explain and plan show is what the next pass would decide on and do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from osb.api import batchsandbox, claims, names
from osb.api import pool as pools
from osb.api.key import BATCHSANDBOX, POOL, SNAPSHOT, Key
from osb.cli.context import Reach, Wrong, no_such
from osb.decide import assign as assign_decision
from osb.decide import batch
from osb.decide import pool as pool_decision
from osb.decide import snapshot as snapshot_decision
from osb.decide.allocate import Dealt
from osb.decide.pausetext import standing
from osb.decide.plan import Action, AssignPool, Plan, names_text
from osb.errors import NotFound
from osb.facts.boxview import BatchView, Waiting
from osb.facts.poolview import PoolView
from osb.reconcile import assign, boxview, gather, poolpass, serve
from osb.reconcile import snapshot as snapshot_pass
from osb.reconcile.poolload import Load, load
from osb.reconcile.world import Pass

Obj = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One key: the object, what the next pass would do with it, and for pools the deal that comes first."""

    key: Key
    raw: Obj
    plan: Plan
    load: Load | None = None
    view: PoolView | None = None
    dealt: Dealt | None = None
    waiting: Waiting | None = None
    position: int = 0
    line: int = 0
    note: str = ""
    pause: str = ""


def look(reach: Reach, key: Key) -> Look:
    """Raises NoSuch when the object does not exist, Wrong for kinds that have no plan, Foreign (`Reach.paired`)."""
    if key.kind not in (POOL, BATCHSANDBOX, SNAPSHOT):
        raise Wrong(f"{key.kind} keys have no plan; pool, sandbox and snapshot have")
    reach.paired()
    if key.kind == POOL:
        return _pool(reach, key)
    if key.kind == BATCHSANDBOX:
        return _box(reach, key)
    return _snapshot(reach, key)


def _pool(reach: Reach, key: Key) -> Look:
    p = reach.look(key)
    now = load(p)
    if now.pool is None or now.raw is None:
        raise no_such(POOL, key.member)
    if now.pool.deleting is not None:
        return Look(key=key, raw=now.raw, load=now, plan=Plan(reasons=("the Pool is being deleted",)))
    if not now.ready:
        why = "its ledger is missing or older than Redis: the next pass rebuilds it from the cluster, then serves"
        return Look(key=key, raw=now.raw, load=now, plan=Plan(reasons=(why,)))
    dealt = serve.look(p, now.stock()) if now.waiters else Dealt()
    view = poolpass.look(p, now)
    return Look(key=key, raw=now.raw, load=now, view=view, dealt=dealt, plan=pool_decision.plan(view))


def _box(reach: Reach, key: Key) -> Look:
    p = reach.look(key)
    raw = _fetched(p, key)
    spec = batchsandbox.parse(raw)
    pool, _ = claims.effective_pool(spec)
    waiting, position, line = None, 0, 0
    if pool and pool != names.ANY_POOL and claims.wants(spec):
        waiting, position, line = _place(reach, Key(POOL, key.namespace, pool), spec.uid, key.member)
    view = boxview.build(p, raw, waiting=waiting)
    view, plan = _chosen(p, raw, view)
    return Look(
        key=key, raw=raw, plan=plan, waiting=waiting or view.waiting, position=position, line=line,
        note=_note(spec) or _held_back(p, spec, pool), pause=standing(view, _progress(p, view)),
    )  # fmt: skip


def _chosen(p: Pass, raw: Obj, view: BatchView) -> tuple[BatchView, Plan]:
    """The view and the plan after the choice of a pool, which the pass makes on its way, with a reason per pool."""
    plan = batch.plan(view)
    if not any(isinstance(action, AssignPool) for action in plan.actions):
        return view, plan
    choice = assign.look(p, raw)
    if choice is None:
        return view, plan
    told = assign_decision.reasons(choice)
    if choice.pool:
        return view, replace(plan, reasons=told)
    view = replace(view, waiting=assign_decision.waiting(choice, view.spec))
    plan = batch.plan(view)
    again = min(seconds for seconds in (plan.again, assign.AGAIN) if seconds is not None)
    return view, replace(plan, reasons=told, again=again)


def _progress(p: Pass, view: BatchView) -> str:
    """What the pause's snapshot says that it waits for."""
    if view.snapshot is None:
        return ""
    raw = gather.live(p, "snapshot", view.spec.namespace, view.snapshot.name) or {}
    found = (raw.get("status") or {}).get("conditions") or ()
    return next((str(c.get("message") or "") for c in found if c.get("type") == names.PROGRESSING), "")


def _note(spec: batchsandbox.BoxSpec) -> str:
    if claims.timed_out(spec):
        return "left the line: its allocation timeout passed; a change of its spec puts it back"
    if spec.barred:
        return f"not served: {'; '.join(map(str, spec.invalid))}"
    if spec.record_error is not None:
        return f"not served while its record cannot be read: {spec.record_error}"
    return ""


def _held_back(p: Pass, spec: batchsandbox.BoxSpec, pool: str) -> str:
    """Why a sandbox that is being deleted stays, when its pool is on hold: nothing of a held pool is recycled."""
    if spec.deleting is None or names.FINALIZER_POOL not in spec.finalizers:
        return ""
    raw = gather.live(p, "pool", spec.namespace, pool)
    if raw is None or not pools.parse(raw).hold:
        return ""
    return f"stays until its pods are back in pool {pool}, which is on hold; `osbctl unhold {spec.namespace}/{pool}`"


def _place(reach: Reach, pool: Key, uid: str, member: str) -> tuple[Waiting | None, int, int]:
    """(why it waits and for whom, its place in the line, the line's length), as the pool's next deal sees it."""
    p = reach.look(pool)
    now = load(p)
    if now.pool is None or now.pool.deleting is not None or not now.ready:
        return _no_deal(now), 0, now.line
    dealt = serve.look(p, now.stock())
    if any(grant.uid == uid for grant in dealt.grants):
        return None, 0, now.line
    found = dealt.waiting.get(uid)
    line = p.store.mirror.index("batchsandbox", "wait", pool.member)
    place = found.position if found is not None else 0
    if not place and member in line:
        place = line.index(member) + 1
    return found, place, max(len(line), now.line)


def _no_deal(now: Load) -> Waiting | None:
    """None: the sandbox's own view knows why (no such pool, or it is going)."""
    if now.pool is None or now.pool.deleting is not None:
        return None
    return Waiting(code=names.WAIT_LEDGER_REBUILDING, detail="the next pass of the pool rebuilds its ledger")


def _snapshot(reach: Reach, key: Key) -> Look:
    p = reach.look(key)
    raw = _fetched(p, key)
    return Look(key=key, raw=raw, plan=snapshot_decision.plan(snapshot_pass.look(p, raw)))


def _fetched(p: Pass, key: Key) -> Obj:
    try:
        return p.kube.get(key.kind, key.namespace, key.name)
    except NotFound as error:
        raise no_such(key.kind, key.member) from error


def held_pods(p: Pass, raw: Obj) -> dict[int, str]:
    """Slot -> name of the pods that a sandbox has, verified."""
    return {slot: pod.name for slot, pod in gather.held_pods(p, batchsandbox.parse(raw)).items()}


# -- plans in words --------------------------------------------------------------------------------------------


def words(actions: tuple[Action, ...]) -> list[str]:
    """One line for each kind of action, with the names it concerns and why."""
    groups: dict[tuple[str, str], list[str]] = {}
    for action in actions:
        kind = type(action).__name__
        if kind == "Remember":
            continue
        name, why = _subject(action)
        groups.setdefault((kind, why), []).append(name)
    return [
        f"{_TITLES.get(kind, kind)} {names_text(items, 200) if len(items) > 1 else items[0]}".rstrip()
        + (f": {why}" if why else "")
        for (kind, why), items in groups.items()
    ]


_TITLES = {
    "CreatePod": "create pod", "DeletePod": "delete pod", "Doom": "take from the stock and delete",
    "Recycle": "recycle", "Move": "ledger:", "Settle": "settle reservation of", "PatchPod": "patch pod",
    "Lose": "record as lost:",
    "DeleteBox": "delete sandbox", "CreateObject": "create", "PatchObject": "patch", "DeleteObject": "delete",
    "EmitEvent": "event", "AssignPool": "choose a pool", "PublishEndpoints": "publish endpoints", "Wake": "wake",
}  # fmt: skip


def _subject(action: Action) -> tuple[str, str]:
    shown = {field.name: getattr(action, field.name) for field in fields(action)}
    kind = type(action).__name__
    if kind == "EmitEvent":
        return str(shown["reason"]), str(shown["message"])
    if kind == "PublishEndpoints":
        return names_text([address or '""' for address in shown["addresses"]], 200), ""
    if kind == "Lose":
        return f"slots {', '.join(map(str, shown['slots']))} of sandbox {shown['box_uid']}", ""
    if kind == "Recycle":
        return shown["name"], f"{shown['policy']}, step {shown['step']}" + (f", {shown['why']}" if shown["why"] else "")
    if kind == "Move":
        return shown["name"], shown["what"] + (f", {shown['why']}" if shown["why"] else "")
    if kind in ("CreateObject", "PatchObject", "DeleteObject", "Wake"):
        return f"{shown['kind']} {shown['name']}", str(shown.get("why") or shown.get("reason") or "")
    return str(shown.get("name", "")), str(shown.get("why") or "")


def as_data(action: Action) -> Obj:
    """An action for `-o json`: its type and its members."""
    return {"action": type(action).__name__, **{f.name: getattr(action, f.name) for f in fields(action)}}


def status_changes(raw: Mapping[str, Any], plan: Plan) -> list[str]:
    """`phase: Pending -> Succeed` for every member of the status that would be written differently."""
    if plan.status is None:
        return []
    stored: Mapping[str, Any] = raw.get("status") or {}
    changes: list[str] = []
    for name, value in plan.status.items():
        old = stored.get(name)
        if name == "conditions":
            changes += _condition_changes(old or [], value or [])
        elif old != value and not (old in (None, "", [], {}) and value in (None, "", [], {})):
            changes.append(f"{name}: {_short(old)} -> {_short(value)}")
    return changes


def _condition_changes(old: list[Obj], new: list[Obj]) -> list[str]:
    before = {c["type"]: c for c in old}
    after = {c["type"]: c for c in new}
    changes = []
    for kind in sorted(before.keys() | after.keys()):
        was, will = _condition(before.get(kind)), _condition(after.get(kind))
        if was != will:
            changes.append(f"condition {kind}: {was} -> {will}")
    return changes


def _condition(condition: Mapping[str, Any] | None) -> str:
    if condition is None:
        return "absent"
    text = f"{condition.get('status')} {condition.get('reason') or ''}".rstrip()
    return f"{text} ({condition['message']})" if condition.get("message") else text


def _short(value: Any) -> str:
    text = "unset" if value is None else str(value)
    return text if len(text) <= 120 else text[:117] + "..."
