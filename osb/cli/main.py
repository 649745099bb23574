"""`osbctl`: one command for running the controller and for looking into it.

Each subcommand is one file; each registers itself in `_app` with its help and an example. Failures become one line on
stderr and an exit code (`osb.cli.context`).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

import typer

from osb.cli import (
    bench,
    completion,
    crds,
    demo,
    doctor,
    executor,
    explain,
    get,
    hold,
    journal,
    ledger,
    plan,
    queue,
    reconcile,
    release,
    up,
    watch,
)
from osb.cli.context import FAILED, MISSING, USAGE, NoSuch, Wrong
from osb.errors import ConfigError, InvalidInput, NotFound, OsbError, StoreDown, Unavailable

EPILOG = "Exit codes: 0 done, 1 failed or something was found, 2 wrong usage or setting, 3 no such object."


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"osbctl {version('osb-controller')}")
        raise typer.Exit


def app() -> typer.Typer:
    """The whole command line."""
    made = typer.Typer(
        name="osbctl", help="Run and inspect a controller of sandbox pools.", epilog=EPILOG, no_args_is_help=True,
        add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )  # fmt: skip
    made.callback()(_whole)
    free = {"allow_extra_args": True, "ignore_unknown_options": True}
    made.command("demo", epilog=demo.EXAMPLE)(demo.demo)
    made.command("up", epilog=up.EXAMPLE, context_settings=free)(up.up)
    made.command("watch", epilog=watch.EXAMPLE)(watch.watch)
    made.command("get", epilog=get.EXAMPLE)(get.get)
    made.command("explain", epilog=explain.EXAMPLE)(explain.explain)
    made.command("plan", epilog=plan.EXAMPLE)(plan.plan)
    made.command("reconcile", epilog=reconcile.EXAMPLE)(reconcile.reconcile)
    made.command("queue", epilog=queue.EXAMPLE)(queue.queue)
    made.add_typer(ledger.app, name="ledger")
    made.command("release", epilog=release.EXAMPLE)(release.release)
    made.command("journal", epilog=journal.EXAMPLE)(journal.journal)
    made.command("hold", epilog=hold.EXAMPLE)(hold.hold)
    made.command("unhold", epilog=hold.EXAMPLE_UNHOLD)(hold.unhold)
    made.command("doctor", epilog=doctor.EXAMPLE)(doctor.doctor)
    made.command("crds", epilog=crds.EXAMPLE)(crds.crds)
    whole = {**free, "help_option_names": []}
    made.command("bench", epilog=bench.EXAMPLE, context_settings=whole)(bench.bench)
    made.command("executor", epilog=executor.EXAMPLE, context_settings=whole)(executor.executor)
    made.command("completion", epilog=completion.EXAMPLE)(completion.completion)
    return made


def _whole(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="print it and end"),
) -> None:
    """Run and inspect a controller of sandbox pools."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `osbctl`. Ends the process with the command's exit code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code of one call; nothing but a bug leaves this function as an exception."""
    try:
        app()(args=list(arguments) if arguments is not None else None, prog_name="osbctl")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OsbError as error:
        typer.echo(f"osbctl: {error}{remedy(error)}", err=True)
        return exit_code(error)
    return 0


def remedy(error: OsbError) -> str:
    """What to look at, for errors that cannot know it themselves."""
    if isinstance(error, StoreDown):
        return "; is Redis up, and is --redis-url (REDIS_URL) right?"
    if isinstance(error, Unavailable):
        return "; is the API server up, and is --kubeconfig (KUBECONFIG) right?"
    return ""


def exit_code(error: OsbError) -> int:
    """What an error of ours means to a script."""
    if isinstance(error, (NoSuch, NotFound)):
        return MISSING
    if isinstance(error, (Wrong, ConfigError, InvalidInput)):
        return USAGE
    return FAILED
