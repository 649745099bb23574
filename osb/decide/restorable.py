"""What a paused sandbox can be resumed from, and what is said when that was deleted. Pure.

In: a `BatchView`. Out: facts that `osb.decide.pause` and `osb.decide.resuming` share. The snapshot's own finalizer
keeps a deleted one long enough for its images to be read; the condition Paused keeps their names from then on, because
the images stay in the registry.
"""

from __future__ import annotations

from osb.api import names
from osb.api.record import derived
from osb.decide import podbuild, savedimages
from osb.decide.conditions import stored
from osb.facts.boxview import BatchView, SnapshotFact

NAME_LIMIT = 253


def snapshot_name(box: str) -> str:
    """`<sandbox>-pause`, derived when too long."""
    return derived(box, NAME_LIMIT, "-pause")


def own_snapshot(view: BatchView) -> SnapshotFact | None:
    """The pause's snapshot, if this sandbox's UID controls it."""
    found = view.snapshot
    return found if found is not None and found.owner_uid == view.spec.uid else None


def applied(view: BatchView) -> bool:
    """True once the template carries the images of this pause's snapshot."""
    source = podbuild.resumed_from(view.spec).get("snapshot")
    if not isinstance(source, str) or not source or not podbuild.resumed_images(view.spec):
        return False
    snapshot = own_snapshot(view)
    return snapshot is None or snapshot.uid == source


def loss(view: BatchView) -> str:
    """Why a paused sandbox has nothing to be resumed from, and what can still be done; "" while it has."""
    own = own_snapshot(view)
    if (own is not None and not own.deleting) or applied(view):
        return ""
    if own is None and (known := _known(view)):
        return known
    images = savedimages.told(own.containers) if own is not None else "the saved image"
    text = (
        f"the pause's snapshot {snapshot_name(view.spec.name)} was deleted, so that a resume has nothing to start "
        "from: restore it (owned by this sandbox, with its status) and ask again, or make a sandbox whose template "
        f"has {images}"
    )
    return text[:1000]


def _known(view: BatchView) -> str:
    """What was said while the snapshot could still be read."""
    before = stored(view.spec.status, now=view.now)
    lost = before.has(names.COND_PAUSED, names.REASON_SNAPSHOT_NOT_FOUND)
    return before.text(names.COND_PAUSED) if lost else ""
