"""Compare a pool's ledger with the cluster, both ways: the pods that exist, and the records of the sandboxes.

Pure; `osbctl ledger verify` gathers live and asks twice, because a busy pool is always in the middle of something.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from osb.api import claims
from osb.api.batchsandbox import BoxSpec
from osb.facts.ledger import CONF, FREE, HELD, NEW, REL, RESV, LedgerEntry
from osb.facts.pod import PodFact


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """What does not agree about one pod, and what becomes of it or what to do."""

    pod: str
    text: str
    fix: str


POOL_HERE = "NS/NAME"  # in a remedy: whoever prints it fills the pool in
REPAIR = f"the pool's next full pass repairs it: osbctl reconcile pool {POOL_HERE} --wait"


def differences(
    entries: Mapping[str, LedgerEntry], pods: Mapping[str, PodFact], boxes: Iterable[BoxSpec], *, pool_uid: str
) -> list[Difference]:
    """Sorted by pod. `pods`: all pods that the pool's UID controls; `boxes`: all sandboxes of its namespace."""
    by_uid = {box.uid: box for box in boxes}
    claimed = _claims(by_uid.values(), pods, pool_uid)
    found = [*_against_pods(entries, pods), *_against_records(entries, claimed, by_uid)]
    return sorted(set(found))


def _claims(boxes: Iterable[BoxSpec], pods: Mapping[str, PodFact], pool_uid: str) -> dict[str, list[BoxSpec]]:
    """Pod name -> sandboxes whose record holds it, for pods that exist under the recorded UID."""
    found: dict[str, list[BoxSpec]] = {}
    for box in boxes:
        if box.record is None or (box.record.pool_uid and box.record.pool_uid != pool_uid):
            continue
        for name, uid in claims.claims(box).values():
            if name in pods and (not uid or pods[name].uid.startswith(uid)):
                found.setdefault(name, []).append(box)
    return found


def _against_pods(entries: Mapping[str, LedgerEntry], pods: Mapping[str, PodFact]) -> Iterable[Difference]:
    for name, entry in entries.items():
        pod = pods.get(name)
        if pod is None and entry.state != NEW:
            yield Difference(name, f"the ledger has it as {entry.state}, but there is no such pod", REPAIR)
        elif pod is not None and entry.pod_uid and entry.pod_uid != pod.uid:
            yield Difference(name, "another pod of the same name exists than the ledger's", REPAIR)
    for name in pods.keys() - entries.keys():
        yield Difference(name, "the pod exists, but the ledger does not know it (it is handed to nobody)", REPAIR)


def _against_records(
    entries: Mapping[str, LedgerEntry], claimed: Mapping[str, list[BoxSpec]], boxes: Mapping[str, BoxSpec]
) -> Iterable[Difference]:
    for name, holders in claimed.items():
        entry, who = entries.get(name), ", ".join(sorted(box.name for box in holders))
        if len(holders) > 1 and (entry is None or entry.state != CONF):
            yield Difference(name, f"recorded by several sandboxes: {who}", "correct the annotations of all but one")
        elif entry is not None and entry.state == FREE:
            yield Difference(name, f"recorded by {who}, but free in the ledger", REPAIR)
        elif entry is not None and entry.box_uid and entry.box_uid not in {box.uid for box in holders}:
            yield Difference(name, f"recorded by {who}, but the ledger gives it to {entry.box}",
                             f"the record of {who} was edited: restore it")  # fmt: skip
    for name, entry in entries.items():
        if entry.state not in (HELD, REL, RESV) or name in claimed:
            continue
        box = boxes.get(entry.box_uid)
        if box is None:
            yield Difference(name, f"held for {entry.box}, which does not exist any more", REPAIR)
        elif box.record_error is None and entry.state != REL:
            yield Difference(name, f"held for {entry.box}, whose record does not name it", REPAIR)
