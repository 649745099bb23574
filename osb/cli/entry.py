"""Entry point of `osbctl`. Programs that run for long load only themselves: the executor must fit a sidecar.

Everything else is `osb.cli.main`.
"""

from __future__ import annotations

import sys

from osb.errors import OsbError


def main() -> None:
    """Run `sys.argv`; ends the process with the command's exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["executor"]:
        from osb.executor.main import main as execute

        sys.exit(execute(arguments[1:]))
    if arguments == ["watch"]:
        _watch()
    from osb.cli.main import main as command_line

    command_line()


def _watch() -> None:
    from osb.cli.programs import program

    try:
        sys.exit(program("osb.watch.main", "run", what="the watcher")())
    except OsbError as error:
        from osb.cli.failures import told

        sys.exit(told(error))
