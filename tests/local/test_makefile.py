"""`make` sets up an environment that works, also after an attempt that did not come to its end."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "requirements-dev.lock"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def _make(checkout: Path, target: str, **env: str) -> subprocess.CompletedProcess[str]:
    # Not the make that runs these tests
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(
        ["make", target, f"PYTHON={sys.executable}"], cwd=checkout, env={**kept, **env},
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip


def test_an_environment_whose_making_was_interrupted_is_made_anew(checkout: Path) -> None:
    # Given what Ctrl-C leaves while `python -m venv` runs: an interpreter and no pip
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(checkout / ".venv")], check=True, timeout=60)
    # When the next make runs, and there is no package index
    ended = _make(
        checkout, ".venv/.run", PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0", PIP_NO_CACHE_DIR="1"
    )
    # Then pip is there, and the last word but make's own is ours
    assert "No module named pip" not in ended.stderr
    assert subprocess.run([checkout / ".venv/bin/python", "-m", "pip", "--version"], timeout=60).returncode == 0
    assert ended.returncode != 0
    assert ended.stdout.strip().splitlines()[-1].startswith("The install failed. It needs the Python package index")


def test_a_finished_environment_of_an_earlier_version_is_left_alone(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv/.run").touch()
    assert _make(checkout, ".venv/.made").returncode == 0
    assert sorted(one.name for one in (checkout / ".venv").iterdir()) == [".made", ".run"]
