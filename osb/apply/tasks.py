"""Talk to the task executors in the sandboxes' pods: ask for their tasks, set or clear them.

In: addresses, and orders made by `osb.decide.tasks`. Out: one `Answer` per call that was made; a call that
did not fit into the budget has none. Every call has a deadline of 3 s and every batch a budget, so that a
worker's slot is never held for long by slow executors (spec/tasks.md 3, 4).

All calls of a process run in one event loop in a background thread. Measured with 1,000 loopback addresses on
2 cores: plain asyncio streams 0.10 s, aiohttp 0.20 s and 13 MB more, 64 threads with http.client 0.23 s; and
a hung executor costs a future here, not a thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from osb.apply.taskhttp import BadAnswer, Silence, exchange
from osb.decide.tasknode import Answer, Observed, observed

PORT = 5758
CALL_SECONDS = 3.0
CONCURRENCY = 64
CHECKERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One mutating call: `task` is the complete desired set of that executor (None = no task at all)."""

    index: int
    pod: str
    pod_uid: str
    ip: str
    task: Mapping[str, Any] | None


Check = Callable[[Order], str]
"""Run right before the call, in a thread: "" = the pod is still the one that was meant, else why not."""


class Executors(Protocol):
    """What the pass needs; tests put their own in."""

    def ask(self, addresses: Mapping[int, str], *, budget: float) -> dict[int, Answer]:
        """GET the task list of each address. Indexes that the budget (seconds) did not reach are left out."""

    def send(self, orders: Sequence[Order], *, check: Check, budget: float) -> dict[int, Answer]:
        """Carry out orders whose check passes.

        A refused check is `Answer(ok=False, heard=False)` with the reason; orders that the budget did not reach
        are left out.
        """


class ExecutorClient:
    """The real one. Thread-safe; make it after fork (`shared` does)."""

    def __init__(self, *, token: str = "", port: int = PORT, timeout: float = CALL_SECONDS) -> None:
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._port = port
        self._timeout = timeout
        self._loop = asyncio.new_event_loop()
        self._checkers = ThreadPoolExecutor(CHECKERS, thread_name_prefix="pod-check")
        self._thread = threading.Thread(target=self._run, name="executor-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def close(self) -> None:
        if self._loop.is_running():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
        self._checkers.shutdown(wait=False, cancel_futures=True)

    def ask(self, addresses: Mapping[int, str], *, budget: float) -> dict[int, Answer]:
        return self._batch({index: self._get(ip) for index, ip in addresses.items()}, budget)

    def send(self, orders: Sequence[Order], *, check: Check, budget: float) -> dict[int, Answer]:
        return self._batch({order.index: self._set(order, check) for order in orders}, budget)

    def _batch(self, calls: dict[int, Coroutine[Any, Any, Answer]], budget: float) -> dict[int, Answer]:
        if not calls:
            return {}
        return asyncio.run_coroutine_threadsafe(self._gather(calls, budget), self._loop).result()

    async def _gather(self, calls: dict[int, Coroutine[Any, Any, Answer]], budget: float) -> dict[int, Answer]:
        gate = asyncio.Semaphore(CONCURRENCY)

        async def one(call: Coroutine[Any, Any, Answer]) -> Answer:
            try:
                async with gate:
                    return await call
            finally:
                call.close()

        running = {asyncio.ensure_future(one(call)): index for index, call in calls.items()}
        done, late = await asyncio.wait(running, timeout=budget)
        for future in late:
            future.cancel()
        if late:
            await asyncio.wait(late)
        return {running[future]: future.result() for future in done}

    async def _get(self, ip: str) -> Answer:
        return await self._call("GET", "/getTasks", ip, None)

    async def _set(self, order: Order, check: Check) -> Answer:
        loop = asyncio.get_running_loop()
        refused = await loop.run_in_executor(self._checkers, check, order)
        if refused:
            return Answer(ok=False, heard=False, error=refused)
        body = orjson.dumps([order.task] if order.task is not None else [])
        return await self._call("POST", "/setTasks", order.ip, body)

    async def _call(self, method: str, path: str, ip: str, body: bytes | None) -> Answer:
        try:
            async with asyncio.timeout(self._timeout):
                status, text = await exchange(ip, self._port, method, path, headers=self._headers, body=body)
        except TimeoutError:
            return Answer(ok=False, heard=False, error=f"no answer from {ip} within {self._timeout:g} s")
        except Silence as silence:
            return Answer(ok=False, heard=False, error=str(silence))
        except BadAnswer as bad:
            return Answer(ok=False, error=f"{method} {path} at {ip}: {bad}")
        if status != 200:
            return Answer(ok=False, error=f"{method} {path} at {ip}: status={status} {_reason(text)}")
        return read_answer(text, where=f"{method} {path} at {ip}")


def read_answer(text: bytes, *, where: str) -> Answer:
    """A strict JSON array of tasks; elements that are no tasks make the whole answer unusable."""
    try:
        listed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return Answer(ok=False, error=f"{where}: not JSON ({error})")
    if listed is None:
        return Answer(ok=True)
    if not isinstance(listed, list):
        return Answer(ok=False, error=f"{where}: not a JSON array: {_excerpt(text)}")
    tasks: list[Observed] = []
    for raw in listed:
        task = observed(raw) if isinstance(raw, dict) else None
        if task is None:
            return Answer(ok=False, error=f"{where}: an element is not a task: {_excerpt(text)}")
        tasks.append(task)
    return Answer(ok=True, tasks=tuple(tasks))


def _reason(text: bytes) -> str:
    """The message of an error body, else its beginning."""
    try:
        message = orjson.loads(text)["message"]
    except (ValueError, TypeError, LookupError):
        return _excerpt(text)
    return message[:400].strip() if isinstance(message, str) else _excerpt(text)


def _excerpt(text: bytes) -> str:
    return text[:200].decode("utf-8", "replace").strip()


_shared: dict[tuple[int, str], ExecutorClient] = {}
_guard = threading.Lock()


def shared(token: str = "") -> ExecutorClient:
    """The process's client (one loop thread per process and token), made at the first call after fork."""
    with _guard:
        key = (os.getpid(), token)
        if key not in _shared:
            _shared[key] = ExecutorClient(token=token)
        return _shared[key]
