"""Carry out the plan of one pool: ledger moves before deletes, intents before creates, acknowledgements last.

In: a `Plan`, the view and the raw sandboxes it was decided on. Out: `Applied`. Every action is independent: one that
fails is reported and does not stop the others (spec/pool.md 5.2); what it left open stays in the ledger's `todo` and
is repeated by the next pass. Next: the Pool's status, written last by `osb.reconcile.poolpass`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from osb.api import batchsandbox, claims, names
from osb.api.batchsandbox import BoxSpec
from osb.api.key import RECYCLE, Key
from osb.apply import pods as pod_writes
from osb.apply import release
from osb.apply.hand import Hand, in_parallel
from osb.apply.pods import Created
from osb.apply.release import Recycled
from osb.decide import plan as plans
from osb.decide.plan import Plan, names_text
from osb.errors import ApiError, Conflict, NotFound
from osb.facts.adds import Add
from osb.facts.ledger import DIRTY, HELD, REL, TAKEN, LedgerEntry
from osb.facts.poolview import PoolView
from osb.obs import metrics
from osb.store.ledger_types import Move, Proof

Obj = dict[str, Any]
RETRY_SECONDS = 1.0
RECYCLING = (REL, DIRTY)
ADOPT = "adopt"  # pinned by a rebuild on a pod that only needs to be touched (osb.reconcile.rebuild)


@dataclass(slots=True)
class Applied:
    """What was done, by word; `names`: the pods concerned; `again`: seconds until a repeat is needed."""

    counts: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    failed: list[ApiError] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    again: float | None = None

    @property
    def writes(self) -> int:
        return sum(self.counts.values())

    def count(self, word: str, pods: Sequence[str]) -> None:
        if pods:
            self.counts[word] = self.counts.get(word, 0) + len(pods)
            self.names += pods

    def retry(self, seconds: float = RETRY_SECONDS) -> None:
        self.again = seconds if self.again is None else min(self.again, seconds)


def pool_plan(hand: Hand, proof: Proof, view: PoolView, plan: Plan, *, raws: Mapping[str, Obj], pool: Obj) -> Applied:
    """Carry out `plan`. `raws`: raw sandboxes by UID, `pool`: the raw Pool. Raises Fenced when the key was lost."""
    one = _Executor(hand, proof, view, dict(raws), pool)
    for kind, group in groupby(plan.actions, key=type):
        one.run(kind, list(group))
    one.finish()
    return one.done


@dataclass(slots=True)
class _Executor:
    hand: Hand
    proof: Proof
    view: PoolView
    raws: dict[str, Obj]
    pool: Obj
    done: Applied = field(default_factory=Applied)
    recycled: list[Recycled] = field(default_factory=list)
    entries: dict[str, LedgerEntry] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.entries = dict(self.view.entries)

    def run(self, kind: type, group: list[Any]) -> None:
        handlers: dict[type, Callable[[list[Any]], None]] = {
            plans.Move: self._moves, plans.Doom: self._dooms, plans.Recycle: self._recycles,
            plans.CreatePod: self._creates, plans.DeletePod: self._deletes, plans.PatchPod: self._patch_pods,
            plans.EmitEvent: self._events, plans.Wake: self._wakes, plans.Remember: self._remember,
            plans.PatchObject: self._patch_objects, plans.Settle: self._settles, plans.Lose: self._loses,
        }  # fmt: skip
        if kind not in handlers:
            raise TypeError(f"{kind.__name__} is not an action of a pool plan")
        handlers[kind](group)

    # -- the ledger -------------------------------------------------------------------------------------------

    def _move(self, moves: Sequence[Move]) -> list[bool]:
        if not moves:
            return []
        self.hand.step("ledger-move")
        ledger = self.hand.store.ledger(self.hand.key.namespace, self.hand.key.name)
        results = ledger.move(self.proof, moves)
        for move, ok in zip(moves, results, strict=True):
            if ok:
                self._noted(move)
            else:
                self.done.retry(0.1)
        return results

    def _noted(self, move: Move) -> None:
        old = self.entries.pop(move.pod, None)
        if move.target != "-":
            base = old or LedgerEntry(state=move.target, pod_uid=move.pod_uid)
            self.entries[move.pod] = LedgerEntry(
                state=move.target, pod_uid=move.pod_uid, box_uid=base.box_uid, box=base.box, slot=base.slot,
                seq=base.seq, policy=move.policy or base.policy,
            )  # fmt: skip

    def _moves(self, group: list[plans.Move]) -> None:
        sure = [m for m in group if not (m.live or m.confirm_box)]
        unsure = [m for m in group if m.live or m.confirm_box]
        for m, holds in zip(unsure, in_parallel(self.hand, self._confirmed, unsure), strict=True):
            if isinstance(holds, ApiError):
                self._failed(holds)
            elif holds:
                sure.append(m)
        before = {m.name: self.entries.get(m.name) for m in sure}
        results = self._move([_ledger_move(m) for m in sure])
        gone = [m.name for m, ok in zip(sure, results, strict=True) if ok]
        self._record_losses([entry for name in gone if (entry := before[name]) is not None and entry.state == HELD
                             and name not in self.entries])  # fmt: skip
        if gone:
            self.done.retry(0.05)  # what these moves make possible is decided on the ledger as it is now

    def _settles(self, group: list[plans.Settle]) -> None:
        """Reservations are settled at the start of a pass; one that is open here is the next pass's business."""
        self.done.retry(0.2)

    def _confirmed(self, move: plans.Move) -> bool:
        """Does the reason still hold by a live read? Absence in a copy proves nothing for what a sandbox has."""
        if move.confirm_box:
            return self._box_let_go(move)
        pod = pod_writes.live_pod(self.hand, self.hand.key.namespace, move.name, uid=move.uid)
        if pod is None:
            return True
        ended = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
        return ended or bool(pod["metadata"].get("deletionTimestamp"))

    def _box_let_go(self, move: plans.Move) -> bool:
        """True when the live sandbox is gone, or its record does not claim this pod below its replicas any more."""
        entry = self.entries.get(move.name)
        try:
            name = entry.box.rpartition("/")[2] if entry is not None else ""
            raw = self.hand.kube.get("batchsandbox", self.hand.key.namespace, name)
        except NotFound:
            return True
        spec = batchsandbox.parse(raw)
        if spec.uid != move.box_uid or claims.effective_pool(spec)[0] != self.view.pool.name:
            return True
        held = claims.claims(spec)
        return not any(
            name == move.name and slot < spec.replicas and (not uid or move.uid.startswith(uid))
            for slot, (name, uid) in held.items()
        )

    # -- losses -----------------------------------------------------------------------------------------------

    def _loses(self, group: list[plans.Lose]) -> None:
        """Believed only if the live Pool is the one that this pass is about, and the named pods are really gone."""
        live = self.hand.kube.get("pool", self.hand.key.namespace, self.hand.key.name)
        if live["metadata"]["uid"] != self.view.pool.uid:
            self.done.retry(0.1)
            return
        believed = [lost for lost in group if all(self._pod_is_gone(*pod) for pod in lost.pods)]
        if len(believed) < len(group):
            self.done.retry()
        ledger = self.hand.store.ledger(self.hand.key.namespace, self.hand.key.name)
        ledger.prove(self.proof)
        self._record_losses([
            LedgerEntry(state=HELD, pod_uid="", box_uid=lost.box_uid, slot=slot)
            for lost in believed for slot in lost.slots
        ])  # fmt: skip

    def _pod_is_gone(self, name: str, prefix: str) -> bool:
        pod = pod_writes.live_pod(self.hand, self.hand.key.namespace, name)
        return pod is None or not str(pod["metadata"]["uid"]).startswith(prefix)

    def _record_losses(self, lost: Sequence[LedgerEntry]) -> None:
        by_box: dict[str, list[int]] = {}
        for entry in lost:
            raw = self.raws.get(entry.box_uid)
            if raw is not None and not raw["metadata"].get("deletionTimestamp"):
                by_box.setdefault(entry.box_uid, []).append(entry.slot)

        def one(item: tuple[str, list[int]]) -> Obj | None:
            return release.record_loss(self.hand, self.raws[item[0]], item[1])

        for (uid, slots), stored in zip(by_box.items(), in_parallel(self.hand, one, by_box.items()), strict=True):
            if isinstance(stored, ApiError):
                self._failed(stored)
                continue
            if stored is not None:
                self._stored(uid, stored)
                self._say_lost(stored, slots)

    def _say_lost(self, raw: Obj, slots: Sequence[int]) -> None:
        policy = (raw.get("spec") or {}).get("lostPodPolicy") or names.LOST_REPLACE
        metrics.inc("opensandbox_lost_pods_total", len(slots), policy=policy)
        text = f"Lost the pod of slot {', '.join(map(str, slots))}: its state is gone"
        self.hand.events.emit(raw, "Warning", names.POD_LOST, text, component=names.COMPONENT_POOL)
        self.hand.store.queue.add([self._box_key(raw, "a pod is lost")])
        self.done.retry(0.05)

    def _box_key(self, raw: Obj, reason: str) -> Add:
        meta = raw["metadata"]
        return Add(key=Key("batchsandbox", meta["namespace"], meta["name"]), reason=reason)

    def _stored(self, uid: str, raw: Obj, *, base: str = "") -> None:
        """`base`: the version that was patched, when it was read afresh: then somebody else's change may be in it."""
        known = self.raws.get(uid)
        decided = not base or (known is not None and known["metadata"]["resourceVersion"] == base)
        self.raws[uid] = raw
        self.hand.forward.put("batchsandbox", [raw], own=self.hand.key, versioned=decided)

    # -- idle pods --------------------------------------------------------------------------------------------

    def _dooms(self, group: list[plans.Doom]) -> None:
        """Out of the stock first, then deleted: a planned delete cannot hit a pod that was given away meanwhile."""
        moves = [
            Move(what="doom", pod=d.name, pod_uid=d.uid, from_state=d.from_state, box_uid=self._box_uid(d.name))
            for d in group
            if d.from_state != "doom"
        ]
        self._move(moves)
        doomed = [d for d in group if (e := self.entries.get(d.name)) is not None and e.state == "doom"]

        def delete(d: plans.Doom) -> bool:
            return pod_writes.delete_pod(self.hand, self.hand.key.namespace, d.name, uid=d.uid, version=d.version)

        self._deleted(doomed, in_parallel(self.hand, delete, doomed))

    def _box_uid(self, pod: str) -> str:
        entry = self.entries.get(pod)
        return entry.box_uid if entry is not None else ""

    def _deleted(self, doomed: Sequence[plans.Doom], results: Sequence[bool | ApiError]) -> None:
        removed: list[str] = []
        gone: list[Move] = []
        for d, result in zip(doomed, results, strict=True):
            if isinstance(result, ApiError):
                self._failed(result)
                if not isinstance(result, Conflict):
                    self._tell("Warning", names.EVENT_FAILED_DELETE, f"Failed to delete pool pod {d.name}: {result}")
                continue
            removed.append(d.name)
            if result:
                gone.append(
                    Move(
                        what="gone",
                        pod=d.name,
                        pod_uid=d.uid,
                        from_state="doom",
                        box_uid=self._box_uid(d.name),
                    )
                )
        self._move(gone)
        self.done.count("deleted", removed)
        if removed:
            causes = sorted({d.why for d in doomed if d.name in set(removed)})
            self._tell("Normal", names.EVENT_SUCCESSFUL_DELETE,
                       f"Deleted {len(removed)} pool pod(s) ({'; '.join(causes)}): {names_text(removed)}")  # fmt: skip
            self._tell_left([d for d in doomed if d.name in set(removed)])

    def _tell_left(self, left: Sequence[plans.Doom]) -> None:
        """Evictions and rollouts under the reasons that users know, told when the deletes are done."""
        evicted = [d.name for d in left if d.reason == names.EVENT_POD_EVICTED]
        replaced = [d.name for d in left if d.reason == names.EVENT_POD_UPDATED]
        if evicted:
            what = "Evicted idle pod" if len(evicted) == 1 else f"Evicted {len(evicted)} idle pods"
            self._tell("Normal", names.EVENT_POD_EVICTED, f"{what}: {names_text(evicted)}")
        if replaced:
            text = f"deleted {len(replaced)} pod(s) for revision {self.view.revision}: {names_text(replaced)}"
            self._tell("Normal", names.EVENT_POD_UPDATED, f"Rolling update: {text}")

    def _deletes(self, group: list[plans.DeletePod]) -> None:
        def delete(d: plans.DeletePod) -> bool:
            return pod_writes.delete_pod(
                self.hand, self.hand.key.namespace, d.name, uid=d.uid, version=d.version, grace=d.grace
            )

        for d, result in zip(group, in_parallel(self.hand, delete, group), strict=True):
            if isinstance(result, ApiError):
                self._failed(result)
            else:
                self.done.count("deleted", [d.name])

    # -- new pods ---------------------------------------------------------------------------------------------

    def _creates(self, group: list[plans.CreatePod]) -> None:
        """Names into the ledger, then one POST each; the answer is the observation (spec/pitfalls.md 18)."""
        ledger = self.hand.store.ledger(self.hand.key.namespace, self.hand.key.name)
        fresh = [c.name for c in group if c.intend and c.name not in self.entries]
        if fresh and not ledger.intend(self.proof, self.view.pool.pool_max, fresh):
            self.done.retry(0.2)
            return
        self.hand.step("intended")

        def create(c: plans.CreatePod) -> Created:
            return pod_writes.create_pod(self.hand, self.hand.key.namespace, c.name, c.body, owner=self.view.pool.uid)

        results = self._create_all(group, create)
        made = [r.pod for r in results if isinstance(r, Created) and r.pod is not None]
        self._born(made, read=[r.pod for r in results if isinstance(r, Created) and r.pod is not None and r.read])
        self._not_born([(c.name, r) for c, r in zip(group, results, strict=True)])

    def _create_all(
        self, group: list[plans.CreatePod], create: Callable[[plans.CreatePod], Created]
    ) -> list[Created | ApiError | None]:
        """In growing steps, and no further after a definite refusal: quota and admission refuse them all alike."""
        results: list[Created | ApiError | None] = []
        step = 1
        while len(results) < len(group):
            part = group[len(results) : len(results) + step]
            answers = in_parallel(self.hand, create, part)
            results += answers
            if any(isinstance(a, ApiError) and a.definite for a in answers):
                results += [None] * (len(group) - len(results))
            step = min(step * 4, 64)
        return results

    def _born(self, made: list[Obj], *, read: list[Obj]) -> None:
        """`read`: those that an earlier POST had made; they may be ready by now, which is news."""
        if not made:
            return
        self.hand.step("created")
        fresh = [pod for pod in made if pod not in read]
        for pods, versioned in ((fresh, True), (read, False)):
            if pods:
                self.hand.forward.put("poolpod", pods, own=self.hand.key, versioned=versioned)
        self._move([
            Move(what="born", pod=pod["metadata"]["name"], pod_uid=pod["metadata"]["uid"], from_state="new")
            for pod in made
        ])  # fmt: skip
        made_names = [pod["metadata"]["name"] for pod in made]
        self.done.count("created", made_names)
        self.done.memory.update(create_failures=None, create_failed_ms=None, create_error=None)
        self._tell(
            "Normal",
            names.EVENT_SUCCESSFUL_CREATE,
            f"Created {len(made)} pool pod(s): {names_text(made_names)}",
        )

    def _not_born(self, results: Sequence[tuple[str, Created | ApiError | None]]) -> None:
        """Names whose POST was definitely refused, or never sent, leave the ledger; unclear ones stay `new`."""
        drop: list[Move] = []
        refused: list[ApiError] = []
        for name, result in results:
            if result is None or (isinstance(result, Created) and result.pod is None):
                drop.append(Move(what="gone", pod=name, pod_uid="", from_state="new"))
            elif isinstance(result, ApiError):
                self._failed(result)
                if result.definite:
                    drop.append(Move(what="gone", pod=name, pod_uid="", from_state="new"))
                    refused.append(result)
        self._move(drop)
        if refused:
            memory = self.view.memory
            self.done.memory.update(
                create_failures=memory.create_failures + 1,
                create_failed_ms=int(self.view.now.timestamp() * 1000),
                create_error=str(refused[0])[:500],
            )
            self._tell("Warning", names.EVENT_FAILED_CREATE, f"Failed to create pool pod: {refused[0]}")

    # -- returned pods ----------------------------------------------------------------------------------------

    def _recycles(self, group: list[plans.Recycle]) -> None:
        todo = [r for r in group if (e := self.entries.get(r.name)) is not None and e.policy != ADOPT]
        if len(todo) < len(group):
            self.done.retry(0.05)
        by_step = {step: [r for r in todo if r.step == step] for step in ("delete", "attempt", "free", "gone")}
        for r in by_step["attempt"]:
            key = Key(RECYCLE, self.hand.key.namespace, r.name)
            self.hand.store.queue.add([Add(key=key, reason=f"restart for {self.hand.key.name}: {r.why}")])
        self._recycle_by_delete(by_step["delete"])
        for r in by_step["free"]:
            self._is_recycled(r, gone=False)
        confirmed = in_parallel(self.hand, self._is_gone, by_step["gone"])
        for r, gone in zip(by_step["gone"], confirmed, strict=True):
            if isinstance(gone, ApiError):
                self._failed(gone)
            elif gone:
                self._is_recycled(r, gone=True)

    def _recycle_by_delete(self, every: list[plans.Recycle]) -> None:
        limit = self.hand.settings.recycle_concurrency
        group = every[:limit]
        if len(every) > limit:
            self.done.retry(0.05)
        ledger = self.hand.store.ledger(self.hand.key.namespace, self.hand.key.name)

        def delete(r: plans.Recycle) -> bool | None:
            if not ledger.prove(self.proof, r.name, pod_uid=r.uid, state=r.from_state, box_uid=r.box_uid):
                return None
            version = r.version if r.from_state == DIRTY else ""  # its policy is not pinned: somebody may adopt it
            return pod_writes.delete_pod(self.hand, self.hand.key.namespace, r.name, uid=r.uid, version=version)

        for r, gone in zip(group, in_parallel(self.hand, delete, group), strict=True):
            if isinstance(gone, ApiError):
                self._failed(gone)
                self._recycle_failed(r.name, str(gone)[:200])
            elif gone:
                self._is_recycled(r, gone=True)
            self.done.count("recycling", [r.name])

    def _recycle_failed(self, pod: str, cause: str) -> None:
        """Told once a pod and cause, however often it is tried."""
        if self.view.memory.recycle_errors.get(pod) != cause:
            self._tell("Warning", names.EVENT_FAILED_RECYCLE, f"Failed to recycle pod {pod}: {cause}")
        self.errors[pod] = cause

    def _remember_errors(self) -> None:
        """Of earlier failures those stay whose pod is still to be recycled."""
        before = self.view.memory.recycle_errors
        done = {one.pod for one in self.recycled}
        open_ = {pod for pod, entry in self.entries.items() if entry.state in RECYCLING} - done
        now = {pod: cause for pod, cause in {**before, **self.errors}.items() if pod in open_}
        if now != before:
            self.done.memory["recycle_errors"] = now or None

    def _is_gone(self, r: plans.Recycle) -> bool:
        return pod_writes.live_pod(self.hand, self.hand.key.namespace, r.name, uid=r.uid) is None

    def _is_recycled(self, r: plans.Recycle, *, gone: bool) -> None:
        entry = self.entries.get(r.name)
        if entry is not None and entry.pod_uid == r.uid:
            self.recycled.append(Recycled(r.name, entry, gone))

    # -- small things -----------------------------------------------------------------------------------------

    def _patch_pods(self, group: list[plans.PatchPod]) -> None:
        def patch(action: plans.PatchPod) -> Obj | None:
            body = {**action.patch}
            if action.version:
                body["metadata"] = {**body.get("metadata", {}), "resourceVersion": action.version}
            try:
                return self.hand.kube.patch("pod", self.hand.key.namespace, action.name, body)
            except NotFound:
                return None

        results = in_parallel(self.hand, patch, group)
        stored = [r for r in results if isinstance(r, dict)]
        if stored:
            self.hand.forward.put("poolpod", stored, own=self.hand.key, versioned=True)
        for r in results:
            if isinstance(r, ApiError):
                self._failed(r)
        self.done.count("patched", [action.name for action in group])

    def _patch_objects(self, group: list[plans.PatchObject]) -> None:
        for action in group:
            body: Any = list(action.patch) if isinstance(action.patch, tuple) else dict(action.patch)
            if action.version and isinstance(body, dict):
                body["metadata"] = {**body.get("metadata", {}), "resourceVersion": action.version}
            self.hand.check()
            try:
                stored = self.hand.kube.patch(
                    action.kind,
                    self.hand.key.namespace,
                    action.name,
                    body,
                    sub=action.sub,
                    content=action.content,
                )
            except ApiError as error:
                self._failed(error)
                continue
            self.done.count("patched", [action.name])
            uid = str(stored["metadata"].get("uid"))
            if uid in self.raws:
                self.raws[uid] = stored
            if action.kind in ("pool", "batchsandbox"):
                self.hand.forward.put(action.kind, [stored], own=self.hand.key, versioned=bool(action.version))

    def _events(self, group: list[plans.EmitEvent]) -> None:
        by_name = {raw["metadata"]["name"]: raw for raw in self.raws.values()}
        for action in group:
            target = self.pool if action.kind == "pool" else by_name.get(action.name)
            if target is not None:
                self.hand.events.emit(
                    target, action.type, action.reason, action.message, component=names.COMPONENT_POOL
                )

    def _wakes(self, group: list[plans.Wake]) -> None:
        self.hand.store.queue.add(
            Add(
                key=Key(w.kind, self.hand.key.namespace, w.name),
                reason=w.reason,
                after=w.after,
                deep=w.after is not None,
            )
            for w in group
        )

    def _remember(self, group: list[plans.Remember]) -> None:
        for action in group:
            self.done.memory.update(action.values)

    def _tell(self, type_: Any, reason: str, message: str) -> None:
        self.hand.events.emit(self.pool, type_, reason, message)

    def _failed(self, error: ApiError) -> None:
        self.done.failed.append(error)
        self.done.retry(error.retry_after or (0.1 if isinstance(error, Conflict) else RETRY_SECONDS))

    # -- acknowledgements, last -------------------------------------------------------------------------------

    def finish(self) -> None:
        """Acknowledge what is recycled, then let go of sandboxes of which nothing is held."""
        self._remember_errors()
        nobodys = [one for one in self.recycled if not one.entry.box_uid]
        self._move(release.moves_of(nobodys))
        by_box: dict[str, list[Recycled]] = {}
        for one in self.recycled:
            if one.entry.box_uid:
                by_box.setdefault(one.entry.box_uid, []).append(one)

        def acknowledge(item: tuple[str, list[Recycled]]) -> release.Acknowledged:
            return release.acknowledge(self.hand, self.proof, item[0], item[1])

        freed: list[str] = [one.pod for one in nobodys]
        for (uid, _), answer in zip(by_box.items(), in_parallel(self.hand, acknowledge, by_box.items()), strict=True):
            if isinstance(answer, ApiError):
                self._failed(answer)
                continue
            self._move(answer.moves)
            freed += answer.pods
            if answer.stored is not None:
                self._stored(uid, answer.stored, base=answer.base)
        self.done.count("released", freed)
        if freed:
            self._tell("Normal", names.EVENT_POD_RECYCLED, f"Recycled {len(freed)} pod(s): {names_text(freed)}")
        self._let_go()

    def _let_go(self) -> None:
        """Sandboxes of which the ledger has nothing any more and that still wait for an answer."""
        mine: dict[str, set[str]] = {}
        for name, entry in self.entries.items():
            if entry.box_uid and entry.state in TAKEN:
                mine.setdefault(entry.box_uid, set()).add(name)
        todo = [
            (uid, owed)
            for uid, raw in self.raws.items()
            if (spec := self._current(uid, raw)) is not None
            and (owed := release.owed(spec, mine.get(uid, set()), pool=self.view.pool.name)) is not None
        ]

        if todo:  # the ledger said so when the pass began; a pass that was overtaken since must not write it
            self.hand.store.ledger(self.hand.key.namespace, self.hand.key.name).prove(self.proof)

        def one(item: tuple[str, tuple[str, ...]]) -> Obj | None:
            return release.finish(self.hand, self.raws[item[0]], item[1])

        for (uid, _), stored in zip(todo, in_parallel(self.hand, one, todo), strict=True):
            if isinstance(stored, ApiError):
                self._failed(stored)
            elif stored is not None:
                self._stored(uid, stored)
                self.done.count("let go", [stored["metadata"]["name"]])

    def _current(self, uid: str, raw: Obj) -> BoxSpec | None:
        """What decisions see of a sandbox as it is now; parsed again only if this pass wrote to it."""
        spec = self.view.boxes.get(uid)
        if spec is not None and spec.version == raw["metadata"]["resourceVersion"]:
            return spec if release.unanswered(spec) else None
        return batchsandbox.parse(raw)


def _ledger_move(m: plans.Move) -> Move:
    return Move(what=m.what, pod=m.name, pod_uid=m.uid, from_state=m.from_state, box_uid=m.box_uid, policy=m.policy,
                to="dirty" if m.what == "cancel" else "")  # fmt: skip
