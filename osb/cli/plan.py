"""`osbctl plan`: the actions and the status of the next pass over one object, without carrying them out."""

from __future__ import annotations

from osb.cli import output as out
from osb.cli.context import UNTOLD, Kind, Kubeconfig, Name, Namespace, Output, RedisUrl, key_of, reach
from osb.cli.look import Look, as_data, look, status_changes, words

EXAMPLE = "Example: osbctl plan pool default/warm -o json"


def plan(
    kind: Kind,
    name: Name,
    namespace: Namespace = "default",
    output: Output = "table",
    redis_url: RedisUrl = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Show what a reconcile would do now (dry run): actions in order, and the status it would write."""
    out.checked_format(output)
    key = key_of(kind, name, namespace)
    with reach(redis_url, kubeconfig) as one:
        found = look(one, key)
        if one.told is None:
            out.warn(UNTOLD)
    if output != "table":
        out.data({
            "key": key.text, "reasons": found.plan.reasons, "actions": _all(found),
            "status": found.plan.status, "statusChanges": status_changes(found.raw, found.plan),
            "again": found.plan.again,
        }, output)  # fmt: skip
        return
    deals = (
        [f"give {g.box} {', '.join(pod for _, pod, _ in g.pods)}" for g in found.dealt.grants] if found.dealt else []
    )
    steps = [*deals, *words(found.plan.actions)]
    out.say(f"plan for {key.text}: {len(steps) or 'no'} step{'' if len(steps) == 1 else 's'}")
    for number, line in enumerate(steps, 1):
        out.say(f"  {number}. {line}")
    out.section("status", status_changes(found.raw, found.plan) or ["unchanged"])
    out.section("because", found.plan.reasons)
    if found.plan.again is not None:
        out.say(f"\nlooks again in {out.span(found.plan.again)}")


def _all(found: Look) -> list[dict[str, object]]:
    deals = [{"action": "Grant", "box": g.box, "pods": g.pods} for g in found.dealt.grants] if found.dealt else []
    return [*deals, *(as_data(action) for action in found.plan.actions)]
