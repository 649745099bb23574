"""The demo's live table stays readable whatever is in it."""

from __future__ import annotations

import io

from rich.console import Console

from osb.local.demoview import Snapshot, view


def test_a_name_of_253_characters_hides_no_other_column() -> None:
    out = io.StringIO()
    row = ["b" * 253, 3, 2, "Succeed", "1,234", "waits for pods of a pool that is full and will be for long"]
    Console(file=out, width=80).print(view(Snapshot(sandboxes=[row])))
    (line,) = [line for line in out.getvalue().splitlines() if line.startswith("bbb")]
    assert [word for word in line.split() if word in ("3", "2", "Succeed", "1,234")] == ["3", "2", "Succeed", "1,234"]
