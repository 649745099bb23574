"""`osbctl watch`: the watcher process. Everything about it is in `osb.watch.main`."""

from __future__ import annotations

from osb.cli.context import quit_with
from osb.cli.programs import program

EXAMPLE = "Example: REDIS_URL=redis://redis:6379/0 osbctl watch. Settings come from the environment only."


def watch() -> None:
    """Turn events of the cluster into work: list and watch, until SIGTERM. Any number may run."""
    quit_with(int(program("osb.watch.main", "run", what="the watcher")()))
