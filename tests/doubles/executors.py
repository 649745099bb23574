"""Task executors for the pods of a test: one per pod address, started when the pod gets it, ended with the pod.

A pod says by the annotation `test.osb/executor` what listens on its address:

=========  =========================================================================================================
real       a process of its own, `python -m osb.executor`, that starts real processes
fake       the same tables and server without processes, all in one thread: as many as there are pods
hang       accepts connections and never answers
garbage    answers something that is not what an executor says
foreign    lists a task that belongs to nobody here
down       nothing listens
=========  =========================================================================================================

Every start of a task is counted by `starts` (fake) or by the file that the task itself writes (real).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osb.executor.fake import Fakes
from osb.executor.main import Executor
from osb.executor.table import Table
from osb.executor.task import Folder, Task
from osb.local.redis import die_with_parent
from tests.doubles.cluster import Obj, Space

PORT = 5758
MARK = "test.osb/executor"
GRACE = 1.0
BODIES = {
    "garbage": b"<html>",
    "foreign": b'[{"name":"stranger-0","processStatus":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]',
}


class Counting(Fakes):
    """Fakes that report each start and its end to shared books."""

    def __init__(self, starts: Counter[str], ends: dict[str, float]) -> None:
        super().__init__()
        self._starts = starts
        self._ends = ends

    def start(self, task: Task, folder: Folder) -> None:
        self._starts[task.name] += 1
        super().start(task, folder)
        self._ends[task.name] = self._running[task.pid].ends


@dataclass
class Executors:
    """All executors of one namespace. `kind_of` overrules a pod's annotation."""

    space: Space
    folder: Path
    kind_of: Callable[[Obj], str] = lambda pod: str((pod["metadata"].get("annotations") or {}).get(MARK, ""))
    starts: Counter[str] = field(default_factory=Counter)
    ends: dict[str, float] = field(default_factory=dict)  # when a pretended task ends by itself, time.time()
    polls: int = 0  # lists that pretended executors were asked for
    requests: list[tuple[str, str]] = field(default_factory=list)  # (address, request line) seen by false executors
    on: dict[str, tuple[str, Any]] = field(default_factory=dict)  # pod UID -> (address, what listens there)
    seen: set[str] = field(default_factory=set)

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._loop.run_forever, name="executors", daemon=True),
            threading.Thread(target=self._follow, name="executors-follow", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._stop.set()
        self._threads[1].join(10)
        for uid in list(self.on):
            self._end(uid)
        self._run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._threads[0].join(5)
        self._loop.close()

    def ran(self, task: str) -> int:
        """How often a real task (`shell` below) was started."""
        path = self.folder / "ran" / task
        return len(path.read_text().splitlines()) if path.exists() else 0

    def shell(self, name: str, then: str = "true") -> Obj:
        """The process of a real task that notes its start, then runs `then`."""
        (self.folder / "ran").mkdir(exist_ok=True)
        return {"command": ["/bin/sh"], "args": ["-c", f"echo x >> {self.folder}/ran/{name}; {then}"]}

    def gate(self, name: str) -> str:
        """For `shell`: wait until `open` is called with this name."""
        return f"until [ -e {self.folder}/gate-{name} ]; do sleep 0.1; done"

    def open(self, name: str) -> None:
        (self.folder / f"gate-{name}").touch()

    def forget(self, pod: str) -> None:
        """The container of a pretended executor starts again without its data."""
        uid = next(p["metadata"]["uid"] for p in self.space.all("pod") if p["metadata"]["name"] == pod)
        one = self.on[uid][1]

        async def anew() -> None:
            one.table = one.server._table = Table(Folder(None), Counting(self.starts, self.ends), grace=GRACE)
            self._count_polls(one)

        self._run(anew())

    # -- following the pods --------------------------------------------------------------------------------------

    def _follow(self) -> None:
        recorder = self.space.cluster.recorder
        while not self._stop.is_set():
            pods = {p["metadata"]["uid"]: p for p in list(recorder.live(self.space.name, "pod").values())}
            for uid in [u for u in self.on if u not in pods]:
                self._end(uid)
            for uid, pod in pods.items():
                address = (pod.get("status") or {}).get("podIP")
                if address and uid not in self.seen:
                    self.seen.add(uid)
                    self._begin(uid, pod, address)
            with recorder.changed:
                recorder.changed.wait(0.2)

    def _begin(self, uid: str, pod: Obj, address: str) -> None:
        kind = self.kind_of(pod)
        if kind == "real":
            self.on[uid] = address, self._process(uid, address)
        elif kind == "fake":
            one = Executor(Folder(None), Counting(self.starts, self.ends), grace=GRACE)
            self._count_polls(one)
            self._run(one.listen(address, PORT))
            self.on[uid] = address, one
        elif kind in ("hang", "garbage", "foreign"):
            self.on[uid] = address, self._run(asyncio.start_server(self._false(kind, address), address, PORT))

    def _count_polls(self, one: Executor) -> None:
        listed = one.table.listed

        def counted() -> list[Obj]:
            self.polls += 1
            return listed()

        one.table.listed = counted  # type: ignore[method-assign]  # the server asks its table anew each time

    def _process(self, uid: str, address: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "osb.executor", "--listen-addr", f"{address}:{PORT}", "--stop-grace", str(GRACE),
             "--data-dir", str(self.folder / "data" / uid)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent,
        )  # fmt: skip

    def _end(self, uid: str) -> None:
        """The pod is gone: nothing listens any more, and its processes end with it."""
        _, one = self.on.pop(uid)
        if isinstance(one, subprocess.Popen):
            one.kill()
            one.wait(10)
            self._kill_tasks(uid)
        else:
            self._loop.call_soon_threadsafe(one.close)

    def _kill_tasks(self, uid: str) -> None:
        for path in (self.folder / "data" / uid).glob("*/pid"):
            text = path.read_text().split()
            if text and text[0].isdigit() and not (path.parent / "exit").exists():
                try:
                    os.killpg(int(text[0]), signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _cancel_all(self) -> None:
        """Connections that still wait for something end, so that nothing of them is left open.

        More than once: one that was just accepted has its task a moment later, and closed transports are called back.
        """
        for _ in range(4):
            left = asyncio.all_tasks() - {asyncio.current_task()}
            for one in left:
                one.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await asyncio.sleep(0.02)

    def _false(self, kind: str, address: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line = (await reader.readline()).decode("latin-1").strip()
            self.requests.append((address, line))
            try:
                if kind == "hang":
                    await asyncio.sleep(30)
                else:
                    body = BODIES[kind]
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
                    await writer.drain()
            finally:
                writer.close()

        return answer


@contextmanager
def executors(space: Space, folder: Path, **options: Any) -> Iterator[Executors]:
    one = Executors(space, folder, **options)
    one.start()
    try:
        yield one
        for box in space.all("batchsandbox"):  # while there is somebody to stop their tasks
            space.delete("batchsandbox", box["metadata"]["name"])
        space.gone("batchsandbox")
    finally:
        one.close()
