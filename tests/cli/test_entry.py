"""The programs that run for long load only themselves: the executor shares a pod with the user's sandbox."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

HEAVY = ("typer", "rich", "redis", "kubernetes", "celery", "aiohttp")


def _loaded(arguments: list[str]) -> set[str]:
    code = (
        "import sys; sys.argv = ['osbctl', *ARGUMENTS]\n"
        "import osb.executor.main as program\n"
        "program.main = lambda arguments: 0\n"
        "from osb.cli.entry import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "print(' '.join(sorted(sys.modules)))"
    ).replace("ARGUMENTS", repr(arguments))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return {module.partition(".")[0] for module in done.stdout.split()}


def test_the_executor_loads_nothing_of_the_controllers_libraries() -> None:
    assert not _loaded(["executor", "--listen-addr", "127.0.0.1:0"]) & set(HEAVY)


def test_the_version_is_printed_for_who_reports_a_bug() -> None:
    asked = subprocess.run([sys.executable, "-m", "osb.cli", "--version"], capture_output=True, text=True, timeout=60)
    assert (asked.returncode, asked.stdout) == (0, f"osbctl {version('osb-controller')}\n")


def test_an_unknown_command_still_ends_with_usage() -> None:
    code = "import sys; sys.argv = ['osbctl', 'nonsense']; from osb.cli.entry import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "nonsense" in done.stderr
