"""New pods of a pool: names into the ledger, one POST each, the answer is the observation.

Next: `born` in the ledger and the pod in the mirror; refusals, and servers that fail again and again, pause
creating (spec/pool.md 9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from osb.api import names
from osb.apply import pods as pod_writes
from osb.apply.hand import in_parallel
from osb.apply.pods import Created
from osb.apply.poolwork import Obj, PoolWork
from osb.decide import plan as plans
from osb.decide.plan import names_text
from osb.errors import ApiError
from osb.store.ledger_types import Move


def creates(work: PoolWork, group: list[plans.CreatePod]) -> None:
    """Names into the ledger, then one POST each; the answer is the observation (spec/pitfalls.md 18)."""
    ledger = work.hand.store.ledger(work.hand.key.namespace, work.hand.key.name)
    fresh = [c.name for c in group if c.intend and c.name not in work.entries]
    if fresh and not ledger.intend(work.proof, work.view.pool.pool_max, fresh):
        work.done.retry(0.2)
        return
    work.hand.step("intended")

    def create(c: plans.CreatePod) -> Created:
        return pod_writes.create_pod(work.hand, work.hand.key.namespace, c.name, c.body, owner=work.view.pool.uid)

    results = _create_all(work, group, create)
    made = [r.pod for r in results if isinstance(r, Created) and r.pod is not None]
    _born(work, made, read=[r.pod for r in results if isinstance(r, Created) and r.pod is not None and r.read])
    _not_born(work, [(c.name, r) for c, r in zip(group, results, strict=True)])


def _create_all(
    work: PoolWork, group: list[plans.CreatePod], create: Callable[[plans.CreatePod], Created]
) -> list[Created | ApiError | None]:
    """Create in growing steps, and no further after a definite refusal or a step that failed wholly.

    Quota, admission and a broken webhook treat all pods of the group alike. None stands for a pod that
    was not tried.
    """
    results: list[Created | ApiError | None] = []
    step = 1
    while len(results) < len(group):
        part = group[len(results) : len(results) + step]
        answers = in_parallel(work.hand, create, part)
        results += answers
        failed = [isinstance(a, ApiError) for a in answers]
        if all(failed) or any(isinstance(a, ApiError) and a.definite for a in answers):
            results += [None] * (len(group) - len(results))
        step = min(step * 4, 64)
    return results


def _born(work: PoolWork, made: list[Obj], *, read: list[Obj]) -> None:
    """Tell the ledger of created pods (move `born`) and put them into the mirror.

    `read`: those of `made` that an earlier POST had made; they may be ready by now, which is news.
    """
    if not made:
        return
    work.hand.step("created")
    fresh = [pod for pod in made if pod not in read]
    for pods, versioned in ((fresh, True), (read, False)):
        if pods:
            work.hand.forward.put("poolpod", pods, own=work.hand.key, versioned=versioned)
    work.move([
        Move(what="born", pod=pod["metadata"]["name"], pod_uid=pod["metadata"]["uid"], from_state="new")
        for pod in made
    ])  # fmt: skip
    made_names = [pod["metadata"]["name"] for pod in made]
    work.done.count("created", made_names)
    work.done.memory.update(create_failures=None, create_failed_ms=None, create_error=None)
    work.tell(
        "Normal",
        names.EVENT_SUCCESSFUL_CREATE,
        f"Created {len(made)} pool pod(s): {names_text(made_names)}",
    )


def _not_born(work: PoolWork, results: Sequence[tuple[str, Created | ApiError | None]]) -> None:
    """Names whose POST was definitely refused, or never sent, leave the ledger; unclear ones stay `new`."""
    drop: list[Move] = []
    failed: list[ApiError] = []
    named: dict[ApiError, str] = {}
    for name, result in results:
        if isinstance(result, ApiError):
            work.failed(result)
            failed.append(result)
            named[result] = name
        if _certainly_not(result):
            drop.append(Move(what="gone", pod=name, pod_uid="", from_state="new"))
    work.move(drop)
    refused = [error for error in failed if error.definite]
    if refused:
        _pause(work, refused[0], named[refused[0]], told=True)
    elif failed and not any(isinstance(result, Created) for _, result in results):
        _pause(work, failed[0], named[failed[0]], told=work.view.memory.create_failures > 0)


def _certainly_not(result: Created | ApiError | None) -> bool:
    """Whether no pod of ours can come of it.

    So when the server said no, the name is somebody else's, or nothing was sent.
    """
    if isinstance(result, ApiError):
        return result.definite
    return result is None or result.pod is None


def _pause(work: PoolWork, error: ApiError, name: str, *, told: bool) -> None:
    """One more failure in a row. A single unclear answer is repeated and not told: it is most often a lost reply.

    The drawn name is left out: the same refusal must read the same, or status and Events would change at every try.
    """
    words = str(error).replace(name, f"{work.view.pool.name}-*")
    work.done.memory.update(
        create_failures=work.view.memory.create_failures + 1,
        create_failed_ms=int(work.view.now.timestamp() * 1000),
        create_error=words[:500] if told else "",
    )
    if told:
        work.tell("Warning", names.EVENT_FAILED_CREATE, f"Failed to create pool pod: {words}")
