"""`osbctl hold` and `unhold`: freeze one pool: no creates, no deletes, nothing handed out."""

from __future__ import annotations

import typer

from osb.api import names
from osb.api.key import POOL
from osb.cli import output as out
from osb.cli.context import Kubeconfig, Namespace, RedisUrl, key_of, reach

EXAMPLE = "Example: osbctl hold default/warm --reason 'registry maintenance'"
EXAMPLE_UNHOLD = "Example: osbctl unhold default/warm"


def hold(
    pool: str = typer.Argument(..., help="namespace/name"),
    reason: str = typer.Option("true", "--reason", help="kept in the annotation, for people"),
    namespace: Namespace = "default",
    redis_url: RedisUrl = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Freeze a pool."""
    _annotate(pool, namespace, reason or "true", redis_url, kubeconfig)
    out.say(f"pool {pool} is held: `osbctl unhold {pool}` lets it go on")


def unhold(
    pool: str = typer.Argument(..., help="namespace/name"),
    namespace: Namespace = "default",
    redis_url: RedisUrl = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Let a held pool go on."""
    _annotate(pool, namespace, None, redis_url, kubeconfig)
    out.say(f"pool {pool} goes on")


def _annotate(pool: str, namespace: str, value: str | None, redis_url: str, kubeconfig: str) -> None:
    key = key_of(POOL, pool, namespace)
    with reach(redis_url, kubeconfig) as one:
        one.fetch(POOL, key.namespace, key.name)
        one.kube.patch(POOL, key.namespace, key.name, {"metadata": {"annotations": {names.HOLD: value}}})
