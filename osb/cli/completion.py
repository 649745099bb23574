"""`osbctl completion SHELL`: print the script that completes commands and options in that shell."""

from __future__ import annotations

import typer

from osb.cli.context import Wrong
from osb.cli.output import say

EXAMPLE = "Example: source <(osbctl completion bash)"
SHELLS = ("bash", "zsh", "fish")


def completion(shell: str = typer.Argument(..., help="bash, zsh or fish")) -> None:
    """Print a completion script for your shell."""
    from typer._completion_shared import get_completion_script

    if shell not in SHELLS:
        raise Wrong(f"shell {shell!r}: one of {', '.join(SHELLS)} is accepted")
    say(get_completion_script(prog_name="osbctl", complete_var="_OSBCTL_COMPLETE", shell=shell))
