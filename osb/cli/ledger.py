"""`osbctl ledger show` and `verify`: who holds which pod of a pool, and whether the cluster says the same."""

from __future__ import annotations

import time
from dataclasses import replace

import typer

from osb.api import batchsandbox, names
from osb.api.key import POOL
from osb.cli import output as out
from osb.cli.command import Command
from osb.cli.context import (
    FAILED,
    Kubeconfig,
    Name,
    Namespace,
    NoSuch,
    OnlyNamespace,
    Output,
    Reach,
    RedisUrl,
    key_of,
    quit_with,
    reach,
    seconds,
)
from osb.cli.verify import POOL_HERE, Difference, differences
from osb.errors import NotFound
from osb.facts import pod as pods

app = typer.Typer(help="Who holds which pod of a pool.", no_args_is_help=True, rich_markup_mode=None)


@app.command("show", cls=Command, epilog="Example: osbctl ledger show default/warm")
def show(
    pool: Name,
    namespace: Namespace = "default",
    output: Output = "table",
    redis_url: RedisUrl = "",
) -> None:
    """List every pod of a pool with its state and its holder."""
    out.checked_format(output)
    key = key_of(POOL, pool, namespace)
    with reach(redis_url) as one:
        state = one.store.ledger(key.namespace, key.name).state(entries=True)
        if not state.entries and not state.meta.uid:
            raise NoSuch(f"no such pool: {key.member} has no ledger; `osbctl get pools -A` lists pools")
        now = one.store.queue.now_ms()
    if output != "table":
        return out.data({
            "pool": key.member, "uid": state.meta.uid, "epoch": state.meta.epoch, "ready": state.meta.ready,
            "counts": state.counts,
            "pods": {name: {"state": e.state, "uid": e.pod_uid, "box": e.box, "boxUID": e.box_uid, "slot": e.slot,
                            "seq": e.seq, "policy": e.policy} for name, e in state.entries.items()},
        }, output)  # fmt: skip
    counts = ", ".join(f"{name} {n}" for name, n in state.counts.items() if n) or "empty"
    ready = "ready" if state.meta.ready else "NOT READY: the pool's next pass rebuilds it"
    out.say(f"ledger of {key.member}: {ready}; {counts}\n")
    order = sorted(state.entries.items(), key=lambda item: (item[1].state, item[1].box, item[1].slot, item[0]))
    rows = []
    for name, e in order:
        unfinished = out.span(max(0, now - state.todo[name]) / 1000) if name in state.todo else "-"
        rows.append([name, e.state, e.box or "-", e.slot if e.box else "-", e.policy or "-", unfinished])
    return out.table(["POD", "STATE", "SANDBOX", "SLOT", "POLICY", "UNFINISHED"], rows)


@app.command("verify", cls=Command, epilog="Example: osbctl ledger verify")
def verify(
    pool: str = typer.Argument("", help="namespace/name; without it every pool of the installation"),
    namespace: OnlyNamespace = "",
    everywhere: bool = typer.Option(
        False, "--all-namespaces", "-A", help="all namespaces, whatever OSB_NAMESPACES says"
    ),
    settle: float = typer.Option(
        2.0, "--settle", callback=seconds, help="seconds until the second look; only what both see counts"
    ),
    output: Output = "table",
    redis_url: RedisUrl = "",
    kubeconfig: Kubeconfig = "",
) -> None:
    """Compare ledgers with the cluster: pods that exist, records of the sandboxes. Exit 1 when they differ."""
    out.checked_format(output)
    with reach(redis_url, kubeconfig) as one:
        one.paired()
        spaces = _spaces(one, namespace, everywhere)
        wanted = _named(one, pool, namespace) if pool else _pools(one, spaces)
        first = {member: _look(one, member) for member in wanted}
        if any(first.values()):
            time.sleep(settle)
        found = {member: [d for d in _look(one, member) if d in seen] for member, seen in first.items() if seen}
    rows = [
        (member, replace(d, fix=d.fix.replace(POOL_HERE, member))) for member, those in found.items() for d in those
    ]
    if output != "table":
        out.data([{"pool": m, "pod": d.pod, "problem": d.text, "fix": d.fix} for m, d in rows], output)
    elif rows:
        for member, difference in rows:
            out.say(f"{member}  {difference.pod or '-'}: {difference.text}\n    {difference.fix}")
    elif wanted:
        ledgers = "the ledger agrees" if len(wanted) == 1 else f"{len(wanted)} ledgers agree"
        out.say(f"{ledgers} with the cluster{'' if pool else _limited(spaces)}")
    if not wanted:
        out.warn(f"nothing was checked: there is no pool{_limited(spaces) or ' in any namespace'}")
    if rows:
        quit_with(FAILED)


def _spaces(reach: Reach, namespace: str, everywhere: bool) -> tuple[str, ...]:
    """The namespaces to look at; none = all, which is the rule: a check that leaves pools out proves nothing."""
    if everywhere:
        return ()
    return (namespace,) if namespace else reach.settings.namespaces


def _limited(spaces: tuple[str, ...]) -> str:
    """In words, "" without a limit."""
    return f" in namespace{'s' if len(spaces) > 1 else ''} {', '.join(spaces)}" if spaces else ""


def _named(reach: Reach, pool: str, namespace: str) -> list[str]:
    key = key_of(POOL, pool, namespace or "default")
    reach.fetch(POOL, key.namespace, key.name)
    return [key.member]


def _pools(reach: Reach, spaces: tuple[str, ...]) -> list[str]:
    items = [item for space in spaces or (None,) for item in reach.kube.all(POOL, space)[0]]
    return [f"{i['metadata']['namespace']}/{i['metadata']['name']}" for i in items]


def _look(reach: Reach, member: str) -> list[Difference]:
    """Records first, then pods, then the ledger: a pod that was taken meanwhile is not a difference."""
    namespace, _, name = member.partition("/")
    try:
        uid = reach.kube.get(POOL, namespace, name)["metadata"]["uid"]
    except NotFound:  # deleted since it was listed
        return []
    boxes, _ = reach.kube.all("batchsandbox", namespace)
    live, _ = reach.kube.all("pod", namespace, labels=f"{names.LABEL_POOL_NAME}={name}")
    facts = [pods.pod_fact(one) for one in live]
    state = reach.store.ledger(namespace, name).state(entries=True)
    if not state.meta.ready or state.meta.uid != uid:
        text = "the ledger is missing, foreign or older than Redis"
        return [Difference("", text, f"its next pass rebuilds it: osbctl reconcile pool {member} --wait")]
    return differences(state.entries, {f.name: f for f in facts if f.owner_uid == uid},
                       [batchsandbox.parse(one) for one in boxes], pool_uid=uid)  # fmt: skip
