"""`osbctl release NS/SANDBOX --pod P`: give a pod of a sandbox back, as a client would by the annotation."""

from __future__ import annotations

import typer

from osb.api import batchsandbox, claims, names
from osb.api.key import BATCHSANDBOX
from osb.api.record import Release, format_release, parse_release
from osb.cli import output as out
from osb.cli.context import Kubeconfig, Name, Namespace, Reach, RedisUrl, Wrong, key_of, reach
from osb.errors import Conflict

EXAMPLE = "Example: osbctl release default/b7 --pod warm-4f2kq --force"
TRIES = 5


def release(
    sandbox: Name,
    pod: list[str] = typer.Option(..., "--pod", help="a pod of that sandbox; may be repeated"),
    force: bool = typer.Option(False, "--force", help="recycle by deletion, whatever the pool's policy"),
    namespace: Namespace = "default",
    redis_url: RedisUrl = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Give pods back to their pool before the sandbox ends. The slots stay empty."""
    key = key_of(BATCHSANDBOX, sandbox, namespace)
    with reach(redis_url, kubeconfig) as one:
        one.paired(without_redis=True)
        for attempt in range(TRIES):
            try:
                _write(one, key.namespace, key.name, pods=pod, force=force)
                break
            except Conflict:
                if attempt == TRIES - 1:
                    raise
    out.say(f"asked the pool to take back {', '.join(pod)}; `osbctl explain sandbox {key.member}` shows the progress")


def _write(reach: Reach, namespace: str, name: str, *, pods: list[str], force: bool) -> None:
    raw = reach.fetch(BATCHSANDBOX, namespace, name)
    spec = batchsandbox.parse(raw)
    if spec.record_error is not None:
        raise spec.record_error
    mine = {held for held, _ in claims.claims(spec).values()}
    if foreign := [one for one in pods if one not in mine]:
        has = f"it has {', '.join(sorted(mine))}" if mine else "it has none"
        raise Wrong(f"--pod {', '.join(foreign)}: not a pod of {namespace}/{name}; {has}")
    asked = parse_release(spec.annotations.get(names.ALLOC_RELEASE))
    forced = (*asked.force, *pods) if force else asked.force
    text = format_release(Release(pods=(*asked.pods, *pods), force=forced))
    meta = {"annotations": {names.ALLOC_RELEASE: text}, "resourceVersion": spec.version}
    reach.kube.patch(BATCHSANDBOX, namespace, name, {"metadata": meta})
