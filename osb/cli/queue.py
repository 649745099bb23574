"""`osbctl queue`: what waits, runs, is due or in quarantine, of every kind or one."""

from __future__ import annotations

import typer

from osb.api.key import KINDS
from osb.cli import output as out
from osb.cli.context import Output, Reach, RedisUrl, kind_of, reach
from osb.store.queue import What

EXAMPLE = "Example: osbctl queue pool"
STATES: tuple[What, ...] = ("running", "dirty", "quarantined", "failing", "due")


def queue(
    kind: str = typer.Argument("", help="only this kind, with its keys"),
    limit: int = typer.Option(20, "--limit", min=1, help="keys shown of each state"),
    output: Output = "table",
    redis_url: RedisUrl = "",
) -> None:
    """Show the work queue: sizes and oldest ages of all kinds, or the keys of one."""
    out.checked_format(output)
    with reach(redis_url) as one:
        if kind:
            _keys(one, kind_of(kind), limit, output)
        else:
            _sizes(one, output)


def _sizes(reach: Reach, output: str) -> None:
    stats = {kind: reach.store.queue.stats(kind) for kind in KINDS}
    age = reach.store.queue.tick_age_ms()
    if output != "table":
        sizes = {kind: {name: getattr(one, name) for name in one.__slots__} for kind, one in stats.items()}
        return out.data({"kinds": sizes, "beatAgeMs": age}, output)
    out.table(
        ["KIND", "NOW", "OLDEST", "LATER", "OLDEST", "RUNNING", "DUE", "FAILING", "QUARANTINED"],
        ([kind, s.dirty_now, out.span(s.oldest_ms_now / 1000), s.dirty_later, out.span(s.oldest_ms_later / 1000),
          s.running, s.due, s.failing, s.quarantined] for kind, s in stats.items()),
    )  # fmt: skip
    alive = "never, or longer than 10 minutes ago" if age is None else f"{out.span(age / 1000)} ago"
    return out.say(f"\nbeat was last alive: {alive}")


def _keys(reach: Reach, kind: str, limit: int, output: str) -> None:
    ms = reach.store.queue.now_ms()
    found = [(what, one) for what in STATES for one in reach.store.queue.listing(kind, what, limit)]
    if output != "table":
        items = [{"state": what, "key": one.key.text, "at": one.at_ms, "reason": one.reason} for what, one in found]
        return out.data(items, output)
    rows = ([what, one.key.member, _when(what, one.at_ms, ms), one.reason] for what, one in found)
    return out.table(["STATE", "KEY", "SINCE/IN", "REASON"], rows)


def _when(what: str, at_ms: int, now_ms: int) -> str:
    if what == "failing":
        return f"{at_ms} times"
    if what == "dirty":
        return f"{out.span(max(0, now_ms - at_ms) / 1000)} ago"
    return f"in {out.span(max(0, at_ms - now_ms) / 1000)}"
