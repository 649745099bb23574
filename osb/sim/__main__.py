"""`python -m osb.sim`: the simulated cluster as a process. Prints `ready <url>`.

It ends with its parent or on SIGTERM. `--kubelet-for KUBECONFIG` runs only the fake kubelet, against a
real control plane.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import sys
import tempfile
from pathlib import Path

from osb.ending import Ending
from osb.sim.cluster import SimCluster
from osb.sim.kubelet import FakeKubelet
from osb.sim.script import seconds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m osb.sim", description=__doc__)
    parser.add_argument("--dir", type=Path, help="folder for the kubeconfig (default: a temporary one)")
    parser.add_argument("--port", type=int, default=0, help="loopback port (default: a free one)")
    parser.add_argument("--pod-ready", default="0.5s", help="time from binding to Ready, e.g. 2s (default 0.5s)")
    parser.add_argument("--nodes", type=int, default=1, help="how many nodes the kubelet plays")
    parser.add_argument("--first-address", default="", help="of the pods, in 127.16.0.0/12 (default: drawn by lot)")
    parser.add_argument("--no-kubelet", action="store_true", help="only the API server")
    parser.add_argument("--kubelet-for", type=Path, metavar="KUBECONFIG", help="only the kubelet, for this cluster")
    found = parser.parse_args()
    found.pod_ready = seconds(found.pod_ready)
    if found.pod_ready is None:
        parser.error("--pod-ready: a time such as 2s, 500ms or 1.5")
    return found


def _end_with_parent() -> None:
    """SIGTERM when the parent is gone (Linux), also when it went before this line."""
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != parent:
        raise SystemExit(0)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def _kubelet(arguments: argparse.Namespace) -> None:
    kubelet = FakeKubelet(
        arguments.kubelet_for, pod_ready=arguments.pod_ready, nodes=arguments.nodes,
        first_address=arguments.first_address,
    )  # fmt: skip
    task = asyncio.create_task(kubelet.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    ready = asyncio.create_task(kubelet.ready.wait())
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        _say(f"ready {kubelet.api.url}")
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main() -> None:
    arguments = _arguments()
    _end_with_parent()
    if arguments.kubelet_for:
        asyncio.run(_kubelet(arguments))
        return
    over = Ending()
    folder = arguments.dir or Path(tempfile.mkdtemp(prefix="osb-sim-"))
    gc.set_threshold(50_000, 20, 50)  # many objects that stay: full collections would cost more than they find
    cluster = SimCluster.start(
        folder, port=arguments.port, pod_ready=arguments.pod_ready, nodes=arguments.nodes,
        kubelet=not arguments.no_kubelet, first_address=arguments.first_address,
    )  # fmt: skip
    _say(f"ready {cluster.url}")
    over.wait()
    cluster.stop()


if __name__ == "__main__":
    main()
