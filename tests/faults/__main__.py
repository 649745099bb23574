"""`python -m tests.faults [--cluster real] [--kills 20] [--flushes 3]`: one long storm, one line of result."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.doubles import controlplane
from tests.doubles.cluster import Cluster
from tests.doubles.controller import Controller
from tests.doubles.storm import Storm


def main() -> int:
    ask = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    ask.add_argument("--cluster", choices=("sim", "real"), default="sim")
    ask.add_argument("--kills", type=int, default=20, help="of each kind: watcher, worker, beat")
    ask.add_argument("--flushes", type=int, default=3)
    ask.add_argument("--users", type=int, default=8)
    ask.add_argument("--pause", type=float, default=2.0, help="mean seconds between two blows")
    ask.add_argument("--seed", type=int, default=0)
    wanted = ask.parse_args()
    found = controlplane.find() if wanted.cluster == "real" else None
    if wanted.cluster == "real" and found is None:
        ask.error("there is no real control plane: set KUBEBUILDER_ASSETS to a folder with its binaries")
    folder = Path(tempfile.mkdtemp(prefix="osb-faults-"))
    (folder / "controller").mkdir()
    with Cluster(folder, found) as cluster, Controller(folder / "controller", cluster.kubeconfig) as controller:
        for name in ("watcher-2", "worker-3", "beat-2"):
            controller.spawn(name)
        controller.warm_up(cluster.space("first"))
        report = Storm(
            cluster.space("faults"), controller, kills=wanted.kills, flushes=wanted.flushes, pause=wanted.pause,
            users=wanted.users, seed=wanted.seed,
        ).run()  # fmt: skip
    print(report.line())
    for problem in report.problems:
        print("-", problem)
    print(f"logs: {folder}")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
