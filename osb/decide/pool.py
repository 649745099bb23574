"""The full pass of a pool as one pure function: `plan(view)` (spec/pool.md 5, 8-11, 13).

Sort every pod, take back what is given back, deal what is ready, decide who leaves (ended, tainted, evicted, old,
stuck), size the rest, and describe the result in a status. Each step looks at the numbers that the steps before it
leave. Cost: one walk over pods, entries and sandboxes, and sorts of idle pods. Next: `osb.apply.poolplan`.
"""

from __future__ import annotations

from dataclasses import replace

from osb.api import claims, names
from osb.api.revision import format_adopted, parse_adopted
from osb.api.revision import revision as own_revision
from osb.api.times import to_ms
from osb.decide import poolstatus
from osb.decide.allocate import Dealt, cannot_grow, grants
from osb.decide.plan import Action, CreatePod, PatchObject, Plan, Remember, counted
from osb.decide.poolleave import LOOK_AGAIN, Work, cause, leave, rolled_out
from osb.decide.poolpod import pool_pod
from osb.decide.poolrelease import Returns, returns
from osb.decide.poolsort import sort, taken_slots
from osb.decide.poolstatus import Findings
from osb.decide.rollout import Rollout
from osb.decide.scale import Band, Numbers, ScaleDecision, scale, victims
from osb.decide.scale_target import Target, target
from osb.facts import ledger
from osb.facts.poolview import PoolView, ServeView

REPEAT_AFTER = 2.0  # seconds after which the POST of an unseen create is sent once more
CAP_LOOK = 5.0  # seconds between two looks whether the cap over all pools leaves room for waiters
CREATE_PAUSE = (1.0, 300.0)  # first and longest pause after a create that was refused or had no clear answer

__all__ = ["plan", "pool_pod"]


def plan(view: PoolView) -> Plan:
    """Everything one full pass wants done, the status that follows, and why."""
    if not view.ledger_ready:
        return _rebuilding(view)
    work = _start(view)
    back = Returns() if view.pool.hold else returns(view, work.found, dirty_budget=work.budget)
    dealt = _deal(work)
    aim = _target(work)
    if view.pool.hold:
        decision, rolled, creates = ScaleDecision(), rolled_out(work), []
        work.reasons.append("the pool is on hold: nothing is created, deleted or handed out")
    else:
        rolled = leave(work)
        decision = _size(work, dealt, rolled, aim)
        creates = _creates(work, decision)
    status = poolstatus.status(view, _findings(work, dealt, decision, rolled=rolled, aim=aim, back=back))
    actions: list[Action] = [*work.found.moves, *back.actions, *work.dooms, *creates, *_adopt(view)]
    actions += poolstatus.events(view, status)
    actions += _memory(work)
    for seconds in (back.again, aim.again):
        work.look_in(seconds)
    return Plan(
        actions=tuple(actions),
        status=status,
        reasons=(*back.reasons, *dealt.reasons, *work.reasons),
        again=work.again,
        facts={"held": len(work.found.held), "create": len(creates), "delete": len(work.dooms)},
    )


def _rebuilding(view: PoolView) -> Plan:
    """Nothing may be decided without the ledger; the counters that need none of it are told all the same."""
    live = [pod for pod in view.pods.values() if not pod.deleting]
    found = Findings(
        total=len(live),
        terminating=len(view.pods) - len(live),
        updated=sum(pod.revision == view.revision for pod in live),
        allocated=view.pool.counted("allocated"),
        waiting=len(view.waiting),
        unmet=sum(len(w.slots) for w in view.waiting),
        target=min(view.pool.buffer_min, view.pool.pool_max),
    )
    text = "allocations are being read from the cluster; nothing is decided meanwhile"
    return Plan(status=poolstatus.status(view, found), reasons=(text,), again=LOOK_AGAIN)


def _start(view: PoolView) -> Work:
    found = sort(view)
    stock = {pod.name: pod for pod in found.idle if pod.name not in found.evicting}
    base = len(found.held) + len(found.idle)
    work = Work(view, found, stock, view.pool.scale_unavailable.resolve(base))
    if found.moves:
        work.look_in(LOOK_AGAIN)
    if not view.mirror_fresh:
        work.look_in(LOOK_AGAIN)
        work.reasons.append("the mirror is stale: nothing is created or removed until it is fresh")
    return work


# -- the line ------------------------------------------------------------------------------------------------


def _deal(work: Work) -> Dealt:
    """What the fast pass would hand out now.

    Nothing is handed out here: sizing must not count those pods as idle.
    """
    view = work.view
    taken = taken_slots(view.entries)
    waiting = [
        replace(w, slots=tuple(slot for slot in w.slots if slot not in taken.get(w.box.uid, ())))
        for w in view.waiting
        if claims.effective_pool(w.box)[0] == view.pool.name  # one that moved away waits elsewhere
    ]
    held_by, for_ever = _holdings(view)
    if waiting and (held_by, for_ever) != (dict(view.memory.held_by_tenant), view.memory.held_for_ever):
        work.remember |= {"held_by_tenant": held_by, "held_for_ever": for_ever}
    counts: dict[str, int] = {}
    for entry in view.entries.values():
        counts[entry.state] = counts.get(entry.state, 0) + 1
    serve = ServeView(
        now=view.now,
        pool=view.pool,
        revision=view.revision,
        waiting=[w for w in waiting if w.slots],
        available=[pod for pod in work.stock.values() if pod.ready],
        counts=counts,
        held_by_tenant=held_by,
        held_for_ever=for_ever,
        create_failing=view.memory.create_error if view.memory.create_failures else "",
    )
    dealt = grants(serve)
    for grant in dealt.grants:
        for _, name, _ in grant.pods:
            work.found.held.append(work.stock.pop(name))
    if dealt.grants:
        work.look_in(LOOK_AGAIN)  # the fast pass hands them out; usually an event has asked for it already
    if dealt.timed_out:
        work.look_in(LOOK_AGAIN)
    return dealt


def _holdings(view: PoolView) -> tuple[dict[str, int], int]:
    """(pods by tenant, pods of sandboxes that neither end nor expire); tenants only under fair share."""
    label = view.pool.fairness.label if view.pool.fairness else ""
    by_tenant: dict[str, int] = {}
    for_ever = 0
    for entry in view.entries.values():
        box = view.boxes.get(entry.box_uid) if entry.state in ledger.TAKEN else None
        if box is None:
            continue
        if label:
            tenant = str(box.labels.get(label, ""))
            by_tenant[tenant] = by_tenant.get(tenant, 0) + 1
        for_ever += box.expire is None and box.deleting is None and not box.release_when_completed
    return by_tenant, for_ever


def _target(work: Work) -> Target:
    memory = work.view.memory
    return target(
        work.view.pool,
        work.view.now,
        per_second=memory.granted_per_second,
        lead=memory.lead_seconds,
        held=len(work.found.held),
    )


# -- how many ------------------------------------------------------------------------------------------------


def _numbers(work: Work, dealt: Dealt, rolled: Rollout) -> Numbers:
    found = work.found
    ready = sum(pod.ready for pod in work.stock.values())
    reserved = min(dealt.reserved, ready)
    doomed_now = {doom.name for doom in work.dooms}
    waiting_to_go = sum(1 for name in found.evicting if name not in doomed_now)
    fresh_dooms = sum(1 for doom in work.dooms if doom.from_state != ledger.DOOM)
    doomed = len(found.doomed) + fresh_dooms
    elsewhere = sum(1 for pod in work.view.pods.values() if pod.deleting) - sum(
        1 for pod in found.doomed if pod.deleting
    )
    return Numbers(
        held=len(found.held) + reserved,
        ready=ready - reserved,
        pending=len(work.stock) - ready + len(found.unseen),
        leaving=doomed + waiting_to_go + elsewhere + found.stranded,
        suspect=found.suspect,
        doomed=doomed,
        unseen=len(found.unseen) + len(found.late),
        supply=dealt.demand,
        rolling=sum(pod.ready for pod in rolled.replace),
    )


def _size(work: Work, dealt: Dealt, rolled: Rollout, aim: Target) -> ScaleDecision:
    view, pool = work.view, work.view.pool
    band = Band(
        target=aim.idle,
        buffer_max=pool.buffer_max,
        floor=aim.floor,
        pool_max=pool.pool_max,
        unavailable=pool.scale_unavailable,
        room=view.room,
    )
    numbers = _numbers(work, dealt, rolled)
    decision = scale(numbers, band)
    if not view.mirror_fresh:
        return replace(decision, create=0, delete=0, blocked="the mirror is stale", reasons=())
    chosen = victims(work.stock.values(), decision.delete, revision=view.revision, pending_limit=decision.spare_pending)
    work.doom(chosen, "scale-down")
    work.reasons.extend(decision.reasons)
    if view.room is not None and dealt.demand and decision.create >= view.room:
        work.look_in(CAP_LOOK)  # room that another pool makes is no event of this one
    if numbers.unseen and not view.memory.create_failures:
        work.look_in(REPEAT_AFTER)
    if view.memory.create_failures and not (numbers.unseen or decision.create or decision.blocked):
        work.remember |= {"create_failures": None, "create_failed_ms": None, "create_error": None}  # nothing is missing
    return decision


def _creates(work: Work, decision: ScaleDecision) -> list[CreatePod]:
    """New pods, and once more those whose POST has no known answer."""
    view = work.view
    if not view.pool.creatable or not view.mirror_fresh:
        return []
    names_ = [name for name in work.found.unseen if _age(view, name) >= REPEAT_AFTER]
    sent = _allowed(work, len(names_) + decision.create, unseen=bool(work.found.unseen))
    again = [CreatePod(name, pool_pod(view.pool, view.revision, name)) for name in names_[:sent]]
    count = min(decision.create, sent - len(again))
    fresh: list[CreatePod] = []
    supply = iter(view.names)
    while len(fresh) < count:
        name = next(supply)
        if name not in view.pods and name not in view.entries:
            fresh.append(CreatePod(name, pool_pod(view.pool, view.revision, name), intend=True))
    return [*again, *fresh]


def _age(view: PoolView, name: str) -> float:
    now_ms = to_ms(view.now)
    return (now_ms - view.since.get(name, now_ms)) / 1000


def _allowed(work: Work, wanted: int, *, unseen: bool = False) -> int:
    """How many POSTs go out: after a failure the pause doubles up to five minutes, and one pod tries first.

    `unseen`: a POST has no known answer; its name is looked for when the expectation ends, however long the pause.
    """
    memory = work.view.memory
    if not memory.create_failures or not (wanted or unseen):
        return wanted
    first, longest = CREATE_PAUSE
    pause = min(longest, first * 2 ** min(memory.create_failures - 1, 10))
    left = memory.create_failed_ms / 1000 + pause - to_ms(work.view.now) / 1000
    if 0 < left <= pause:
        work.look_in(min(left, work.view.expectation_timeout) if unseen else left)
        work.reasons.append(f"creates fail; the next try is in {left:.0f} s")
        return 0
    work.look_in(REPEAT_AFTER)
    return min(1, wanted)


# -- what is told --------------------------------------------------------------------------------------------


def _findings(
    work: Work, dealt: Dealt, decision: ScaleDecision, *, rolled: Rollout, aim: Target, back: Returns
) -> Findings:
    view, found = work.view, work.found
    owned = [pod for pod in view.pods.values() if not pod.deleting]
    granted = dealt.granted
    ready = sum(pod.ready for pod in found.idle if pod.name not in found.evicting)
    oldest = max((_age(view, name) for name in (*found.unseen, *found.late)), default=0.0)
    old = {pod.name for pod in owned if pod.revision != view.revision}
    held_old = sum(pod.name in old for pod in found.held)
    memory = view.memory
    serve = ServeView(now=view.now, pool=view.pool, revision=view.revision, counts=_counts(view))
    starting = next((cause(pod) for pod in found.idle if not pod.ready), "")
    recycle = next(iter(memory.recycle_errors.values()), "")
    if back.failed and not recycle:
        recycle = counted(len(back.failed), "pod") + " could not be recycled as configured and will be deleted"
    return Findings(
        total=len(owned),
        allocated=len(found.held) - granted,
        available=ready,
        updated=len(owned) - len(old),
        old=len(old) - held_old,
        held_old=held_old,
        starting=bool(found.unseen) or any(not pod.ready for pod in found.idle),
        pending=sum(not pod.ready for pod in found.idle),
        terminating=found.terminating,
        waiting=len({*dealt.waiting, *(grant.uid for grant in dealt.grants)}),
        unmet=dealt.unmet,
        target=aim.idle,
        target_reason=aim.reason,
        exhausted=dealt.unmet > 0 and (cannot_grow(serve, ready) or any(w.cannot_grow for w in dealt.waiting.values())),
        blocked=decision.blocked if oldest >= poolstatus.LONG_OPEN or not view.mirror_fresh else "",
        create_failing=memory.create_error if memory.create_failures else "",
        recycle_failing=recycle,
        starting_note=f"idle pods are not ready: {starting}" if starting else "",
    )


def _counts(view: PoolView) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in view.entries.values():
        counts[entry.state] = counts.get(entry.state, 0) + 1
    return counts


def _adopt(view: PoolView) -> list[PatchObject]:
    """Keep a revision taken over from the reference, so that later capacity edits do not lose it."""
    template = view.pool.template
    own = own_revision(template)
    kept = parse_adopted(view.pool.annotations.get(names.ADOPTED_REVISION))
    if view.revision == own or (kept is not None and kept == (own, view.revision)):
        return []
    patch = {"metadata": {"annotations": {names.ADOPTED_REVISION: format_adopted(template, view.revision)}}}
    why = "the pods of the former controller's revision stay"
    return [PatchObject("pool", view.pool.name, patch, version=view.pool.version, why=why)]


def _memory(work: Work) -> list[Remember]:
    now = tuple(identity for identity, _, _ in poolstatus.warnings(work.view))
    if now != tuple(work.view.memory.warned):
        work.remember["warned"] = now
    return [Remember(work.remember)] if work.remember else []
