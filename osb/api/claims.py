"""Which pods a sandbox claims, wants and gives back, as its own content says.

`wants` is used both to pick pods and to judge open reservations. Apart from the sandbox's own content it
takes only facts that never change back (a pod is dead, the pool has another UID). So "it does not want the
pod any more" implies "its version moved", and no old claim can land (spec/protocols.md 1, rule 5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from osb.api import names
from osb.api.batchsandbox import BoxSpec

NOBODY: frozenset[str] = frozenset()


def effective_pool(box: BoxSpec) -> tuple[str, str]:
    """(pool name, pool UID) that serves the sandbox; UID "" when not recorded (spec/pool.md 6.9).

    `("", "")`: not pooled. `("*", "")`: asked for any pool, not decided. A recorded pool stays in force
    whatever poolRef was edited to, except that clearing it ends the claim.
    """
    held = box.record
    if held is not None and held.detaching:
        return held.pool_ref, held.pool_uid
    if not box.pool_ref:
        return "", ""
    if held is not None and held.pool_ref:
        return held.pool_ref, held.pool_uid
    return box.pool_ref, ""


def pooled(box: BoxSpec) -> bool:
    """Served by a pool, or waiting for the choice of one."""
    return effective_pool(box)[0] != ""


def claims(box: BoxSpec) -> dict[int, tuple[str, str]]:
    """Slot -> (pod, UID prefix) of every pod the record still holds: not lost, not acknowledged as released.

    Pods whose release was only asked for are among them: they are taken until the pool has recycled them.
    """
    return {slot: pod for slot, pod in _recorded(box) if pod[0] not in box.released}


def slots(box: BoxSpec) -> dict[int, tuple[str, str]]:
    """The claims in use, whose release was not asked for: what the sandbox shows as its pods."""
    return {slot: pod for slot, pod in claims(box).items() if pod[0] not in box.release}


def given_back(box: BoxSpec) -> tuple[int, ...]:
    """Slots below replicas whose pod was released on purpose: used up, never refilled."""
    if box.record is None:
        return ()
    back = {*box.release, *box.released}
    return tuple(slot for slot, pod in enumerate(box.record.pods[: box.replicas]) if pod in back)


def surplus(box: BoxSpec) -> tuple[int, ...]:
    """Recorded slots beyond replicas, highest first: the order in which they are released."""
    count = len(box.record.pods) if box.record is not None else 0
    return tuple(range(count - 1, box.replicas - 1, -1))


def delivered(box: BoxSpec, slot: int) -> bool:
    """Whether the slot's pod was shown to the user: our own records go out together with its address."""
    if box.record is not None and box.record.uid_of(slot):
        return True
    return box.endpoints is not None and slot < len(box.endpoints) and box.endpoints[slot] != ""


def in_line(box: BoxSpec) -> bool:
    """Whether the sandbox may be given pods at all, whatever it misses."""
    return (
        box.deleting is None
        and box.record_error is None
        and not box.detaching
        and not box.barred
        and box.phase not in (names.PAUSING, names.PAUSED)
        and effective_pool(box)[0] not in ("", names.ANY_POOL)
        and not timed_out(box)
    )


def timed_out(box: BoxSpec) -> bool:
    """Gave up waiting (`allocationTimeoutSeconds`); a new generation puts it back in the line."""
    failed = box.condition(names.POD_FAILED)
    return (
        failed is not None
        and failed.get("reason") == names.REASON_ALLOCATION_TIMEOUT
        and box.observed >= box.generation
    )


def wants(box: BoxSpec, pool_uid: str = "", *, dead: Collection[str] = NOBODY) -> tuple[int, ...]:
    """Slots that still need a pod of the pool, lowest first; none while the sandbox may not be given any."""
    return missing(box, pool_uid, dead=dead) if in_line(box) else ()


def missing(box: BoxSpec, pool_uid: str = "", *, dead: Collection[str] = NOBODY) -> tuple[int, ...]:
    """Slots without a pod, whether or not the sandbox stands in the line.

    `pool_uid` is the UID of the living pool ("" = unknown): a record of another UID has lost all its pods.
    `dead` are names of recorded pods that are known to be gone or terminal. A slot given back on purpose or
    given up (`failed`) is not refilled; neither is a delivered one under `lostPodPolicy: Fail`.
    """
    recorded_uid = effective_pool(box)[1]
    all_lost = bool(pool_uid and recorded_uid and recorded_uid != pool_uid)
    held = {} if all_lost else claims(box)
    settled = {slot for slot, (pod, _) in held.items() if pod not in dead}
    settled.update(given_back(box))
    if box.record is not None:
        settled.update(box.record.failed)
    return tuple(slot for slot in range(box.replicas) if slot not in settled and not _stays_empty(box, slot))


def _stays_empty(box: BoxSpec, slot: int) -> bool:
    """Under `Fail` a delivered slot that loses its pod is never refilled; an open one was settled before."""
    if box.lost_policy != names.LOST_FAIL or box.record is None or slot in box.record.open:
        return False
    return slot < len(box.record.pods) and delivered(box, slot)


def busy_pool(box: BoxSpec) -> str:
    """The pool that has release work to do for this sandbox, "" when none.

    Work is: terminating with the pool's finalizer, an unanswered release, slots beyond replicas, detaching, a
    record that cannot be read, or a record left behind by a cleared poolRef.
    """
    pool = effective_pool(box)[0]
    if not pool and box.record is not None:
        return box.record.pool_ref
    if pool == names.ANY_POOL:
        return ""
    return pool if pool and needs_release(box) else ""


def needs_release(box: BoxSpec) -> bool:
    """Whether something is to be given back, acknowledged or cut; independent of the pool."""
    return (
        box.record_error is not None
        or box.detaching
        or (box.deleting is not None and names.FINALIZER_POOL in box.finalizers)
        or any(pod not in box.released for pod in box.release)
        or bool(surplus(box))
    )


def _recorded(box: BoxSpec) -> Iterator[tuple[int, tuple[str, str]]]:
    """Slots with a living name; a name that occurs twice counts for its first slot."""
    if box.record is None:
        return
    seen: set[str] = set()
    lost = {*box.record.open, *box.record.failed}
    for slot, pod in enumerate(box.record.pods):
        if pod and pod not in seen and slot not in lost:
            seen.add(pod)
            yield slot, (pod, box.record.uid_of(slot))
