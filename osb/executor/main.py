"""Arguments, start and stop of the executor; one process can also be many executors, each on its own address.

`--addresses 127.16.0.1-127.16.3.250` (or a file with one address a line) serves every address with a table of
its own (tests: one address per pod, the fixed port kept); with `--fake` no process is started.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from osb.executor.fake import Fakes
from osb.executor.http import HEAD_LIMIT, Server
from osb.executor.process import SECRET, Processes, Runner
from osb.executor.sidecar import Sidecar
from osb.executor.table import GRACE, Table
from osb.executor.task import Folder

ADDRESS = "0.0.0.0:5758"
DATA = "/var/lib/sandbox/tasks"
RETRY = 1.0


def parser() -> argparse.ArgumentParser:
    env = os.environ
    it = argparse.ArgumentParser(prog="osbctl executor", description="Run the tasks of a sandbox in its pod.")
    it.add_argument("--listen-addr", default=env.get("LISTEN_ADDR", ADDRESS), help="host:port (LISTEN_ADDR)")
    it.add_argument("--data-dir", default=env.get("DATA_DIR", DATA), help="folder of the tasks (DATA_DIR)")
    it.add_argument(
        "--enable-sidecar-mode",
        action=argparse.BooleanOptionalAction,
        default=env.get("ENABLE_SIDECAR_MODE", "").lower() in ("1", "true", "yes"),
        help="run tasks in the main container (ENABLE_SIDECAR_MODE)",
    )
    it.add_argument("--main-container-name", default=env.get("MAIN_CONTAINER_NAME", "main"))
    it.add_argument("--stop-grace", type=float, default=GRACE, help="seconds from SIGTERM to SIGKILL")
    it.add_argument("--addresses", default="", help="first-last or a file: one executor per address")
    it.add_argument("--fake", action="store_true", help="start no processes (tests)")
    return it


def addresses(text: str) -> list[str]:
    """The addresses of `first-last`, or of a file with one a line."""
    if os.path.isfile(text):
        return [line.strip() for line in Path(text).read_text().splitlines() if line.strip()]
    first, dash, last = text.partition("-")
    low = ipaddress.ip_address(first)
    high = ipaddress.ip_address(last) if dash else low
    return [str(ipaddress.ip_address(n)) for n in range(int(low), int(high) + 1)]


class Executor:
    """One table behind one server, with the timer that its `tick` asks for."""

    def __init__(self, folder: Folder, runner: Runner, *, token: str = "", grace: float = GRACE) -> None:
        self.table = Table(folder, runner, grace=grace)
        self.server = Server(self.table, token=token, after=self.wake)
        self._timer: asyncio.TimerHandle | None = None
        self._listening: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        self._listening = await asyncio.start_server(
            self.server.connection, host or None, port, limit=HEAD_LIMIT, backlog=64
        )
        self.wake()

    def wake(self) -> None:
        """Look at the tasks now, and again when they ask for it; without work there is no timer at all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            wait = self.table.tick()
        except Exception as failed:  # noqa: BLE001 - a full disk, say: the tasks are looked at again
            sys.stderr.write(f"looking at the tasks failed, again in {RETRY:g} s: {failed!r}\n")
            wait = RETRY
        if wait is not None:
            self._timer = asyncio.get_running_loop().call_later(wait, self.wake)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._listening is not None:
            self._listening.close()

    @property
    def port(self) -> int:
        assert self._listening is not None
        return int(self._listening.sockets[0].getsockname()[1])


def executors(args: argparse.Namespace, token: str) -> list[tuple[str, Executor]]:
    """The executors to serve, with their hosts."""
    if not args.addresses:
        runner: Runner = Fakes() if args.fake else Processes()
        if args.enable_sidecar_mode and not args.fake:
            runner = Sidecar(args.main_container_name)
        folder = Folder(None if args.fake else Path(args.data_dir))
        host = args.listen_addr.rpartition(":")[0].strip("[]")
        return [(host, Executor(folder, runner, token=token, grace=args.stop_grace))]
    found = []
    shared = Processes()
    for address in addresses(args.addresses):
        runner = Fakes() if args.fake else shared
        folder = Folder(None if args.fake else Path(args.data_dir) / address)
        found.append((address, Executor(folder, runner, token=token, grace=args.stop_grace)))
    return found


def _port(address: str) -> int:
    """The port of `host:port`. Raises ValueError for none, or one above 65535.

    asyncio would take 99999 for another port without a word.
    """
    text = address.rpartition(":")[2]
    if not text.isdigit() or int(text) > 65535:
        raise ValueError("host:port with a port up to 65535 is accepted")
    return int(text)


async def serve(args: argparse.Namespace, *, token: str = "") -> None:
    """Serve until SIGTERM or SIGINT. Tasks are left running: the next executor takes them over."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    port = _port(args.listen_addr)
    running = executors(args, token)

    def child_ended() -> None:
        for _, one in running:
            one.wake()

    loop.add_signal_handler(signal.SIGCHLD, child_ended)
    for host, one in running:
        await one.listen(host, port)
    print(f"executor ready: {len(running)} address(es), port {port}", flush=True)  # noqa: T201 - a container's log
    await stop.wait()
    for _, one in running:
        one.close()


def unusable(folder: str) -> str:
    """Why tasks cannot be kept in that folder, "" when they can."""
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"--data-dir {folder}: {error.strerror or error}; name a folder that this user may write (DATA_DIR)"


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if not args.fake and (problem := unusable(args.data_dir)):
        sys.stderr.write(f"osbctl executor: {problem}\n")
        return 2
    token = os.environ.pop(SECRET, "")
    try:
        asyncio.run(serve(args, token=token))
    except KeyboardInterrupt:
        pass
    except (OSError, OverflowError, ValueError) as error:  # no address, or one that is taken
        where = f"--addresses {args.addresses}, " if args.addresses else ""
        sys.stderr.write(f"osbctl executor: {where}--listen-addr {args.listen_addr} (LISTEN_ADDR): {error}\n")
        return 2
    return 0
