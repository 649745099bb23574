"""Help is complete, and the page of commands is what the commands say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from osb.cli import main, reference

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
COMMANDS = ("demo", "up", "watch", "get", "explain", "plan", "reconcile", "queue", "ledger show", "ledger verify",
            "release", "journal", "hold", "unhold", "doctor", "crds", "bench", "executor", "completion")  # fmt: skip


def test_the_page_of_commands_is_up_to_date() -> None:
    assert PAGE.read_text() == reference.render(), "print osb.cli.reference.render() into docs/cli.md"
    assert [f"## osbctl {name}" in reference.render() for name in COMMANDS] == [True] * len(COMMANDS)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in ("bench", "executor")])
def test_help_of_every_command_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*command.split(), "--help"]) == 0
    assert "Example:" in " ".join(capsys.readouterr().out.split())


def test_the_entry_point_documents_its_exit_codes_and_is_quick_to_import() -> None:
    ended = subprocess.run([sys.executable, "-m", "osb.cli", "--help"], capture_output=True, text=True, timeout=20)
    assert ended.returncode == 0 and "Exit codes: 0 done" in ended.stdout
    heavy = (
        "import sys, osb.cli.main; print([m for m in ('kubernetes', 'celery', 'kombu', 'aiohttp') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, timeout=20)
    assert loaded.stdout.strip() == "[]"
