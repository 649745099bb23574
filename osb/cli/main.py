"""`osbctl`: one command for running the controller and for looking into it.

Each subcommand is one file; each is registered in `app` with its help and an example. Failures become one line on
stderr and an exit code (`osb.cli.failures`).
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
from osb.cli.command import Command
from osb.cli.context import FAILED
from osb.cli.failures import fault, misused, told
from osb.errors import OsbError

EPILOG = (
    "Exit codes: 0 done, 1 failed or something was found, 2 wrong usage or setting, 3 no such object, "
    "70 a fault of osbctl itself."
)


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
    made.command("demo", cls=Command, epilog=demo.EXAMPLE)(demo.demo)
    made.command("up", cls=Command, epilog=up.EXAMPLE, context_settings=free)(up.up)
    made.command("watch", cls=Command, epilog=watch.EXAMPLE)(watch.watch)
    made.command("get", cls=Command, epilog=get.EXAMPLE)(get.get)
    made.command("explain", cls=Command, epilog=explain.EXAMPLE)(explain.explain)
    made.command("plan", cls=Command, epilog=plan.EXAMPLE)(plan.plan)
    made.command("reconcile", cls=Command, epilog=reconcile.EXAMPLE)(reconcile.reconcile)
    made.command("queue", cls=Command, epilog=queue.EXAMPLE)(queue.queue)
    made.add_typer(ledger.app, name="ledger")
    made.command("release", cls=Command, epilog=release.EXAMPLE)(release.release)
    made.command("journal", cls=Command, epilog=journal.EXAMPLE)(journal.journal)
    made.command("hold", cls=Command, epilog=hold.EXAMPLE)(hold.hold)
    made.command("unhold", cls=Command, epilog=hold.EXAMPLE_UNHOLD)(hold.unhold)
    made.command("doctor", cls=Command, epilog=doctor.EXAMPLE)(doctor.doctor)
    made.command("crds", cls=Command, epilog=crds.EXAMPLE)(crds.crds)
    whole = {**free, "help_option_names": []}
    made.command("bench", cls=Command, epilog=bench.EXAMPLE, context_settings=whole)(bench.bench)
    made.command("executor", cls=Command, epilog=executor.EXAMPLE, context_settings=whole)(executor.executor)
    made.command("completion", cls=Command, epilog=completion.EXAMPLE)(completion.completion)
    return made


def _whole(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="print it and end"),
) -> None:
    """Run and inspect a controller of sandbox pools."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `osbctl`. Ends the process with the command's exit code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code of one call; nothing leaves this function as an exception."""
    try:
        code = app()(args=list(arguments) if arguments is not None else None, prog_name="osbctl", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OsbError as error:
        return told(error)
    except typer.TyperException as error:
        return misused(error)
    except Exception as error:  # noqa: BLE001 - told in one line, with the way to its stack
        return fault(error)
