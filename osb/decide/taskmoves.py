"""The moves of the task state machine, in the order `osb.decide.tasks.step` makes them. Pure.

In: a `DriveView`. Out: new nodes, events, pods to delete. Those that end tasks are in `osb.decide.taskstops`.
The state page is `osb.decide.tasknode`; the table is spec/tasks.md 5 (required form). Each method looks at all
nodes once.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec.structs import replace

from osb.api import names
from osb.decide.plan import EmitEvent, event, names_text
from osb.decide.tasknode import (
    ASSIGNED,
    BY_DELETE,
    BY_PAUSE,
    COMPLETED,
    FAILED,
    FINAL,
    INVALID,
    PENDING,
    POD_LOST,
    POD_LOST_CODE,
    RELEASED,
    RELEASING,
    RUNNING,
    UNREACHABLE_AFTER,
    Answer,
    Node,
    index_of,
    task_name,
)
from osb.decide.taskview import DELETE, PAUSE, RUN, DriveView, PodDelete, TaskPod
from osb.errors import InvalidInput

RESTART_BACKOFF = 3.0
LONGEST_RESTART_BACKOFF = 300.0
UNBOUND: dict[str, Any] = {
    "pod_uid": "", "ip": "", "sent": 0.0, "tried": 0.0, "started": False, "refusals": 0,
}  # fmt: skip


class Moves:
    """One pass over the nodes of one sandbox. `nodes` is replaced entry by entry, never mutated in place."""

    def __init__(self, view: DriveView) -> None:
        self.view = view
        self.nodes: dict[int, Node] = dict(view.nodes)
        self.events: list[EmitEvent] = []
        self.reasons: list[str] = []
        self.unclean: list[PodDelete] = []
        self.given_up: list[PodDelete] = []
        self._silent: list[Node] = []
        self._by_slot: dict[int, list[TaskPod]] = {}
        for pod in view.pods.values():
            self._by_slot.setdefault(pod.index, []).append(pod)

    def event(self, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self.events.append(event("batchsandbox", type, reason, message))
        self.reasons.append(message)

    def change(self, node: Node, **changes: Any) -> Node:
        changed = replace(node, **changes)
        self.nodes[node.index] = changed
        return changed

    # -- which tasks there are ---------------------------------------------------------------------------

    def populate(self) -> None:
        """A node for each index; without memory, from the results and from the pods that are there.

        In a sandbox that is going away an unremembered task counts as running on its slot's pod until that
        pod says otherwise: nothing is assumed from the spec, which may be invalid by now.
        """
        view = self.view
        for index in range(view.replicas):
            if index not in self.nodes:
                forgotten = view.ran and not view.nodes
                self.nodes[index] = view.results.node(index) or Node(index=index, recovering=forgotten)
                self._recall(index)
        for pod in view.pods.values():
            if pod.index >= view.replicas and pod.index not in self.nodes:
                self.nodes[pod.index] = Node(index=pod.index)
                self._recall(pod.index)
        for node in list(self.nodes.values()):
            known = view.results.node(node.index) if node.index < view.replicas else None
            if known is not None and not node.final and node.resource in (PENDING, ASSIGNED):
                self.change(node, resource=COMPLETED, state=known.state, exit_code=known.exit_code, reason=known.reason)
        self._report_invalid()

    def _recall(self, index: int) -> None:
        """A node made just now: if it is to be stopped, take its slot's pod as the place where it may run."""
        if self.view.intent == RUN and index < self.view.replicas:
            return
        pod = self._pod_of(index)
        if pod is not None and pod.ip and not pod.over:
            self.change(self.nodes[index], resource=ASSIGNED, pod=pod.name, pod_uid=pod.uid, ip=pod.ip)
        elif pod is not None:
            self.change(self.nodes[index], pod=pod.name)

    def _report_invalid(self) -> None:
        if self.view.intent != RUN:
            return
        for index, task in self.view.tasks.items():
            node = self.nodes.get(index)
            if node is None or node.resource != PENDING:
                continue
            text = f"{INVALID}{task}" if isinstance(task, InvalidInput) else ""
            if text and node.error != text:
                self.event("Warning", names.EVENT_INVALID_TASK_TEMPLATE, f"Task {index} is not sent to its pod: {task}")
            if text or node.invalid:
                self.change(node, error=text)

    # -- where they run ----------------------------------------------------------------------------------

    def rebind(self) -> None:
        """Follow an IP change of the same pod; unbind from a pod that is gone or terminal."""
        lost: list[str] = []
        there = {pod.name for pod in self.view.pods.values()}
        for node in list(self.nodes.values()):
            if node.resource == PENDING and not node.bound and node.pod and node.pod not in there:
                self.change(node, pod="", fails=0, error="")  # whom we asked in vain is gone: it waits for another one
            if not node.bound or node.resource == RELEASED:
                continue
            pod = self.view.pods.get(node.pod_uid)
            if pod is not None and not pod.over:
                if pod.ip != node.ip or pod.name != node.pod:
                    self.change(node, ip=pod.ip, pod=pod.name)
                continue
            if node.resource == RELEASING:
                self._over(node)
            elif node.final:
                self.change(node, **UNBOUND)
            elif node.index in self.view.doomed:  # `lose` says what becomes of it, when the loss is on the object
                self.change(node, resource=PENDING, state="", fails=0, **UNBOUND)
            else:
                lost.append(task_name(self.view.box, node.index))
                again = node.restarts + (1 if node.started else 0)
                self.change(node, resource=PENDING, state="", restarts=again, fails=0, **UNBOUND)
        if lost and self.view.intent == RUN:
            self.event(
                "Warning", names.EVENT_TASK_RESTARTED,
                f"The pod is gone; these tasks start again on another one: {names_text(lost)}",
            )  # fmt: skip

    def lose(self) -> None:
        """A task whose slot was given up with its pod has failed: no other pod comes, so it could not end otherwise."""
        for index in sorted(self.view.lost):
            node = self.nodes.get(index)
            if node is None or node.final or node.resource != PENDING:
                continue
            self.change(
                node, resource=COMPLETED, state=FAILED, exit_code=POD_LOST_CODE, reason=POD_LOST, pod="", error=""
            )
            self.reasons.append(f"task {index} is lost with its pod, and its slot is given up")

    def observe(self) -> None:
        """Fold this pass's answers into the bound nodes."""
        for node in list(self.nodes.values()):
            answer = self.view.answers.get(node.pod_uid) if node.bound else None
            if answer is None or node.resource == RELEASED:
                continue
            node = self._heard(node, answer)
            if answer.ok:
                self._seen(node, answer)
        for spoke, what in ((False, "do not answer"), (True, "answer with errors")):
            some = [n for n in self._silent if (n.heard == self.view.now) is spoke]
            if some:
                text = f"{len(some)} executor(s) {what}, first {some[0].pod}: {some[0].error}"
                self.event("Warning", names.EVENT_EXECUTOR_UNREACHABLE, text)

    def _heard(self, node: Node, answer: Answer) -> Node:
        now = self.view.now
        if answer.ok:
            return self.change(node, asked=now, heard=now, fails=0, error="" if node.fails else node.error)
        changed = self.change(
            node,
            asked=now,
            heard=now if answer.heard else node.heard,
            fails=node.fails + 1,
            error=answer.error,
        )
        if changed.fails == UNREACHABLE_AFTER:
            self._silent.append(changed)
        return changed

    def _seen(self, node: Node, answer: Answer) -> None:
        task = answer.find(task_name(self.view.box, node.index))
        if node.resource == RELEASING:
            if self._gone(node, answer):
                self._over(node)
        elif task is None:
            if node.resource == ASSIGNED and node.started:
                self._vanished(node, answer)
        elif not node.final:
            self._latch(node, answer)

    def _latch(self, node: Node, answer: Answer) -> None:
        """Take the observed state; a final one is latched and never changes again."""
        task = answer.find(task_name(self.view.box, node.index))
        if task is None:
            return
        if task.state in FINAL:
            self.change(
                node, resource=COMPLETED, state=task.state, exit_code=task.exit_code, reason=task.reason,
                finished_at=task.finished_at, started=True,
            )  # fmt: skip
        else:
            self.change(node, state=task.state, started=node.started or task.state == RUNNING)

    def _vanished(self, node: Node, answer: Answer) -> None:
        """It ran, and its executor does not know it any more: start it again, ever more slowly."""
        wait = min(RESTART_BACKOFF * 2 ** min(node.restarts, 10), LONGEST_RESTART_BACKOFF) if node.restarts else 0.0
        self.change(
            node,
            state="",
            started=False,
            sent=0.0,
            restarts=node.restarts + 1,
            hold_until=self.view.now + wait,
        )
        name, others = task_name(self.view.box, node.index), self._foreign(answer)
        what = f"runs {names_text(others)} instead of" if others else "lost"
        self.event(
            "Warning", names.EVENT_TASK_RESTARTED,
            f"The executor in {node.pod} {what} task {name}; it starts again (restart {node.restarts + 1})",
        )  # fmt: skip

    def _foreign(self, answer: Answer) -> list[str]:
        """Tasks of nobody here."""
        return [task.name for task in answer.tasks if index_of(self.view.box, task.name) is None]

    def _gone(self, node: Node, answer: Answer) -> bool:
        """The executor answered and no longer has it. In a sandbox that goes away no task of ours may be left."""
        if self.view.intent == RUN:
            return answer.find(task_name(self.view.box, node.index)) is None
        return all(index_of(self.view.box, task.name) is None for task in answer.tasks)

    def _over(self, node: Node, *, dirty: bool = False) -> Node:
        """Released: for good, without a binding. Only the pod's name stays, for the release list."""
        return self.change(node, resource=RELEASED, dirty=dirty, **UNBOUND)

    # -- the intent --------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Nodes stopped by a pause that is over (failed, or resumed): finished ones stay so, others start anew."""
        if self.view.intent == PAUSE:
            return
        for node in list(self.nodes.values()):
            if node.why != BY_PAUSE or node.resource not in (RELEASING, RELEASED):
                continue
            if self.view.intent == DELETE:
                self.change(node, why=BY_DELETE)
            elif node.final:
                self.change(node, resource=COMPLETED, why="", stop_since=0.0, dirty=False)
            elif node.resource == RELEASED:
                self.nodes[node.index] = Node(index=node.index, restarts=node.restarts, digest=node.digest)
            else:
                self.change(node, resource=ASSIGNED, why="", stop_since=0.0, state="", started=False, sent=0.0)

    def bind(self) -> None:
        """Bind pending tasks to pods that answered now: where it runs already, else its slot's pod."""
        where: dict[str, str] = {}
        for uid, answer in self.view.answers.items():
            for task in answer.tasks if answer.ok else ():
                where.setdefault(task.name, uid)
        taken = {node.pod_uid for node in self.nodes.values() if node.bound}
        waiting = [
            n for n in self.nodes.values()
            if not n.bound and n.index < self.view.replicas and n.resource in (PENDING, COMPLETED)
        ]  # fmt: skip
        for node in list(waiting):
            there = self.view.pods.get(where.get(task_name(self.view.box, node.index), ""))
            if there is not None and there.usable and there.uid not in taken:
                taken.add(there.uid)
                waiting.remove(node)
                self._bind(node, there)
        self._bind_new([n for n in waiting if n.resource == PENDING], taken)
        self._bind_over([n for n in waiting if n.resource == COMPLETED], taken)

    def _bind_over(self, over: list[Node], taken: set[str]) -> None:
        """A finished task whose pod was forgotten, or replaced: its slot's pod is the one to give back one day."""
        for node in over:
            pod = self._pod_of(node.index)
            answer = self.view.answers.get(pod.uid) if pod is not None and pod.usable else None
            if pod is None or answer is None or pod.uid in taken:
                continue
            if not answer.ok:
                self._heard(node, answer)
            elif all(index_of(self.view.box, task.name) in (None, node.index) for task in answer.tasks):
                taken.add(pod.uid)
                self._bind(node, pod)

    def _bind_new(self, waiting: list[Node], taken: set[str]) -> None:
        """The slot's own pod; a pod whose slot's task runs elsewhere serves the task that was displaced."""
        displaced: list[Node] = []
        for node in waiting:
            pod = self._pod_of(node.index)
            if pod is None or not pod.usable:
                continue
            if pod.uid in taken:
                displaced.append(node)
            elif not self._valid(node.index):
                self._look_on(node, pod)
            elif self._clean(node, pod):
                taken.add(pod.uid)
                self._bind(node, pod)
        spare = [
            p for p in self.view.pods.values()
            if p.usable and p.uid not in taken and self._displacer(p) and self._ok(p)
        ]  # fmt: skip
        for node, pod in zip((n for n in displaced if self._valid(n.index)), spare, strict=False):
            if self._clean(node, pod):
                self._bind(node, pod)

    def _displacer(self, pod: TaskPod) -> bool:
        node = self.nodes.get(pod.index)
        return node is not None and node.bound and node.pod_uid != pod.uid

    def _ok(self, pod: TaskPod) -> bool:
        answer = self.view.answers.get(pod.uid)
        return answer is not None and answer.ok

    def _valid(self, index: int) -> bool:
        return not isinstance(self.view.tasks.get(index), InvalidInput | None)

    def _clean(self, node: Node, pod: TaskPod) -> bool:
        """True when the pod answered and, if it came from a pool, runs nobody else's task."""
        answer = self.view.answers.get(pod.uid)
        if answer is None:
            return False
        if not answer.ok:
            self._unheard(node, pod, answer)
            return False
        foreign = self._foreign(answer)
        if not foreign or not self.view.pooled:
            return True
        self.event(
            "Warning", names.EVENT_POD_NOT_CLEAN,
            f"Pod {pod.name} runs foreign tasks {names_text(foreign)}; it is deleted and replaced before "
            f"task {node.index} starts",
        )  # fmt: skip
        self.unclean.append(PodDelete(name=pod.name, uid=pod.uid, why="it runs foreign tasks"))
        return False

    def _look_on(self, node: Node, pod: TaskPod) -> None:
        """An invalid task goes nowhere, but it may run since it was valid: its silent pod is asked ever more rarely."""
        answer = self.view.answers.get(pod.uid)
        if answer is not None:
            self.change(node, asked=self.view.now, fails=0 if answer.ok else node.fails + 1)

    def _unheard(self, node: Node, pod: TaskPod, answer: Answer) -> None:
        """Nothing starts on a pod that did not answer; after a loss of memory the task may run there already."""
        error = f"recovering: {answer.error}" if node.recovering else answer.error
        changed = self.change(node, asked=self.view.now, fails=node.fails + 1, pod=pod.name, error=error)
        if changed.fails == UNREACHABLE_AFTER:
            what = "answers with an error" if answer.heard else "does not answer"
            text = f"Task {node.index} waits: the executor in {pod.name} {what}: {answer.error}"
            self.event("Warning", names.EVENT_EXECUTOR_UNREACHABLE, text)

    def _bind(self, node: Node, pod: TaskPod) -> None:
        resource = COMPLETED if node.final else ASSIGNED
        bound = self.change(
            node, resource=resource, pod=pod.name, pod_uid=pod.uid, ip=pod.ip, asked=self.view.now,
            heard=self.view.now, fails=0, error="", recovering=False,
        )  # fmt: skip
        answer = self.view.answers[pod.uid]
        if not bound.final:
            self._latch(bound, answer)

    def _pod_of(self, index: int) -> TaskPod | None:
        """The pod of a slot; a usable one before one that is going away, a ready one before the others."""
        return min(self._by_slot.get(index, ()), key=lambda p: (not p.usable, p.over, not p.ready, p.uid), default=None)
