"""`osbctl hold` and `unhold`: freeze one pool: no creates, no deletes, nothing handed out."""

from __future__ import annotations

import time

import typer

from osb.api import names
from osb.api.key import POOL, Key
from osb.api.pool import parse_hold
from osb.cli import output as out
from osb.cli.context import FAILED, Kubeconfig, Name, Namespace, Reach, RedisUrl, Wrong, key_of, quit_with, reach
from osb.decide.poolstatus import HELD

EXAMPLE = "Example: osbctl hold default/warm --reason 'registry maintenance'"
EXAMPLE_UNHOLD = "Example: osbctl unhold default/warm"
SHOWN_SECONDS = 10.0
LOOK_SECONDS = 0.1


def hold(
    pool: Name,
    reason: str = typer.Option("", "--reason", help="shown in the condition Held; of a held pool: replaces its reason"),
    namespace: Namespace = "default",
    redis_url: RedisUrl = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Freeze a pool; returns when the pool shows that it is in force."""
    key = key_of(POOL, pool, namespace)
    with reach(redis_url, kubeconfig) as one:
        one.paired(without_redis=True)
        before = _reason(one, key)
        kept = bool(before) and not reason.strip()
        given = before if kept else reason.strip() or "true"
        if not parse_hold(given):
            raise Wrong(f"--reason {given}: this text would mean 'not held'; write why")
        _annotate(one, key, given)
        in_force = _in_force(one, key)
    why = "" if given == "true" else f" ({given})"
    was = f"; the reason was: {before}" if before not in ("", "true", given) else ""
    still = "still held, its reason is kept" if kept else "held"
    out.say(f"pool {key.member} is {still}{why}{was}: `osbctl unhold {key.member}` lets it go on")
    if not in_force:
        out.warn(f"no worker has acted on it within {SHOWN_SECONDS:g} s (condition Held); "
                 "pods may still be handed out: does the controller run? `osbctl doctor`")  # fmt: skip
        quit_with(FAILED)


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


def _in_force(reach: Reach, key: Key) -> bool:
    """Wait until the pool's own pass has seen it: before that a pass may hand out pods that it read about earlier."""
    end = time.monotonic() + SHOWN_SECONDS
    while time.monotonic() < end:
        status = reach.fetch(POOL, key.namespace, key.name).get("status") or {}
        if any(c.get("type") == HELD and c.get("status") == "True" for c in status.get("conditions") or ()):
            return True
        time.sleep(LOOK_SECONDS)
    return False


def _annotate(reach: Reach, key: Key, value: str | None) -> None:
    reach.kube.patch(POOL, key.namespace, key.name, {"metadata": {"annotations": {names.HOLD: value}}})
