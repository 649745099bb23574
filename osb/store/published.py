"""Whether a sandbox's endpoints are those of its pods, as the mirror knows them.

In: a sandbox whose endpoints annotation changed, by whomever. Out: yes, when it says what we would publish: our own
write, seen before its answer came, is no news; an edit by hand is (`osb.decide.route`). Read by `osb.store.forward`.
"""

from __future__ import annotations

from collections.abc import Iterable

from osb.api import claims
from osb.api.batchsandbox import BoxSpec
from osb.decide.endpoints import endpoints
from osb.facts.boxview import BatchView
from osb.facts.pod import PodFact, decode
from osb.store.mirror import Mirror, MirrorEntry


def rightly(mirror: Mirror, box: BoxSpec, *, ledger_agrees: bool) -> bool:
    """A pool's sandbox has what its record names only while the ledger says so too."""
    if claims.pooled(box):
        if not ledger_agrees:
            return False
        view = BatchView(now=box.created, spec=box, slots=_slots(mirror, box))
    else:
        pods = _facts(mirror.load("boxpod", "owner", box.uid).entries.values())
        view = BatchView(now=box.created, spec=box, pods=tuple(pods))
    return endpoints(view) is None


def _slots(mirror: Mirror, box: BoxSpec) -> dict[int, PodFact]:
    held = claims.slots(box)
    members = [f"{box.namespace}/{name}" for name, _ in held.values()]
    known = {pod.name: pod for pod in _facts(mirror.read("poolpod", members).entries.values())}
    return {
        slot: pod for slot, (name, uid) in held.items() if (pod := known.get(name)) and pod.uid.startswith(uid)
    }  # fmt: skip


def _facts(entries: Iterable[MirrorEntry | None]) -> list[PodFact]:
    return [decode(entry.doc) for entry in entries if entry is not None]
