"""How the demo looks: a live table below the story in a terminal, plain lines elsewhere.

The table redraws itself at most four times a second from whatever `Snapshot` it is given; nothing here reads anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

STYLES = {
    "title": "bold",
    "command": "cyan",
    "more": "cyan",
    "fact": "green",
    "why": "dim",
    "plain": "",
    "error": "bold red",
}
INDENT = {"title": "", "command": "$ ", "more": "", "fact": "   ✔ ", "why": "     ", "plain": "", "error": ""}
COPIED = ("command", "more", "plain")
Row = Sequence[object]
NAME, CELL = 32, 60  # characters of a row's name and of its other cells at most


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Rows of the three tables."""

    pools: Sequence[Row] = ()
    sandboxes: Sequence[Row] = ()
    queues: Sequence[Row] = ()


class Screen:
    """`say` prints a line of the story, `show` replaces the table. Use as a context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.live: Live | None = None
        if self.console.is_terminal:
            self.live = Live(Text(""), console=self.console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Screen:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def say(self, style: str, line: str) -> None:
        """One line of the story. Those of a command begin at the margin and are never broken: they are for copying."""
        indent = INDENT[style]
        if style == "title":
            self.console.print()
        text = Text(line, style=STYLES[style])
        if self.live is None or style in COPIED:
            self.console.print(Text(indent) + text, soft_wrap=True)
            return
        row = Table.grid()
        row.add_column(width=len(indent))
        row.add_column(overflow="fold")
        row.add_row(Text(indent, style=STYLES[style]), text)
        self.console.print(row)

    def show(self, now: Snapshot) -> None:
        if self.live is not None:
            self.live.update(view(now, height=self.console.height))


def view(now: Snapshot, *, height: int = 40) -> RenderableType:
    """The tables; sandboxes are cut to what fits a screen of `height` lines."""
    room = max(3, height - len(now.pools) - len(now.queues) - 14)
    shown = list(now.sandboxes[:room])
    parts: list[RenderableType] = [
        Rule(style="dim"),
        _table("pools", ["pool", "total", "allocated", "available", "starting", "waiting", "state"], now.pools),
        _table("sandboxes", ["sandbox", "wants", "ready", "phase", "ms to endpoints", "waits for"], shown),
    ]
    if len(now.sandboxes) > room:
        parts.append(Text(f"  and {len(now.sandboxes) - room} more sandboxes", style="dim"))
    parts.append(_table("queues", ["queue", "now", "later", "running", "due", "oldest"], now.queues))
    return Group(*parts)


def _cut(text: str, most: int) -> str:
    """A name may have 253 characters and must not push the numbers off the screen: its ends tell most."""
    return text if len(text) <= most else f"{text[: most - 13]}…{text[-12:]}"


def _table(title: str, headers: Sequence[str], rows: Sequence[Row]) -> Table:
    made = Table(
        title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0), header_style="dim"
    )
    for number, name in enumerate(headers):
        outer = number in (0, len(headers) - 1)  # texts: these give way when the screen is narrow, numbers do not
        made.add_column(name, no_wrap=not outer, justify="left" if outer else "right", overflow="ellipsis")
    for row in rows:
        cells = (_cut(str(cell), NAME if number == 0 else CELL) for number, cell in enumerate(row))
        made.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
    return made
