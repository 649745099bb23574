"""The endpoint list of a sandbox by slot, from a view. Pure.

Rules: spec/batchsandbox.md 11, spec/clients.md 4. Next: `osb.apply.execute`, or the claim of a pool's fast pass.
"""

from __future__ import annotations

from osb.api import claims, names
from osb.decide import boxslots
from osb.facts.boxview import BatchView

SUSPENDED = (names.PAUSING, names.PAUSED)


def endpoints(view: BatchView, *, phase: str | None = None) -> list[str] | None:
    """The addresses to publish, position = slot; None when what is published is already right.

    "" stands for a slot that is absent, terminating, terminal or not yet addressed; the list is empty when no slot
    is listed, and while pausing or paused. The annotation is never created empty. `phase` is the phase about to be
    written, if it changes.
    """
    found = [] if (phase or view.spec.phase) in SUSPENDED else _addresses(view)
    published = view.spec.endpoints
    present = names.ENDPOINTS in view.spec.annotations
    if (not found and not present) or (published is not None and list(published) == found):
        return None
    return found


def _addresses(view: BatchView) -> list[str]:
    pods = {slot: pod for slot, pod in boxslots.listed(view).items() if slot < view.spec.replicas}
    last = max(pods, default=-1)
    record = view.spec.record
    if record is not None and claims.pooled(view.spec) and not view.spec.detaching:
        back = boxslots.given_back(view)
        known = {*range(min(len(record.pods), view.spec.replicas)), *pods}  # a grant adds slots beyond the record
        last = max((s for s in known if s not in back), default=last)
    usable = {slot: pod.ip for slot, pod in pods.items() if not pod.deleting and not pod.terminal}
    return [usable.get(slot, "") for slot in range(last + 1)]
