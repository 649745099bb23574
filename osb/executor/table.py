"""`Table`: the tasks of one executor, by the contract's rules without their defects (spec/tasks.md 2.3, 2.4).

In: desired sets. Out: the list of tasks. At most one task is active; a task that replaces another one waits as
Pending until the other is really gone. Stopping is SIGTERM to every process of the task, SIGKILL after 10 s, and
the task is listed until nothing of it is left. A time-out stays a time-out after the process has ended. Not
thread-safe: one loop calls it. `tick` does what time brings and says when it wants to be called again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from osb.executor.process import KILL, TERM, Runner, StartError
from osb.executor.task import CRASHED, KILLED, Folder, Task
from osb.executor.wire import Obj

GRACE = 10.0  # seconds between SIGTERM and SIGKILL
STOP_POLL = 0.1  # while something is being stopped


class Refused(Exception):
    """The change could not be made: 500."""


class Table:
    def __init__(
        self, folder: Folder, runner: Runner, *, clock: Callable[[], float] = time.time, grace: float = GRACE
    ) -> None:
        self._folder = folder
        self._runner = runner
        self._clock = clock
        self._grace = grace
        self._tasks: dict[str, Task] = {}
        self._adopt()

    # -- the contract ------------------------------------------------------------------------------------

    def listed(self) -> list[Obj]:
        """All tasks as they are now, oldest first."""
        self.tick()
        return [task.json() for task in self._tasks.values()]

    def find(self, name: str) -> Obj | None:
        self.tick()
        task = self._tasks.get(name)
        return task.json() if task is not None else None

    def sync(self, desired: Iterable[Obj]) -> list[Obj]:
        """Make the tasks exactly `desired`, by name. Present names are left as they are, whatever their spec.

        Raises Refused when a task could not be created; the rest is done nevertheless.
        """
        wanted = {item["name"]: item for item in desired}
        for task in list(self._tasks.values()):
            if task.name not in wanted:
                self._stop(task)
        self.tick()
        failed = []
        for name, item in wanted.items():
            if name not in self._tasks:
                try:
                    self._create(item)
                except Refused as refused:
                    failed.append(f"failed to create task {name}: {refused}")
        if failed:
            raise Refused(f"failed to sync tasks: {'; '.join(failed)}")
        return self.listed()

    def create(self, item: Obj) -> Obj:
        """One more task. Raises Refused: it exists, another one is active, or it cannot be started."""
        if item["name"] in self._tasks:
            raise Refused(f"failed to create task: task {item['name']} already exists")
        self.tick()
        try:
            return self._create(item).json()
        except Refused as refused:
            raise Refused(f"failed to create task: {refused}") from refused

    def delete(self, name: str) -> None:
        """Begin to stop it; unknown names are fine."""
        task = self._tasks.get(name)
        if task is not None:
            self._stop(task)
            self.tick()

    # -- what time brings --------------------------------------------------------------------------------

    def tick(self) -> float | None:
        """Look at all tasks, stop and start what is due. Seconds until the next look, or None."""
        self._runner.reap()
        waits: list[float] = []
        for task in list(self._tasks.values()):
            self._refresh(task)
            if task.deleting or task.timed_out:
                self._go_on_stopping(task)
            wait = self._wait_of(task)
            if wait is not None:
                waits.append(wait)
        self._start_waiting()
        return min(waits, default=None)

    def _wait_of(self, task: Task) -> float | None:
        if task.name not in self._tasks:
            return None
        if task.deleting or (task.timed_out and self._runner.left(task)):
            return STOP_POLL
        if task.timeout and task.active and task.pid:
            return max(0.01, task.started + task.timeout - self._clock())
        return None

    def _refresh(self, task: Task) -> None:
        if not task.pid or task.exit_code is not None:
            return
        ended = self._runner.exited(task, self._folder)
        if ended is None and not self._runner.alive(task):
            ended = self._runner.exited(task, self._folder)  # it may have ended between the two looks
            if ended is None:
                ended = KILLED, task.started
                task.failure = "" if task.timed_out or task.deleting else CRASHED
        now = self._clock()
        if ended is not None:
            task.exit_code = ended[0]
            task.finished = task.finished or max(ended[1], task.started)
            self._folder.save(task)
        elif task.timeout and not task.timed_out and not task.deleting and now - task.started > task.timeout:
            task.timed_out = task.finished = now
            self._folder.save(task)

    def _start_waiting(self) -> None:
        """Pending tasks start when no other one has a process left that counts."""
        for task in self._tasks.values():
            if task.pid or task.deleting or task.exit_code is not None or self._occupied(task):
                continue
            try:
                self._start(task)
            except StartError as failed:
                task.exit_code, task.failure = 126, "StartError"
                task.started = task.finished = self._clock()
                self._folder.save(task)
                print(f"task {task.name} could not be started: {failed}", flush=True)  # noqa: T201 - a container's log

    def _occupied(self, task: Task) -> bool:
        return any(
            other is not task and (other.deleting or other.timed_out or other.active) and self._runner.left(other)
            for other in self._tasks.values()
        )

    # -- one task ----------------------------------------------------------------------------------------

    def _create(self, item: Obj) -> Task:
        if any(task.active for task in self._tasks.values()):
            raise Refused("another task is active; at most one can be")
        if not item.get("process"):
            raise Refused("a task without process is not supported")
        task = Task(name=item["name"], process=item["process"])
        if not self._occupied(task):
            try:
                self._start(task)
            except StartError as failed:
                self._folder.remove(task)
                raise Refused(f"failed to start task: {failed}") from failed
        self._tasks[task.name] = task
        self._folder.save(task)
        return task

    def _start(self, task: Task) -> None:
        self._runner.start(task, self._folder)
        task.started = self._clock()
        self._folder.save(task)

    def _stop(self, task: Task) -> None:
        if not task.deleting:
            task.deleting = self._clock()
            self._folder.save(task)

    def _go_on_stopping(self, task: Task) -> None:
        """SIGTERM once, SIGKILL after the grace period; forget a deleted task when nothing is left."""
        if self._runner.left(task):
            now = self._clock()
            if not task.signalled:
                task.signalled = now
                self._runner.signal(task, TERM)
                self._folder.save(task)
            elif now - task.signalled >= self._grace:
                self._runner.signal(task, KILL)
            return
        if task.deleting:
            self._tasks.pop(task.name, None)
            self._folder.remove(task)

    # -- after a restart ---------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Take over what the last executor left: running processes by pid and start time, and finished results.

        A task whose process is gone without an exit code went down with its container: it is dropped, so that
        the next `setTasks` starts it again.
        """
        for task in self._folder.load():
            self._tasks[task.name] = task
            known = task.exit_code is not None or task.timed_out or task.deleting
            if task.pid and not known and not self._runner.alive(task):
                ended = self._runner.exited(task, self._folder)
                if ended is None:
                    self._forget(task)

    def _forget(self, task: Task) -> None:
        self._tasks.pop(task.name, None)
        self._folder.remove(task)
