"""The page of all commands, docs/cli.md, printed from the commands themselves (a test compares)."""

from __future__ import annotations

from typing import Any

import typer.main

from osb.cli.context import FAILED, FAULT, MISSING, USAGE

HEAD = f"""# osbctl

Exit codes of every command:

| code | meaning |
|---|---|
| 0 | done; nothing was found |
| {FAILED} | it failed, or something was found (`doctor`, `ledger verify`) |
| {USAGE} | wrong usage, or a setting with a wrong value |
| {MISSING} | the object does not exist |
| {FAULT} | a fault of osbctl itself; `OSB_DEBUG=1` shows its stack |
| 130 | stopped by Ctrl-C |

`osbctl --version` prints the version, `-h` the help of any command.

Names are `namespace/name`, or a name in the namespace of `-n` (default `default`). Addresses come from REDIS_URL
and KUBECONFIG, or `--redis-url` and `--kubeconfig`. Errors, those of usage too, are one line on stderr that
names the object and the remedy. An argument or option that is given but empty is refused. Commands that use both Redis
and the cluster refuse a pair that does not belong together; `hold`, `unhold`, `release` go on when Redis is away.
"""


def render() -> str:
    """The page as Markdown."""
    from osb.cli.main import app

    return HEAD + "".join(_section(name, command) for name, command in _commands(typer.main.get_command(app()), ""))


def _commands(group: Any, prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found += _commands(command, f"{prefix}{name} ")
        else:
            found.append((f"{prefix}{name}", command))
    return found


def _section(name: str, command: Any) -> str:
    arguments = " ".join(_argument(one) for one in command.params if one.param_type_name == "argument")
    lines = [f"\n## osbctl {name} {arguments}".rstrip(), "", " ".join(command.help.split()), ""]
    rows = [_row(one) for one in command.params if getattr(one, "help", "")]
    if rows:
        lines += ["| argument | meaning |", "|---|---|", *rows, ""]
    if command.epilog:
        lines.append(" ".join(command.epilog.split()))
    return "\n".join(lines).rstrip() + "\n"


def _argument(one: Any) -> str:
    return one.name.upper() if one.required else f"[{one.name.upper()}]"


def _row(one: Any) -> str:
    if one.param_type_name == "argument":
        return f"| {one.name.upper()} | {one.help} |"
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    default = f" (default `{one.default}`)" if one.default not in (None, "", False, True, ()) else ""
    return f"| {names} | {one.help}{default} |"
