"""`osbctl crds`: print the three CustomResourceDefinitions, ready for `kubectl apply -f -`."""

from __future__ import annotations

import typer
import yaml

from osb.cli import output as out
from osb.cli.context import Output

EXAMPLE = "Example: osbctl crds | kubectl apply -f -"


def crds(
    cel: bool = typer.Option(False, "--cel", help="with validation rules, for servers from 1.30 on"),
    output: Output = "yaml",
) -> None:
    """Print the CustomResourceDefinitions."""
    from osb.api.crds import crds as definitions

    made = definitions(cel=cel)
    if out.checked_format(output) == "json":
        out.data({"apiVersion": "v1", "kind": "List", "items": made}, "json")
    else:
        out.say(yaml.safe_dump_all(made, sort_keys=False, width=120).rstrip())
