"""`osbctl hold` and `unhold`: freeze one pool: no creates, no deletes, nothing handed out."""

from __future__ import annotations

import typer

from osb.api import names
from osb.api.key import POOL, Key
from osb.api.pool import parse_hold
from osb.cli import output as out
from osb.cli.context import Kubeconfig, Name, Namespace, Reach, RedisUrl, Wrong, key_of, reach

EXAMPLE = "Example: osbctl hold default/warm --reason 'registry maintenance'"
EXAMPLE_UNHOLD = "Example: osbctl unhold default/warm"


def hold(
    pool: Name,
    reason: str = typer.Option("", "--reason", help="shown in the condition Held; of a held pool: replaces its reason"),
    namespace: Namespace = "default",
    redis_url: RedisUrl = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Freeze a pool."""
    key = key_of(POOL, pool, namespace)
    with reach(redis_url, kubeconfig) as one:
        one.paired(without_redis=True)
        before = _reason(one, key)
        kept = bool(before) and not reason.strip()
        given = before if kept else reason.strip() or "true"
        if not parse_hold(given):
            raise Wrong(f"--reason {given}: this text would mean 'not held'; write why")
        _annotate(one, key, given)
    why = "" if given == "true" else f" ({given})"
    was = f"; the reason was: {before}" if before not in ("", "true", given) else ""
    still = "still held, its reason is kept" if kept else "held"
    out.say(f"pool {key.member} is {still}{why}{was}: `osbctl unhold {key.member}` lets it go on")


def unhold(
    pool: Name,
    namespace: Namespace = "default",
    redis_url: RedisUrl = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Let a held pool go on."""
    key = key_of(POOL, pool, namespace)
    with reach(redis_url, kubeconfig) as one:
        one.paired(without_redis=True)
        before = _reason(one, key)
        _annotate(one, key, None)
    out.say(f"pool {key.member} " + ("goes on" if before else "was not held"))


def _reason(reach: Reach, key: Key) -> str:
    """Why the pool is held, "" when it is not."""
    raw = reach.fetch(POOL, key.namespace, key.name)
    text = str((raw["metadata"].get("annotations") or {}).get(names.HOLD, ""))
    return text if parse_hold(text) else ""


def _annotate(reach: Reach, key: Key, value: str | None) -> None:
    reach.kube.patch(POOL, key.namespace, key.name, {"metadata": {"annotations": {names.HOLD: value}}})
