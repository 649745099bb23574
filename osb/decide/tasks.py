"""Drive the tasks of one sandbox: what to call, what is over, what to release, when to look again. Pure.

In: a `DriveView`. Out: a `Step`, carried out by `osb.reconcile.tasks`; `settle` then folds the answers to its
calls into the nodes. The rules are spec/tasks.md 4 to 9 in their required form:

* Task i belongs to the pod of slot i, bound by UID. A pod is bound only after it answered in this very pass,
  and a task that already runs on another pod of the sandbox is left where it runs.
* A final result is latched for good; a released node is never called again.
* Released means: the executor answered and no longer lists the task, or the pod is gone, or the stop deadline
  passed (then the pod is given back for deletion). A failed call proves nothing.
* Results are on the object before the executor is told to forget them, and before a status shows them: nothing
  that ended may depend on what Redis remembers.
* Under `lostPodPolicy: Fail` a task whose slot was given up has failed, and never starts again.
* The intent (run, pause, delete) comes from the object, never from memory, so that a restart cannot start
  tasks in a sandbox that is going away.

A running task keeps the template it was started with; a task that must be started again (its pod was lost)
gets the template as it is then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import orjson
from msgspec.structs import replace

from osb.api import names
from osb.api.batchsandbox import BoxSpec
from osb.decide import taskresults
from osb.decide.plan import EmitEvent, event
from osb.decide.tasknode import (
    ASSIGNED,
    BY_DELETE,
    BY_PAUSE,
    BY_RESULT,
    BY_SCALE_IN,
    COMPLETED,
    FINAL,
    PENDING,
    POD_LOST,
    RELEASED,
    RELEASING,
    RUNNING,
    Answer,
    Node,
    TaskCounters,
    tally,
    task_name,
)
from osb.decide.taskresults import Results
from osb.decide.taskstops import Work
from osb.decide.taskview import DELETE, HOLD, PAUSE, RUN, Call, DriveView, PodDelete, Step
from osb.facts.boxview import TaskSummary

KEEP_ALIVE = 30.0
POLL = 3.0
POLL_STOPPING = 1.0
POLL_SETTLED = 30.0
LONGEST_BACKOFF = 60.0
TOLD_REFUSALS = 5  # events of one pass
REFUSAL_LIMIT = 400  # characters of an executor in an event
TROUBLE_LIMIT = 200  # the same in a condition
TOLD_FAILURES = 5  # in a condition


def step(view: DriveView) -> Step:
    """The next step of all tasks. Safe to repeat: the same view gives the same step."""
    if view.intent == HOLD:
        return Step(nodes={}, counters=paused_counters(view.results), reasons=("paused: no tasks, no calls",))
    work = Work(view)
    work.populate()
    work.rebind()
    work.observe()
    work.resume()
    if view.intent == RUN:
        work.bind()
        work.lose()
    work.stop()
    work.release()
    give, force = _given(view, work.nodes)
    nodes = _drop_cut(view, work.nodes)
    results = news(view, nodes)
    calls = tuple(_calls(view, nodes, work, results is not None))
    nodes = _with_digests(view, nodes, work)
    return Step(
        nodes=nodes,
        counters=tally(nodes[i] for i in sorted(nodes) if i < view.replicas),
        calls=calls,
        results=results,
        give=give,
        force=force,
        reopen=tuple(pod.name for pod in work.unclean),
        delete=tuple(_deletes(view, nodes, work)),
        events=tuple(work.events),
        finished=view.intent == DELETE and all(n.resource == RELEASED for n in nodes.values()),
        again=_again(view, nodes),
        reasons=tuple(work.reasons),
    )


def _drop_cut(view: DriveView, nodes: Mapping[int, Node]) -> dict[int, Node]:
    """Without the cut nodes that are over: their tasks are stopped, their results no longer count.

    When replicas grew again meanwhile, the index is a new one: its task has not run.
    """
    if view.intent != RUN:
        return dict(nodes)
    cut = {
        i for i, n in nodes.items()
        if n.resource == RELEASED and (i >= view.replicas or n.why == BY_SCALE_IN) and not _owed(view, n)
    }  # fmt: skip
    return {
        i: Node(index=i) if i in cut else n for i, n in nodes.items() if i not in cut or i < view.replicas
    }  # fmt: skip


def _owed(view: DriveView, node: Node) -> bool:
    """Given up, and its pod not yet on the release list."""
    return view.pooled and node.dirty and node.pod in view.recorded and node.pod not in view.given


def news(view: DriveView, nodes: Mapping[int, Node]) -> Results | None:
    """The results to write now: with what ended and what was given back since, without slots that were cut.

    None when the object has all of it. Not while deleting: nobody will ask.
    """
    if view.intent == DELETE:
        return None
    ended = (n for n in nodes.values() if n.final and n.index < view.replicas and n.why != BY_SCALE_IN)
    known = view.results.below(max(view.replicas, view.slots))
    after = known.plus(ended).given(_back(view, nodes))
    return after if after != view.results else None


def _back(view: DriveView, nodes: Mapping[int, Node]) -> Iterable[int]:
    """Slots of a sandbox without a pool whose pod goes for good, whatever the policy becomes (spec/tasks.md 6)."""
    if view.pooled or not view.release:
        return ()
    over = (n for n in nodes.values() if n.index < view.replicas and n.resource == RELEASED and n.why == BY_RESULT)
    return (n.index for n in over if n.reason != POD_LOST)


def _given(view: DriveView, nodes: Mapping[int, Node]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names to add to alloc-release and its `force`: only pods of the record, never for a pause."""
    if not view.pooled:
        return (), ()
    over = [n for n in nodes.values() if n.resource == RELEASED and n.pod in view.recorded]
    give = {n.pod for n in over if n.why in (BY_RESULT, BY_DELETE) or (n.dirty and n.why != BY_PAUSE)}
    new = sorted(give - view.given)
    forced = {n.pod for n in over if n.dirty and n.why != BY_PAUSE}
    return tuple(new), tuple(sorted(forced & set(new)))


def _calls(view: DriveView, nodes: Mapping[int, Node], work: Work, writing: bool) -> Iterable[Call]:
    for index in sorted(nodes):
        node = nodes[index]
        answer = view.answers.get(node.pod_uid) if node.bound else None
        if answer is None:
            continue
        if node.resource == ASSIGNED and view.intent == RUN and answer.ok:
            task = view.tasks.get(index)
            if isinstance(task, Mapping) and view.pods[node.pod_uid].usable and _due(view, node, answer):
                yield Call(index=index, pod=node.pod, pod_uid=node.pod_uid, ip=node.ip, task=task)
        elif node.resource == RELEASING and answer.heard and work.may_clear(node, answer):
            needs = writing and node.why in (BY_RESULT, BY_PAUSE) and node.final
            yield Call(index=index, pod=node.pod, pod_uid=node.pod_uid, ip=node.ip, needs_results=needs)


def _due(view: DriveView, node: Node, answer: Answer) -> bool:
    """Send the task when it is not seen running, or as a keep-alive; not while it must wait (back-off)."""
    if view.now < node.hold_until:
        return False
    seen = answer.find(task_name(view.box, node.index))
    if seen is None or seen.state != RUNNING:
        return True
    return view.now - node.sent >= KEEP_ALIVE


def _with_digests(view: DriveView, nodes: Mapping[int, Node], work: Work) -> dict[int, Node]:
    """Remember what was sent; a later change of a started task is reported once and has no effect."""
    found: dict[int, Node] = {}
    changed: list[int] = []
    for index, node in nodes.items():
        found[index] = node
        task = view.tasks.get(index)
        if not isinstance(task, Mapping) or node.resource not in (ASSIGNED, COMPLETED):
            continue
        digest = hashlib.sha256(orjson.dumps(task, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]
        if node.digest and node.digest != digest and (node.started or node.final):
            changed.append(index)
        if node.digest != digest:
            found[index] = replace(node, digest=digest)
    if changed:
        shown = ", ".join(map(str, changed[:10]))
        work.event(
            "Warning", names.EVENT_TASK_CHANGE_IGNORED,
            f"The task template changed; tasks that were started keep theirs (indexes {shown})",
        )  # fmt: skip
    return found


def _deletes(view: DriveView, nodes: Mapping[int, Node], work: Work) -> Iterable[PodDelete]:
    """Pods to delete.

    Those are owned ones whose task is over under Release, those given up, and pool pods that run somebody else's
    tasks (the slot then gets another pod).
    """
    yield from work.unclean
    if view.pooled or view.intent == PAUSE:
        return
    yield from work.given_up
    if not view.release or view.intent != RUN:
        return
    for pod in view.pods.values():
        node = nodes.get(pod.index)
        if node is not None and node.resource == RELEASED and node.why == BY_RESULT and not pod.over:
            yield PodDelete(name=pod.name, uid=pod.uid, why=f"task {pod.index} is over and the policy is Release")


def _again(view: DriveView, nodes: Mapping[int, Node]) -> float | None:
    if view.intent != RUN:
        return _again_stopping(view, nodes)
    if any(n.resource == RELEASING for n in nodes.values()):
        return _again_stopping(view, nodes)
    if view.results.below(view.replicas) != view.results:
        return POLL  # results of slots that the pool is about to cut
    if all(n.resource == RELEASED for n in nodes.values()):
        return None
    if any(i in view.doomed and not n.bound and not n.final and n.asked for i, n in nodes.items()):
        return POLL  # whether its pod is lost for good is about to be written
    open_ = (n for n in nodes.values() if not n.final)
    if view.pods and any(isinstance(view.tasks.get(n.index), Mapping) for n in open_):
        return POLL
    return POLL_SETTLED


def _again_stopping(view: DriveView, nodes: Mapping[int, Node]) -> float | None:
    waiting = [n.stop_since for n in nodes.values() if n.resource == RELEASING]
    if not waiting:
        return None
    return POLL_STOPPING if view.now - max(waiting) < 2 * POLL else POLL


# -- after the calls -------------------------------------------------------------------------------------


def settle(
    box: str, nodes: Mapping[int, Node], *, calls: Iterable[Call], answers: Mapping[int, Answer], now: float
) -> dict[int, Node]:
    """`nodes` with the answers to `calls` folded in. A call without an answer (budget) changes nothing."""
    found = dict(nodes)
    for call in calls:
        answer = answers.get(call.index)
        if answer is None:
            continue
        node = found[call.index]
        if call.task is None:
            found[call.index] = node if answer.ok else replace(node, error=answer.error)
        else:
            found[call.index] = _started(box, node, answer=answer, now=now)
    return found


def _started(box: str, node: Node, *, answer: Answer, now: float) -> Node:
    if not answer.ok:
        refusals = node.refusals + 1
        wait = min(POLL * 2 ** min(refusals, 6), LONGEST_BACKOFF) if answer.heard else 0.0
        told = hashlib.sha256(answer.error.encode(errors="replace")).hexdigest()[:12] if answer.heard else node.told
        return replace(node, tried=now, refusals=refusals, hold_until=now + wait, error=answer.error, told=told)
    seen = answer.find(task_name(box, node.index))
    node = replace(node, tried=now, sent=now, refusals=0, error="", told="", started=True)
    if seen is None or node.final:
        return node
    if seen.state in FINAL:
        return replace(
            node, resource=COMPLETED, state=seen.state, exit_code=seen.exit_code, reason=seen.reason,
            finished_at=seen.finished_at,
        )  # fmt: skip
    return replace(node, state=seen.state)


def refused(before: Mapping[int, Node], after: Mapping[int, Node]) -> tuple[EmitEvent, ...]:
    """What `settle` learnt about refusals: each is told once, and again when the executor's words change."""
    new = [n for i, n in sorted(after.items()) if n.told and (i not in before or before[i].told != n.told)]
    found = []
    for at, node in enumerate(new[:TOLD_REFUSALS]):
        more = len(new) - TOLD_REFUSALS if at == TOLD_REFUSALS - 1 else 0
        text = f"The executor in {node.pod} does not take task {node.index}: {node.error[:REFUSAL_LIMIT]}"
        text += f" (and {more} more tasks are refused)" if more > 0 else ""
        found.append(event("batchsandbox", "Warning", names.EVENT_TASK_REFUSED, text))
    return tuple(found)


# -- for the status of the sandbox -----------------------------------------------------------------------


def counters(states: Iterable[Node], spec: BoxSpec) -> TaskCounters:
    """The five counters of a sandbox, from its nodes (`store.tasks`) and its `task-results` annotation.

    An index without a node counts by its result, else as pending: so a new sandbox starts with all pending.
    A task whose result is not on the object yet counts as running: no status shows what a loss of Redis could take
    back. While the phase is Paused only finished tasks count.
    """
    known = results_of(spec)
    if spec.phase == names.PAUSED:
        return paused_counters(known, states)
    nodes = {node.index: _durable(node, known) for node in states}
    return tally(nodes.get(i) or known.node(i) or Node(index=i, resource=PENDING) for i in range(spec.replicas))


def _durable(node: Node, known: Results) -> Node:
    """As a status may show it."""
    if node.why == BY_SCALE_IN:  # counted only when replicas grew again meanwhile: its index starts anew
        return Node(index=node.index)
    if not node.final or node.index in known:
        return node
    return replace(node, resource=ASSIGNED, state=RUNNING)


def summary(states: Iterable[Node], spec: BoxSpec) -> TaskSummary:
    """What the sandbox's own pass must know: counters, whether a pause may go on, and the slots that are over.

    `done` are the slots given back for good under policy Release: no pod is made or wanted for them again.
    `busy` are the slots whose pod still has a task.
    """
    nodes = list(states)
    count = counters(nodes, spec)
    known = results_of(spec)
    done = known.back | known.indexes() if spec.release_when_completed else known.back
    cut = (i for i in known.indexes() | known.back if i >= spec.replicas)
    busy = (node.index for node in nodes if node.bound and node.resource != RELEASED)
    return TaskSummary(
        counts=(count.running, count.succeed, count.failed, count.unknown, count.pending),
        stopped=spec.task_template is None or all_stopped(nodes, spec.replicas),
        done=frozenset(i for i in done if i < spec.replicas),
        busy=frozenset((*busy, *(cut if spec.task_template is not None else ()))),
        trouble=trouble(nodes),
        failed=_failures(known.below(spec.replicas)),
    )


def trouble(states: Iterable[Node]) -> str:
    """Tasks whose executor is silent or does not take them, in words that last as long as that does; "" without any.

    An Event of it ages out.
    """
    stuck = sorted((n for n in states if n.error and not n.final and (n.silent or n.told)), key=lambda n: n.index)
    if not stuck:
        return ""
    more = f" (and {len(stuck) - 1} more)" if len(stuck) > 1 else ""
    return f"task {stuck[0].index} has trouble with its executor: {stuck[0].error[:TROUBLE_LIMIT]}{more}"


def _failures(known: Results) -> str:
    """`failed: task 0 (exit code 7, Failed)`: the first ones; all of them stand in `task-results`."""
    order = sorted(known.failed)
    told = [f"task {i} ({_how(*known.failed[i])})" for i in order[:TOLD_FAILURES]]
    more = f" and {len(order) - TOLD_FAILURES} more" if len(order) > TOLD_FAILURES else ""
    return f"failed: {', '.join(told)}{more}" if told else ""


def _how(code: int, reason: str) -> str:
    if reason == POD_LOST:
        return f"{POD_LOST}: its pod was not replaced"
    return f"exit code {code}, {reason}" if reason else f"exit code {code}"


def results_of(spec: BoxSpec) -> Results:
    """The results in the sandbox's annotation; none when it cannot be read."""
    return taskresults.parse(spec.annotations.get(names.TASK_RESULTS))


def paused_counters(results: Results, states: Iterable[Node] = ()) -> TaskCounters:
    """Finished tasks only: nothing runs and nothing waits in a paused sandbox."""
    known = results.plus(states)
    return TaskCounters(succeed=len(known.ok), failed=len(known.failed))


def all_stopped(states: Iterable[Node], replicas: int) -> bool:
    """True when every task of the sandbox is released: a pause may take its snapshot."""
    nodes = [node for node in states if node.index < replicas]
    return len(nodes) >= replicas and all(node.resource == RELEASED for node in nodes)
