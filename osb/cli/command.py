"""A subcommand that takes no empty text: it comes from a shell variable that is not set, and would mean "all"."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand


class Command(TyperCommand):
    """`osbctl get pools "$NAME"` with an empty NAME is refused; without the argument it lists."""

    def invoke(self, ctx: Any) -> Any:
        param: Any  # typer keeps its classes of parameters to itself
        for param in self.params:
            source = ctx.get_parameter_source(param.name)
            if ctx.params.get(param.name) == "" and source is not None and source.name == "COMMANDLINE":
                raise typer.BadParameter("it is empty (a shell variable that is not set?)", ctx, param)
        return super().invoke(ctx)
