"""`osbctl executor`: run the tasks of a sandbox inside its pod. All arguments go to `osb.executor.main`."""

from __future__ import annotations

import typer

from osb.cli.context import quit_with
from osb.cli.programs import program

EXAMPLE = "Example: osbctl executor --listen-addr 0.0.0.0:5758 --data-dir /var/lib/sandbox/tasks"


def executor(context: typer.Context) -> None:
    """Run the task executor (inside a sandbox's pod)."""
    quit_with(int(program("osb.executor.main", "main", what="the executor")(context.args) or 0))
