"""`osbctl doctor --prepare-rollback`: remove what the reference's CRDs would refuse (spec/additions.md 1.1).

With the reference's definitions back in place, every status write to an object that carries one of our added
condition types fails, whoever makes it. So they are removed while our definitions are still served.
"""

from __future__ import annotations

from typing import Any

from osb.api import names
from osb.api.key import BATCHSANDBOX, SNAPSHOT
from osb.cli import output as out
from osb.cli.context import FAILED, Reach, quit_with
from osb.cli.failures import remedy
from osb.errors import ApiError, Conflict, NotFound

KNOWN = {BATCHSANDBOX: names.BOX_CONDITIONS_REFERENCE, SNAPSHOT: names.SNAPSHOT_CONDITIONS_REFERENCE}
ALIVE_SECONDS = 15.0
TRIES = 5


def prepare(reach: Reach, *, force: bool) -> None:
    """Clean every object. Ends with exit code 1 while the controller still runs (it would write them again)."""
    reach.paired(without_redis=force)
    if not force and reach.store.duty.watcher_age() < ALIVE_SECONDS:
        out.warn("a watcher is alive: stop watcher, workers and beat first (or --force), else they write it again")
        quit_with(FAILED)
    failed = 0
    for kind, known in KNOWN.items():
        items, _ = reach.kube.all(kind)
        todo = [item for item in items if _added(item, known)]
        bad = [item for item in todo if not _clean(reach, kind, item, known)]
        failed += len(bad)
        out.say(
            f"{kind}: {len(items)} looked at, {len(todo) - len(bad)} cleaned" + (f", {len(bad)} FAILED" if bad else "")
        )
    if failed:
        quit_with(FAILED)
    out.say("now apply the reference's CRDs, then start the reference controller")


def _added(item: dict[str, Any], known: tuple[str, ...]) -> list[str]:
    return [c["type"] for c in (item.get("status") or {}).get("conditions") or () if c.get("type") not in known]


def _clean(reach: Reach, kind: str, item: dict[str, Any], known: tuple[str, ...]) -> bool:
    meta = item["metadata"]
    raw: dict[str, Any] | None = item
    for _ in range(TRIES):
        assert raw is not None
        kept = [c for c in raw["status"].get("conditions") or () if c.get("type") in known]
        body = {"metadata": {"resourceVersion": raw["metadata"]["resourceVersion"]}, "status": {"conditions": kept}}
        try:
            reach.kube.patch(kind, meta["namespace"], meta["name"], body, sub="status")
            return True
        except NotFound:
            return True
        except Conflict:
            raw = _again(reach, kind, meta)
            if raw is None or not _added(raw, known):
                return True
        except ApiError as error:
            out.warn(f"{kind} {meta['namespace']}/{meta['name']}: {error}{remedy(error)}")
            return False
    out.warn(f"{kind} {meta['namespace']}/{meta['name']}: changes faster than it can be cleaned; stop what writes it")
    return False


def _again(reach: Reach, kind: str, meta: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return reach.kube.get(kind, meta["namespace"], meta["name"])
    except NotFound:
        return None
