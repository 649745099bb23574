"""Tables like kubectl's (never cut, easy to grep), JSON, YAML, and times as people say them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
import typer
import yaml

from osb.cli.context import Wrong

FORMATS = ("table", "json", "yaml")


def say(text: str = "") -> None:
    typer.echo(text)


def warn(text: str) -> None:
    typer.echo(text, err=True)


def checked_format(output: str) -> str:
    """Raises Wrong for a format that does not exist."""
    if output not in FORMATS:
        raise Wrong(f"--output {output}: one of {', '.join(FORMATS)} is accepted")
    return output


def data(value: Any, output: str) -> None:
    """Print a value as JSON or YAML."""
    if output == "yaml":
        say(yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True, width=120).rstrip())
    else:
        say(orjson.dumps(plain(value), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode())


def plain(value: Any) -> Any:
    """Only what JSON knows: tuples become lists, dates text."""
    return orjson.loads(orjson.dumps(value, default=_other, option=orjson.OPT_NON_STR_KEYS))


def _other(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return dict(value) if hasattr(value, "keys") else str(value)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their widest cell; an empty table says so on stderr, like kubectl."""
    cells = [[str(cell) for cell in row] for row in rows]
    if not cells:
        warn("nothing found")
        return
    widths = [max(len(row[at]) for row in [list(headers), *cells]) for at in range(len(headers))]
    for row in [list(headers), *cells]:
        say("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """`name:  value` lines with aligned values; empty values are left out."""
    shown = [(name, str(value)) for name, value in pairs if value not in (None, "", [], ())]
    width = max((len(name) for name, _ in shown), default=0) + 2
    for name, value in shown:
        say(f"{name + ':':<{width}} {value}")


def section(title: str, lines: Iterable[str]) -> None:
    """A titled list; nothing when there are no lines."""
    items = list(lines)
    if items:
        say(f"\n{title}:")
        for line in items:
            say(f"  {line}")


def age(stamp: str | None, now: datetime | None = None) -> str:
    """`45s`, `3m`, `2h`, `4d` since an RFC 3339 time; "" when there is none."""
    if not stamp:
        return ""
    try:
        then = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    except ValueError:
        return stamp
    return span(max(0.0, ((now or datetime.now(UTC)) - then).total_seconds()))


def span(seconds: float) -> str:
    """A length of time in its two largest units at most."""
    if seconds < 10:
        return f"{seconds:.1f}s" if seconds % 1 else f"{seconds:.0f}s"
    whole = int(seconds)
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m{whole % 60:02d}s" if whole < 600 else f"{whole // 60}m"
    return f"{whole // 3600}h" if whole < 172_800 else f"{whole // 86_400}d"


def clock(ms: int) -> str:
    """Local wall-clock time of an epoch in ms."""
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%H:%M:%S.%f")[:-3]
