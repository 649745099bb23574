"""`osbctl journal`: the last decisions, newest last; `-f` follows."""

from __future__ import annotations

import time

import typer

from osb.api.key import BATCHSANDBOX, POOL
from osb.cli import output as out
from osb.cli.context import Namespace, Output, RedisUrl, key_of, reach
from osb.cli.explain import entry_text

EXAMPLE = "Example: osbctl journal --pool default/warm -f"
POLL_SECONDS = 0.5


def journal(
    pool: str = typer.Option("", "--pool", help="only decisions about this pool, namespace/name"),
    box: str = typer.Option("", "--box", help="only decisions about this sandbox, namespace/name"),
    namespace: Namespace = "default",
    limit: int = typer.Option(30, "--limit", min=1, help="how many of the last ones"),
    follow: bool = typer.Option(False, "--follow", "-f", help="go on until Ctrl-C"),
    output: Output = "table",
    redis_url: RedisUrl = "",
) -> None:
    """Show what was decided, for whom, and why."""
    out.checked_format(output)
    pool = key_of(POOL, pool, namespace).member if pool else ""
    box = key_of(BATCHSANDBOX, box, namespace).member if box else ""
    with reach(redis_url) as one:
        entries = list(reversed(one.store.journal.read(pool=pool, box=box, limit=limit)))
        if output != "table" and not follow:
            return out.data(entries, output)
        if not entries:
            out.warn(f"no decision about {' and '.join(filter(None, (pool, box))) or 'anything'} is in the journal; "
                     "names are namespace/name, or names in the namespace of -n")  # fmt: skip
        _show(entries, output)
        last = entries[-1]["at_ms"] if entries else 0
        shown = [entry for entry in entries if entry["at_ms"] == last]
        while follow:
            time.sleep(POLL_SECONDS)
            recent = reversed(one.store.journal.read(pool=pool, box=box, limit=500))
            new = [e for e in recent if e["at_ms"] > last or (e["at_ms"] == last and e not in shown)]
            _show(new, output)
            if new:
                last = new[-1]["at_ms"]
                shown = [e for e in new if e["at_ms"] == last]
    return None


def _show(entries: list[dict[str, object]], output: str) -> None:
    for entry in entries:
        if output == "table":
            out.say(entry_text(entry))
        else:
            out.data(entry, output)
