"""What a failure means to a person (one line on stderr, with what to do) and to a script (the exit code)."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import typer

from osb.cli.context import FAILED, FAULT, MISSING, USAGE, NoSuch, Wrong
from osb.errors import ApiError, ConfigError, Conflict, InvalidInput, NotFound, OsbError, StoreDown, Unavailable

DEBUG = "OSB_DEBUG"


def advice(error: OsbError) -> str:
    """What to do, for errors that cannot know it themselves; else ""."""
    if isinstance(error, StoreDown):
        return "is Redis up, and is --redis-url (REDIS_URL) right?"
    if isinstance(error, Unavailable):
        return "is the API server up, and is --kubeconfig (KUBECONFIG) right?"
    if isinstance(error, Conflict):
        return "it changed meanwhile: run it again"
    if isinstance(error, ApiError) and error.status == 401:
        return "the credentials of --kubeconfig (KUBECONFIG) are not accepted: renew them"
    if isinstance(error, ApiError) and error.status == 403:
        return "`osbctl doctor` lists which rights this account lacks"
    return ""


def remedy(error: OsbError) -> str:
    """The advice as the end of a line."""
    said = advice(error)
    return f"; {said}" if said else ""


def exit_code(error: OsbError) -> int:
    """What an error of ours means to a script."""
    if isinstance(error, (NoSuch, NotFound)):
        return MISSING
    if isinstance(error, (Wrong, ConfigError, InvalidInput)):
        return USAGE
    return FAILED


def told(error: OsbError) -> int:
    """Say what went wrong; the exit code."""
    typer.echo(f"osbctl: {error}{remedy(error)}", err=True)
    return exit_code(error)


def misused(error: typer.TyperException) -> int:
    """Say what the parser does not accept, and where help is; the exit code."""
    text, context = error.format_message(), getattr(error, "ctx", None)
    if "\n" in text:  # a group without a command: its help
        typer.echo(text, err=True)
        return error.exit_code
    command = context.command_path if context is not None else "osbctl"
    typer.echo(f"{command}: {text.rstrip('.')}; `{command} --help` shows what is accepted", err=True)
    return error.exit_code


def fault(error: Exception) -> int:
    """Say that the mistake is ours; its stack only when it is asked for. The exit code."""
    if os.environ.get(DEBUG, "") not in ("", "0", "false"):
        traceback.print_exception(error)
    at = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" in {Path(frame.filename).name}:{frame.lineno}" for frame in at)
    words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    typer.echo(f"osbctl: a fault of osbctl itself{place}: {words}; {DEBUG}=1 shows where, please report it", err=True)
    return FAULT
