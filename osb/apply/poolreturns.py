"""Pods that come back: recycled, acknowledged on their sandbox, freed in the ledger, in this order.

Next: sandboxes of which nothing is held any more are let go.
"""

from __future__ import annotations

from functools import partial

from osb.api import batchsandbox, names
from osb.api.batchsandbox import BoxSpec
from osb.api.key import RECYCLE, Key
from osb.apply import pods as pod_writes
from osb.apply import release
from osb.apply.hand import in_parallel
from osb.apply.poolwork import ADOPT, RECYCLING, RELEASED, Obj, PoolWork
from osb.apply.release import Recycled
from osb.decide import plan as plans
from osb.decide.plan import names_text
from osb.errors import ApiError
from osb.facts.adds import Add
from osb.facts.ledger import DIRTY, TAKEN


def recycles(work: PoolWork, group: list[plans.Recycle]) -> None:
    todo = [r for r in group if (e := work.entries.get(r.name)) is not None and e.policy != ADOPT]
    if len(todo) < len(group):
        work.done.retry(0.05)
    by_step = {step: [r for r in todo if r.step == step] for step in ("delete", "attempt", "free", "gone")}
    for r in by_step["attempt"]:
        key = Key(RECYCLE, work.hand.key.namespace, r.name)
        work.hand.store.queue.add([Add(key=key, reason=f"restart for {work.hand.key.name}: {r.why}")])
    _recycle_by_delete(work, by_step["delete"])
    for r in by_step["free"]:
        _is_recycled(work, r, gone=False)
    confirmed = in_parallel(work.hand, partial(_is_gone, work), by_step["gone"])
    for r, gone in zip(by_step["gone"], confirmed, strict=True):
        if isinstance(gone, ApiError):
            work.failed(gone)
        elif gone:
            _is_recycled(work, r, gone=True)


def _recycle_by_delete(work: PoolWork, every: list[plans.Recycle]) -> None:
    limit = work.hand.settings.recycle_concurrency
    group = every[:limit]
    if len(every) > limit:
        work.done.retry(0.05)
    ledger = work.hand.store.ledger(work.hand.key.namespace, work.hand.key.name)

    def delete(r: plans.Recycle) -> bool | None:
        if not ledger.prove(work.proof, r.name, pod_uid=r.uid, state=r.from_state, box_uid=r.box_uid):
            return None
        version = r.version if r.from_state == DIRTY else ""  # its policy is not pinned: somebody may adopt it
        return pod_writes.delete_pod(work.hand, work.hand.key.namespace, r.name, uid=r.uid, version=version)

    for r, gone in zip(group, in_parallel(work.hand, delete, group), strict=True):
        if isinstance(gone, ApiError):
            work.failed(gone)
            _recycle_failed(work, r.name, str(gone)[:200])
        elif gone:
            _is_recycled(work, r, gone=True)
        work.done.count("recycling", [r.name])


def _recycle_failed(work: PoolWork, pod: str, cause: str) -> None:
    """Note why a pod could not be recycled.

    Users are told once for each pod and cause, however often it is tried.
    """
    if work.view.memory.recycle_errors.get(pod) != cause:
        work.tell("Warning", names.EVENT_FAILED_RECYCLE, f"Failed to recycle pod {pod}: {cause}")
    work.errors[pod] = cause


def _remember_errors(work: PoolWork) -> None:
    """Keep, of earlier and new failures, those whose pod is still to be recycled."""
    before = work.view.memory.recycle_errors
    done = {one.pod for one in work.recycled}
    open_ = {pod for pod, entry in work.entries.items() if entry.state in RECYCLING} - done
    now = {pod: cause for pod, cause in {**before, **work.errors}.items() if pod in open_}
    if now != before:
        work.done.memory["recycle_errors"] = now or None


def _is_gone(work: PoolWork, r: plans.Recycle) -> bool:
    return pod_writes.live_pod(work.hand, work.hand.key.namespace, r.name, uid=r.uid) is None


def _is_recycled(work: PoolWork, r: plans.Recycle, *, gone: bool) -> None:
    entry = work.entries.get(r.name)
    if entry is not None and entry.pod_uid == r.uid:
        work.recycled.append(Recycled(r.name, entry, gone))


def finish(work: PoolWork) -> None:
    """Acknowledge what is recycled, then let go of sandboxes of which nothing is held."""
    _remember_errors(work)
    nobodys = [one for one in work.recycled if not one.entry.box_uid]
    work.move(release.moves_of(nobodys))
    by_box: dict[str, list[Recycled]] = {}
    for one in work.recycled:
        if one.entry.box_uid:
            by_box.setdefault(one.entry.box_uid, []).append(one)

    def acknowledge(item: tuple[str, list[Recycled]]) -> release.Acknowledged:
        return release.acknowledge(work.hand, work.proof, item[0], item[1])

    freed: list[str] = [one.pod for one in nobodys]
    for (uid, _), answer in zip(by_box.items(), in_parallel(work.hand, acknowledge, by_box.items()), strict=True):
        if isinstance(answer, ApiError):
            work.failed(answer)
            continue
        work.move(answer.moves)
        freed += answer.pods
        if answer.stored is not None:
            work.stored(uid, answer.stored, base=answer.base)
    work.done.count(RELEASED, freed)
    if freed:
        work.tell("Normal", names.EVENT_POD_RECYCLED, f"Recycled {len(freed)} pod(s): {names_text(freed)}")
    _let_go(work)


def _let_go(work: PoolWork) -> None:
    """Sandboxes of which the ledger has nothing any more and that still wait for an answer."""
    mine: dict[str, set[str]] = {}
    for name, entry in work.entries.items():
        if entry.box_uid and entry.state in TAKEN:
            mine.setdefault(entry.box_uid, set()).add(name)
    todo = [
        (uid, owed)
        for uid, raw in work.raws.items()
        if (spec := _current(work, uid, raw)) is not None
        and (owed := release.owed(spec, mine.get(uid, set()), pool=work.view.pool.name)) is not None
    ]

    if todo:  # the ledger said so when the pass began; a pass that was overtaken since must not write it
        work.hand.store.ledger(work.hand.key.namespace, work.hand.key.name).prove(work.proof)

    def one(item: tuple[str, tuple[str, ...]]) -> Obj | None:
        return release.finish(work.hand, work.raws[item[0]], item[1])

    for (uid, _), stored in zip(todo, in_parallel(work.hand, one, todo), strict=True):
        if isinstance(stored, ApiError):
            work.failed(stored)
        elif stored is not None:
            work.stored(uid, stored)
            work.done.count("let go", [stored["metadata"]["name"]])


def _current(work: PoolWork, uid: str, raw: Obj) -> BoxSpec | None:
    """What decisions see of a sandbox as it is now; parsed again only if this pass wrote to it."""
    spec = work.view.boxes.get(uid)
    if spec is not None and spec.version == raw["metadata"]["resourceVersion"]:
        return spec if release.unanswered(spec) else None
    return batchsandbox.parse(raw)
