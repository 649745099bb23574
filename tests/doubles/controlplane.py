"""Where tests find a real Kubernetes control plane; `osb.bench.plane` starts it.

`find()` looks where the documentation says: KUBEBUILDER_ASSETS, a build script beside the checkout, a kubeconfig
of a disposable cluster.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from osb.bench.plane import NEEDED

SCRIPT = Path(__file__).resolve().parents[3] / "shared" / "tools" / "control-plane"


@dataclass(frozen=True, slots=True)
class Found:
    """Where a real cluster comes from: binaries to start, or the kubeconfig of one that runs."""

    assets: Path | None = None
    kubeconfig: Path | None = None


def find() -> Found | None:
    """The first of the three places that has one; None when there is no real cluster to test on."""
    if (assets := os.environ.get("KUBEBUILDER_ASSETS")) and _complete(Path(assets)):
        return Found(assets=Path(assets))
    if os.access(SCRIPT, os.X_OK):
        asked = subprocess.run([str(SCRIPT), "assets"], capture_output=True, text=True, check=False)
        if asked.returncode == 0 and _complete(Path(asked.stdout.strip())):
            return Found(assets=Path(asked.stdout.strip()))
    named = os.environ.get("OSB_TEST_KUBECONFIG")
    if named and os.environ.get("OSB_TEST_CLUSTER_DISPOSABLE") == "1":
        return Found(kubeconfig=Path(named))
    return None


def must_exist() -> bool:
    """In CI a control plane that could be built but is not there is an error, not a reason to test less."""
    return os.environ.get("CI", "").lower() in ("1", "true") and SCRIPT.exists()


def kubectl() -> str | None:
    """A kubectl to test with: on PATH, else beside the control plane's binaries."""
    if path := shutil.which("kubectl"):
        return path
    found = find()
    beside = found.assets / "kubectl" if found and found.assets else None
    return str(beside) if beside and os.access(beside, os.X_OK) else None


def _complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in NEEDED)
