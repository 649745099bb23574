"""The moves that end tasks: what must stop, and what is given up when it does not. Pure.

The last of the moves of `osb.decide.taskmoves`, on the same nodes. Rules: spec/tasks.md 5 and 6.
"""

from __future__ import annotations

from osb.api import names
from osb.decide.plan import names_text
from osb.decide.taskasks import overdue
from osb.decide.taskmoves import Moves
from osb.decide.tasknode import (
    BY_DELETE,
    BY_PAUSE,
    BY_RESULT,
    BY_SCALE_IN,
    COMPLETED,
    RELEASED,
    RELEASING,
    Answer,
    Node,
    index_of,
)
from osb.decide.taskview import DELETE, PAUSE, PodDelete


class Work(Moves):
    """All moves of one pass."""

    def stop(self) -> None:
        """Mark what must end.

        That is everything (delete, pause), indexes cut by a scale-in, and finished ones under Release.
        """
        for node in list(self.nodes.values()):
            why = self._stop_reason(node)
            if not why or node.resource in (RELEASING, RELEASED):
                continue
            node = self.change(node, resource=RELEASING, why=why, stop_since=self.view.began)
            untouched = not (node.tried or node.started or node.final)
            answer = self.view.answers.get(node.pod_uid)
            if not node.bound or (untouched and answer is not None and answer.ok and self._gone(node, answer)):
                self._over(node)

    def _stop_reason(self, node: Node) -> str:
        if self.view.intent in (DELETE, PAUSE):
            return BY_DELETE if self.view.intent == DELETE else BY_PAUSE
        if node.index >= self.view.replicas:
            return BY_SCALE_IN
        return BY_RESULT if self.view.release and node.resource == COMPLETED and self._known(node) else ""

    def _known(self, node: Node) -> bool:
        """Bound, or without a pod: a pod that has not said what runs there is not given back yet."""
        pod = None if node.bound else self._pod_of(node.index)
        return pod is None or not pod.usable

    def release(self) -> None:
        """Give up what passed its stop deadline: 60 s when the executor answers, 8 s when it is silent."""
        late: list[str] = []
        for node in list(self.nodes.values()):
            if node.resource != RELEASING or not overdue(node, self.view.now, self.view.stop_timeout):
                continue
            late.append(node.pod)
            self.given_up.append(PodDelete(name=node.pod, uid=node.pod_uid, why="its task could not be stopped"))
            self._over(node, dirty=True)
        if late:
            what = "go on with the pause" if self.view.intent == PAUSE else "the pods are deleted"
            self.event(
                "Warning", names.EVENT_TASK_STOP_TIMEOUT,
                f"Tasks could not be stopped in time in {names_text(late)}: {what}",
            )  # fmt: skip

    def may_clear(self, node: Node, answer: Answer) -> bool:
        """`[]` stops whatever runs there: never sent to a pool pod that lists foreign tasks only."""
        if not self.view.pooled or not answer.ok or not answer.tasks:
            return True
        return any(index_of(self.view.box, task.name) is not None for task in answer.tasks)
