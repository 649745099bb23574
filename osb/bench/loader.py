"""The load generator: a process of its own, so that what it costs is not measured as ours.

`python -m osb.bench.loader KUBECONFIG` reads one JSON command per line and answers one JSON line: {"calls": [[name,
ns before the call, ns after it], ...], "errors": n, "cpu": s}. Commands (`do`): `create`, `delete`, `annotate` (names,
at given offsets in seconds or as fast as the threads go); `make`, `bare`, `unmake`: sandboxes that no controller looks
at, and the two patches of an allocation on them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from osb.api import names
from osb.config import Settings
from osb.errors import ApiError
from osb.kube.client import Kube, connect

Obj = dict[str, Any]

THREADS = 8


def box(namespace: str, name: str, *, pool: str = "", replicas: int = 1) -> Obj:
    """A sandbox as a client creates it."""
    spec: Obj = {"replicas": replicas}
    if pool:
        spec["poolRef"] = pool
    else:
        spec["template"] = {"spec": {"containers": [{"name": "main", "image": "img:1"}]}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "BatchSandbox",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


class Loader:
    """Carries out commands; every call is timed around the API call alone."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.errors = 0
        self.latest: dict[str, str] = {}  # versions of the sandboxes of `bare`

    def run(self, command: Obj) -> Obj:
        work = {
            "create": self._create, "delete": self._delete, "annotate": self._annotate,
            "make": self._make, "bare": self._bare, "unmake": self._unmake,
        }  # fmt: skip
        self.errors = 0
        cpu = time.process_time()
        calls = work[command["do"]](command)
        return {"calls": calls, "errors": self.errors, "cpu": time.process_time() - cpu}

    def _create(self, command: Obj) -> list[tuple[str, int, int]]:
        space, pool, size = command["namespace"], command.get("pool", ""), command.get("replicas", 1)
        bodies = {name: box(space, name, pool=pool, replicas=size) for name in command["names"]}
        return self._each(command, lambda name: self.kube.create("batchsandbox", space, bodies[name]))

    def _delete(self, command: Obj) -> list[tuple[str, int, int]]:
        return self._each(command, lambda name: self.kube.delete("batchsandbox", command["namespace"], name))

    def _annotate(self, command: Obj) -> list[tuple[str, int, int]]:
        key, space = command["annotation"], command["namespace"]

        def one(name: str) -> Obj:
            body = {"metadata": {"annotations": {key: str(time.monotonic_ns())}}}
            return self.kube.patch("batchsandbox", space, name, body)

        return self._each(command, one)

    def _make(self, command: Obj) -> list[tuple[str, int, int]]:
        """Sandboxes for `bare`."""
        space = command["namespace"]

        def one(name: str) -> None:
            answer = self.kube.create("batchsandbox", space, box(space, name, replicas=0))
            self.latest[name] = answer["metadata"]["resourceVersion"]

        return self._each(command, one)

    def _bare(self, command: Obj) -> list[tuple[str, int, int]]:
        """The two patches of an allocation on each, as the controller sends them."""
        first, second = _pair()

        def one(name: str) -> None:
            self._write(command, name, first)
            self._write(command, name, second, sub="status")

        return self._each(command, one)

    def _unmake(self, command: Obj) -> list[tuple[str, int, int]]:
        def one(name: str) -> None:
            self._write(command, name, {"metadata": {"finalizers": None}})
            self.kube.delete("batchsandbox", command["namespace"], name)
            del self.latest[name]

        return self._each(command, one)

    def _write(self, command: Obj, name: str, body: Obj, *, sub: str = "") -> None:
        meta = {**body.get("metadata", {}), "resourceVersion": self.latest[name]}
        answer = self.kube.patch("batchsandbox", command["namespace"], name, {**body, "metadata": meta}, sub=sub)
        self.latest[name] = answer["metadata"]["resourceVersion"]

    def _each(self, command: Obj, call: Callable[[str], Any]) -> list[tuple[str, int, int]]:
        offsets: Sequence[float] = command.get("offsets") or ()
        start = time.monotonic()

        def one(item: tuple[int, str]) -> tuple[str, int, int]:
            number, name = item
            if offsets:
                time.sleep(max(0.0, start + offsets[number] - time.monotonic()))
            before = time.monotonic_ns()
            try:
                call(name)
            except ApiError as error:
                self.errors += 1
                sys.stderr.write(f"{command['do']} {name}: {error}\n")
            return name, before, time.monotonic_ns()

        with ThreadPoolExecutor(command.get("threads", THREADS)) as threads:
            return list(threads.map(one, enumerate(command["names"])))


def _pair() -> tuple[Obj, Obj]:
    """The two writes of one allocation, in the size that the controller's have."""
    record = {
        "pods": ["warm-abcde"],
        "poolRef": "warm",
        "generation": 1,
        "poolUID": "0" * 36,
        "uids": ["0" * 8],
        "seq": 1,
    }
    notes = {names.ALLOC_STATUS: orjson.dumps(record).decode(), names.ENDPOINTS: '["10.0.0.1"]'}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    status = {
        "observedGeneration": 1, "replicas": 1, "allocated": 1, "ready": 1, "phase": "Succeed",
        "taskRunning": 0, "taskSucceed": 0, "taskFailed": 0, "taskPending": 0, "taskUnknown": 0,
        "conditions": [{"type": "Ready", "status": "True", "reason": "PodsReady",
                        "lastTransitionTime": now, "message": "Sandbox is running"}],
    }  # fmt: skip
    return {"metadata": {"annotations": notes, "finalizers": [names.FINALIZER_POOL]}}, {"status": status}


def main(kubeconfig: str) -> None:
    loader = Loader(connect(Settings(kubeconfig=kubeconfig), pool=40))
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(orjson.dumps(loader.run(orjson.loads(line))) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1])
