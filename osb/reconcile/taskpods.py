"""Which pods a sandbox's tasks may run on, and whether a pod is still the one that was meant.

In: the sandbox and the mirror (live reads when it is not fresh, or before an absence is believed). Out:
`Pods`. A pool pod counts only as far as record, ledger and owner agree, because any user of the namespace can
edit the record; a pod of the sandbox itself counts by its controller's UID (spec/pool.md 3, spec/tasks.md 3).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from osb.api import claims, names, record
from osb.api.batchsandbox import BoxSpec
from osb.apply.hand import Hand, in_parallel
from osb.apply.pods import live_pod
from osb.apply.tasks import Check, Order
from osb.decide.taskview import TaskPod
from osb.errors import ApiError, OsbError
from osb.facts.ledger import CONF, LedgerEntry
from osb.facts.pod import PodFact, decode, pod_fact
from osb.obs.deadline import bound

FRESH_MS = 140_000  # twice the watch timeout


@dataclass(frozen=True, slots=True)
class Pods:
    """By UID. A pod that is not in `allowed` is looked at, never written to: its attribution is not proved now."""

    pods: dict[str, TaskPod] = field(default_factory=dict)
    allowed: frozenset[str] = frozenset()


def find_pods(hand: Hand, box: BoxSpec) -> Pods:
    """The sandbox's pods with their slots. A pool pod that the mirror lacks is looked up live."""
    return _of_pool(hand, box) if claims.pooled(box) else _owned(hand, box)


# -- pods of its own -------------------------------------------------------------------------------------


def _owned(hand: Hand, box: BoxSpec) -> Pods:
    reading = hand.store.mirror.load("boxpod", "owner", box.uid)
    if reading.fresh(FRESH_MS):
        facts: Iterable[PodFact] = [decode(entry.doc) for entry in reading.entries.values() if entry is not None]
    else:
        label = f"{names.LABEL_BOX_NAME}={record.derived(box.name, 63)}"
        facts = [pod_fact(raw) for raw in hand.kube.all("pod", box.namespace, labels=label)[0]]
    pods = {
        fact.uid: _task_pod(fact, index)
        for fact in facts
        if fact.owner_uid == box.uid and (index := _index(fact, box)) is not None
    }
    return Pods(pods, frozenset(pods))


def _index(fact: PodFact, box: BoxSpec) -> int | None:
    text = fact.index_label or fact.name.removeprefix(f"{box.name}-")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


# -- pods of a pool --------------------------------------------------------------------------------------


def _of_pool(hand: Hand, box: BoxSpec) -> Pods:
    slots = claims.slots(box)
    if not slots:
        return Pods()
    facts = _pool_facts(hand, box.namespace, [pod for pod, _ in slots.values()])
    pool, pool_uid = claims.effective_pool(box)
    ledger = hand.store.ledger(box.namespace, pool)
    holders = ledger.holders(list(facts))
    ready = ledger.meta().ready
    pods: dict[str, TaskPod] = {}
    allowed: set[str] = set()
    for slot, (name, prefix) in slots.items():
        fact = facts.get(name)
        if fact is None or not fact.uid.startswith(prefix):
            continue
        if fact.owner_kind != names.KIND_POOL or (pool_uid and fact.owner_uid != pool_uid):
            continue
        proved = _attributed(holders.get(name), fact, box) if ready else None
        if proved is False:
            continue
        pods[fact.uid] = _task_pod(fact, slot)
        if proved:
            allowed.add(fact.uid)
    return Pods(pods, frozenset(allowed))


def _attributed(entry: LedgerEntry | None, fact: PodFact, box: BoxSpec) -> bool | None:
    """Is the pod this sandbox's, by a ledger that is ready? None: two records claim it."""
    if entry is None or entry.box_uid != box.uid or entry.pod_uid not in ("", fact.uid):
        return False
    return None if entry.state == CONF else True


def _pool_facts(hand: Hand, namespace: str, pods: list[str]) -> dict[str, PodFact]:
    reading = hand.store.mirror.read("poolpod", [f"{namespace}/{pod}" for pod in pods])
    fresh = reading.fresh(FRESH_MS)
    facts: dict[str, PodFact] = {}
    unsure: list[str] = []
    for pod in pods:
        entry = reading.entries.get(f"{namespace}/{pod}")
        if entry is None or not fresh:
            unsure.append(pod)
        else:
            facts[pod] = decode(entry.doc)
    for pod, raw in zip(unsure, in_parallel(hand, lambda p: live_pod(hand, namespace, p), unsure), strict=True):
        if isinstance(raw, ApiError):
            raise raw
        if raw is not None:
            facts[pod] = pod_fact(raw)
    return facts


def _task_pod(fact: PodFact, index: int) -> TaskPod:
    return TaskPod(
        index=index, name=fact.name, uid=fact.uid, ip=fact.ip, usable=fact.live and bool(fact.ip),
        ready=fact.ready, over=fact.terminal,
    )  # fmt: skip


# -- before a call ---------------------------------------------------------------------------------------


def checker(hand: Hand, box: BoxSpec, found: Pods) -> Check:
    """The check that `osb.apply.tasks` makes right before each mutating call.

    An IP is no identity: the pod must still exist under its name with that UID and that IP and be this
    sandbox's. Stopping is irreversible, so it is checked live; a start is checked on a fresh mirror.
    """
    kind = "poolpod" if claims.pooled(box) else "boxpod"

    def check(order: Order) -> str:
        try:
            hand.check()
            fact = _current(hand, kind, box.namespace, order)
        except OsbError as error:
            return f"pod {order.pod} could not be checked: {error}"
        if order.pod_uid not in found.allowed:
            return f"pod {order.pod} is not proved to be this sandbox's"
        if fact is None or fact.uid != order.pod_uid:
            return f"pod {order.pod} is gone or is another one by now"
        if fact.ip != order.ip or fact.terminal:
            return f"pod {order.pod} does not have the address {order.ip} any more"
        return ""

    return bound(check)


def _current(hand: Hand, kind: str, namespace: str, order: Order) -> PodFact | None:
    if order.task is not None:
        reading = hand.store.mirror.read(kind, [f"{namespace}/{order.pod}"])
        entry = reading.entries.get(f"{namespace}/{order.pod}")
        if entry is not None and reading.fresh(FRESH_MS):
            return decode(entry.doc)
    raw = live_pod(hand, namespace, order.pod)
    return pod_fact(raw) if raw is not None else None
