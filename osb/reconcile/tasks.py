"""Poll the executors of one sandbox and drive its tasks: gather, ask, decide, store, write, call.

In: the key tasks/ns/sandbox. It never writes the sandbox's status: when counters or results changed it asks
for the sandbox's own key, whose pass writes them (`osb.decide.tasks.summary`). What is decided stands in
`osb.decide.tasks`; the calls are made by `osb.apply.tasks`, the annotation patch by `osb.apply.taskrecord`.

The order of steps makes a stop between any two of them harmless: nodes are stored before a call is made,
results are on the object before an executor is told to forget them, and the finalizer goes last. Network
trouble with an executor is never an error of the pass (spec/tasks.md 4, 8).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from osb.api import batchsandbox, claims, names
from osb.api.batchsandbox import BoxSpec
from osb.api.key import BATCHSANDBOX, Key
from osb.apply.hand import Hand
from osb.apply.pods import delete_pod
from osb.apply.taskrecord import Wanted, live_box, slots, write_record
from osb.apply.tasks import Executors, Order, shared
from osb.decide import tasks
from osb.decide.plan import EventType, names_text
from osb.decide.taskasks import asks
from osb.decide.taskgen import generate_all
from osb.decide.tasknode import Answer, Node
from osb.decide.taskview import DELETE, HOLD, PAUSE, RUN, Call, DriveView, Intent, Step
from osb.errors import ApiError, Conflict
from osb.facts.adds import Add
from osb.reconcile.contract import After, Done, Outcome
from osb.reconcile.taskpods import FRESH_MS, Pods, checker, find_pods

PASS_BUDGET = 10.0  # seconds that one pass waits for executors
ASK_SHARE = 6.5  # of these, for asking
WAIT_FOR_FINALIZER = 1.0
AFTER_FAILED_WRITE = 3.0
QUICK = 0.3  # a pass this short does not shorten the wait for the next

Obj = dict[str, Any]


def reconcile(hand: Hand, key: Key | None = None, *, executors: Executors | None = None) -> Outcome:
    """One pass over the tasks of one sandbox. `executors` is for tests."""
    key = key or hand.key
    obj = _read(hand, key)
    if obj is None:
        return Done(summary="no such sandbox")
    box = batchsandbox.parse(obj)
    intent = intent_of(box)
    idle = _nothing_to_do(hand, box, intent)
    if idle is not None:
        return idle
    one = _Pass(hand, obj, box, intent, executors or shared(hand.settings.executor_token))
    return one.run()


def intent_of(box: BoxSpec) -> Intent:
    """What is to become of the tasks, from the object alone."""
    if box.deleting is not None:
        return DELETE
    if box.phase == names.PAUSING:
        return PAUSE
    return HOLD if box.phase == names.PAUSED else RUN


def _read(hand: Hand, key: Key) -> Obj | None:
    reading = hand.store.mirror.read("batchsandbox", [key.member])
    entry = reading.entries.get(key.member)
    if entry is not None and reading.fresh(FRESH_MS):
        obj: Obj = orjson.loads(entry.doc)
        return obj
    return live_box(hand, key.namespace, key.name)


def _nothing_to_do(hand: Hand, box: BoxSpec, intent: Intent) -> Outcome | None:
    held = names.FINALIZER_TASKS in box.finalizers
    if intent == HOLD:
        hand.store.tasks.drop(box.uid)
        return Done(summary="paused: no tasks run")
    if intent == DELETE:
        if not held:
            hand.store.tasks.drop(box.uid)
            return Done(summary="deleting: no tasks left to stop")
        return None
    if box.task_template is None:
        return Done(summary="no task template")
    if not held:
        _wake(hand, box, "the task finalizer is missing")
        return After(seconds=WAIT_FOR_FINALIZER, summary="waits for the task finalizer")
    return None


def _given_up(box: BoxSpec) -> tuple[int, ...]:
    """Slots whose pod is lost and that get no other one."""
    return box.record.failed if box.record is not None and box.lost_policy == names.LOST_FAIL else ()


def _doomed(box: BoxSpec, slot: int) -> bool:
    """Whether the slot is given up when its pod is lost (spec/additions.md 2.1), or was."""
    return box.lost_policy == names.LOST_FAIL and (claims.delivered(box, slot) or slot in _given_up(box))


def _wake(hand: Hand, box: BoxSpec, reason: str) -> None:
    key = Key(BATCHSANDBOX, box.namespace, box.name)
    hand.store.queue.add([Add(key=key, cls="now", reason=reason)])


@dataclass(slots=True)
class _Pass:
    """The state of one pass; each method is one step of the recipe in `run`."""

    hand: Hand
    obj: Obj
    box: BoxSpec
    intent: Intent
    executors: Executors
    started: float = 0.0
    failed: str = ""
    wrote: bool = False

    def run(self) -> Outcome:
        self.started = time.monotonic()
        nodes = self.hand.store.tasks.get_all(self.box.uid, Node)
        found = find_pods(self.hand, self.box)
        view = self._ask(self._view(nodes, found))
        step = tasks.step(view)
        self._store(nodes, step.nodes)
        if not self._write(step):
            self.hand.store.tasks.drop(self.box.uid)
            return Done(summary="the sandbox is gone", progress=True)
        calls = self._allowed(step, found)
        after = self._call(step, calls, found)
        self._latch(view, step.nodes, after)
        if not self.failed:
            self._delete(step)
        self._tell(step)
        if step.finished and not self.failed:
            self.hand.store.tasks.drop(self.box.uid)
            return Done(summary="all tasks are stopped, finalizer removed", progress=True)
        return self._outcome(step, nodes, after, calls=len(calls))

    # -- gather and ask ----------------------------------------------------------------------------------

    def _view(self, nodes: dict[int, Node], found: Pods) -> DriveView:
        box, began = self.box, self.hand.now().timestamp()
        generated = {}
        if self.intent == RUN:
            generated = generate_all(box.name, box.replicas, template=box.task_template, patches=box.shard_task_patches)
        pods = {uid: pod if uid in found.allowed else replace(pod, usable=False) for uid, pod in found.pods.items()}
        return DriveView(
            box=box.name,
            replicas=box.replicas,
            intent=self.intent,
            release=box.release_when_completed,
            pooled=claims.pooled(box),
            now=began,
            began=began,
            pods=pods,
            nodes=nodes,
            tasks=generated,
            results=tasks.results_of(box),
            recorded=frozenset(box.record.pods if box.record is not None else ()),
            given=frozenset(box.release),
            slots=slots(box),
            ran=bool(box.status.get("taskRunning")),
            doomed=frozenset(slot for slot in range(box.replicas) if _doomed(box, slot)),
            lost=frozenset(slot for slot in _given_up(box) if slot < box.replicas),
            stop_timeout=self.hand.settings.task_stop_timeout,
        )

    def _ask(self, view: DriveView) -> DriveView:
        self.hand.step("ask")
        uids = asks(view)
        answers = self.executors.ask({at: view.pods[uid].ip for at, uid in enumerate(uids)}, budget=ASK_SHARE)
        by_uid = {uids[at]: answer for at, answer in answers.items()}
        return replace(view, answers=by_uid, now=self.hand.now().timestamp())

    # -- carry out ---------------------------------------------------------------------------------------

    def _store(self, before: Mapping[int, Node], after: Mapping[int, Node]) -> None:
        changed = {i: node for i, node in after.items() if before.get(i) != node}
        gone = [i for i in before if i not in after]
        if changed or gone:
            self.hand.check()
            self.hand.step("store")
            self.hand.store.tasks.set_many(self.box.uid, changed, drop=gone)

    def _write(self, step: Step) -> bool:
        """Results, release list and finalizer in one patch. False when the sandbox is gone."""
        wanted = Wanted(
            results=step.results, give=step.give, force=step.force, reopen=step.reopen, finish=step.finished
        )
        if wanted == Wanted():
            return True
        try:
            wrote = self._record(wanted)
        except Conflict as conflict:
            self.failed = str(conflict)
            return True
        except ApiError as error:
            self.failed = str(error)
            if step.give:
                self._event("Warning", names.EVENT_FAILED_RELEASE, f"Failed to release pods: {error}")
            return True
        if wrote is None:
            return False
        if wrote and step.give:
            text = f"Released {len(step.give)} pod(s) back to pool: {names_text(list(step.give))}"
            self._event("Normal", names.EVENT_POD_RELEASED, text)
        return True

    def _record(self, wanted: Wanted) -> bool | None:
        """Whether it had to be written; None when the sandbox is gone."""
        stored, wrote = write_record(self.hand, self.obj, wanted)
        if stored is None:
            return None
        self.obj, self.box = stored, batchsandbox.parse(stored)
        self.wrote = self.wrote or wrote
        return wrote

    def _latch(self, view: DriveView, before: Mapping[int, Node], after: Mapping[int, Node]) -> None:
        """Tasks that ended at once: the answers to the calls have their results already."""
        if self.failed or all(before[i].final for i, node in after.items() if node.final):
            return
        results = tasks.news(replace(view, results=tasks.results_of(self.box)), after)
        try:
            self._record(Wanted(results=results))
        except ApiError as error:
            self.failed = str(error)

    def _allowed(self, step: Step, found: Pods) -> list[Call]:
        return [
            call for call in step.calls if call.pod_uid in found.allowed and not (call.needs_results and self.failed)
        ]

    def _call(self, step: Step, calls: list[Call], found: Pods) -> Mapping[int, Node]:
        if not calls:
            return step.nodes
        self.hand.check()
        self.hand.step("call")
        orders = [Order(index=c.index, pod=c.pod, pod_uid=c.pod_uid, ip=c.ip, task=c.task) for c in calls]
        left = max(1.0, PASS_BUDGET - (time.monotonic() - self.started))
        check = checker(self.hand, self.box, found)
        answers: Mapping[int, Answer] = self.executors.send(orders, check=check, budget=left)
        self.hand.step("called")
        now = self.hand.now().timestamp()
        after = tasks.settle(self.box.name, step.nodes, calls=calls, answers=answers, now=now)
        self._store(step.nodes, after)
        for told in tasks.refused(step.nodes, after):
            self._event(told.type, told.reason, told.message)
        return after

    def _delete(self, step: Step) -> None:
        for pod in step.delete:
            self.hand.check()
            try:
                delete_pod(self.hand, self.box.namespace, pod.name, uid=pod.uid)
            except ApiError as error:
                self.failed = str(error)

    # -- tell --------------------------------------------------------------------------------------------

    def _tell(self, step: Step) -> None:
        for told in step.events:
            self._event(told.type, told.reason, told.message)

    def _event(self, type: EventType, reason: str, message: str) -> None:
        self.hand.events.emit(self.obj, type, reason, message)

    def _outcome(self, step: Step, before: Mapping[int, Node], after: Mapping[int, Node], *, calls: int) -> Outcome:
        count = tasks.counters(after.values(), self.box)
        shown = {name: self.box.status.get(name) for name in count.status()}
        stopped = self.intent == PAUSE and tasks.all_stopped(after.values(), self.box.replicas)
        news = count.status() != shown or tasks.trouble(before.values()) != tasks.trouble(after.values())
        news = news or any(i not in after for i in before)  # a cut slot is free: its pod may go
        if self.intent != DELETE and (news or self.wrote or stopped):
            _wake(self.hand, self.box, "task counters changed" if not stopped else "tasks are stopped")
        text = (
            f"{count.running} running, {count.succeed} succeeded, {count.failed} failed, "
            f"{count.unknown} unknown, {count.pending} pending; {calls} call(s)"
        )
        progress = bool(calls) or self.wrote
        if self.failed:
            return After(seconds=AFTER_FAILED_WRITE, summary=f"{text}; {self.failed}", progress=progress)
        if step.again is None:
            return Done(summary=text, progress=progress)
        # A poll of a thousand executors takes a while: the interval is from start to start, with a breath between.
        took = time.monotonic() - self.started
        seconds = step.again if took < QUICK else max(step.again - took, step.again / 3)
        return After(seconds=seconds, summary=text, progress=progress)
