"""A cluster to test on, simulated or real, and `Space`: a test's own namespace with words for what tests do there.

The same words work on both: everything goes through the API and everything is learned from watch streams.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson

from osb.api import names
from osb.bench.plane import Plane
from osb.config import Settings
from osb.kube.client import RES, Kube, connect
from osb.kube.install import install_crds, make_namespace, serves_our_kinds
from osb.local.redis import die_with_parent
from tests.doubles.controlplane import Found
from tests.doubles.recorder import Obj, Recorder, Seen

T = TypeVar("T")

POD_READY = "150ms"
WAIT = 25.0  # seconds; what it waits for mostly takes a fraction of one

_COUNT = itertools.count(1)


@dataclass
class Cluster:
    """Runs within `with`. `kubeconfig` says where; `real` is for the few places where only one kind can be asked
    something.
    """

    folder: Path
    found: Found | None = None
    plane: Plane | None = None
    kubeconfig: Path = Path()
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def real(self) -> bool:
        return self.found is not None

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """API server, fake kubelet, our CRDs, a recorder."""
        if self.found is None:
            self.kubeconfig = self.folder / "kubeconfig"
            self._run("sim", "--dir", str(self.folder))
        else:
            self.kubeconfig = self.found.kubeconfig or self._plane(self.found)
            self._run("kubelet", "--kubelet-for", str(self.kubeconfig))
        self.kube: Kube = connect(Settings(kubeconfig=str(self.kubeconfig)), pool=24)
        install_crds(self.kube)
        make_namespace(self.kube, "opensandbox-system")
        self.recorder = Recorder(self.kube)
        self.recorder.until("our kinds are served", lambda: serves_our_kinds(self.kube), seconds=30)
        self.recorder.start()

    def close(self) -> None:
        self.recorder.close()
        self.kube.close()
        for process in self.running:
            process.terminate()
            process.wait(10)
        if self.plane is not None:
            self.plane.stop()

    def _plane(self, found: Found) -> Path:
        assert found.assets is not None
        self.plane = Plane(found.assets, self.folder)
        return self.plane.start()

    def _run(self, name: str, *arguments: str) -> None:
        """A process of the simulation; returns when it says that it is ready."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "osb.sim", "--pod-ready", POD_READY, *arguments],
                stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent,
            )  # fmt: skip
        self.running.append(process)
        assert process.stdout is not None
        with process.stdout:
            line = process.stdout.readline()
        assert line.startswith(b"ready"), (self.folder / f"{name}.log").read_text()[-800:]

    def space(self, label: str = "t") -> Space:
        name = f"{label}-{os.getpid()}-{next(_COUNT)}-{uuid.uuid4().hex[:4]}"
        make_namespace(self.kube, name)
        return Space(self, name)


def template(image: str = "img:1", marks: Mapping[str, str] | None = None, **meta: Any) -> Obj:
    """A pod template; `marks` are `sim.osb/` annotations without their prefix: what the fake kubelet does with it."""
    made: Obj = {"metadata": dict(meta), "spec": {"containers": [{"name": "main", "image": image}]}}
    if marks:
        made["metadata"].setdefault("annotations", {}).update({f"sim.osb/{k}": v for k, v in marks.items()})
    return made


def capacity(low: int, high: int, floor: int, top: int) -> Obj:
    return {"bufferMin": low, "bufferMax": high, "poolMin": floor, "poolMax": top}


def note(obj: Obj, key: str) -> Any:
    """An annotation that holds JSON, decoded; None when absent."""
    text = (obj["metadata"].get("annotations") or {}).get(key)
    return orjson.loads(text) if text else None


def record(box: Obj) -> list[str]:
    """Names in the sandbox's allocation record."""
    return (note(box, names.ALLOC_STATUS) or {}).get("pods", [])


def endpoints(box: Obj) -> list[str] | None:
    found: list[str] | None = note(box, names.ENDPOINTS)
    return found


def condition(obj: Obj, kind: str) -> Obj | None:
    """The condition of that type if it is True."""
    found = (obj.get("status") or {}).get("conditions") or []
    return next((c for c in found if c["type"] == kind and c["status"] == "True"), None)


def ready(pod: Obj) -> bool:
    return condition(pod, "Ready") is not None and not pod["metadata"].get("deletionTimestamp")


@dataclass
class Space:
    """One namespace. `forged`: the test itself writes false records, so claims may contradict each other."""

    cluster: Cluster
    name: str
    forged: bool = False

    @property
    def kube(self) -> Kube:
        return self.cluster.kube

    # -- what users do -----------------------------------------------------------------------------------------------

    def create(self, kind: str, name: str, spec: Mapping[str, Any], **meta: Any) -> Obj:
        row = RES[kind]
        body = {"apiVersion": row.api_version, "kind": row.kind, "metadata": {"name": name, **meta}, "spec": dict(spec)}
        return self.kube.create(kind, self.name, body)

    def pool(self, name: str = "warm", *size: int, **spec: Any) -> Obj:
        """A pool that may scale in one go. `size`: bufferMin, bufferMax, poolMin, poolMax (default 2 4 0 10)."""
        meta = spec.pop("meta", {})
        wanted = {
            "template": template(), "capacitySpec": capacity(*(size or (2, 4, 0, 10))),
            "scaleStrategy": {"maxUnavailable": "100%"}, **spec,
        }  # fmt: skip
        return self.create("pool", name, {k: v for k, v in wanted.items() if v is not None}, **meta)

    def warm(self, name: str = "warm", *size: int, **spec: Any) -> Obj:
        """A pool, once it says that it is warm."""
        self.pool(name, *size, **spec)
        return self.until_pool(name, lambda p: condition(p, "Ready"))

    def box(self, name: str, replicas: int = 1, *, pool: str | None = "warm", **spec: Any) -> Obj:
        meta = spec.pop("meta", {})
        wanted = {"replicas": replicas, **({"poolRef": pool} if pool else {}), **spec}
        return self.create("batchsandbox", name, wanted, **meta)

    def patch(self, kind: str, name: str, body: Mapping[str, Any]) -> Obj:
        return self.kube.patch(kind, self.name, name, dict(body))

    def annotate(self, kind: str, name: str, **marks: str | None) -> Obj:
        """Keys are the last part of our annotations, with `_` for `-`; None removes."""
        found = {f"{names.GROUP}/{key.replace('_', '-')}": value for key, value in marks.items()}
        return self.patch(kind, name, {"metadata": {"annotations": found}})

    def mark(self, pod: str, **marks: str | None) -> Obj:
        """`sim.osb/` annotations: tells the fake kubelet what happens to a pod."""
        found = {f"sim.osb/{key.replace('_', '-')}": value for key, value in marks.items()}
        return self.patch("pod", pod, {"metadata": {"annotations": found}})

    def delete(self, kind: str, name: str, **options: Any) -> None:
        self.kube.delete(kind, self.name, name, **options)

    # -- what there is -----------------------------------------------------------------------------------------------

    def all(self, kind: str) -> list[Obj]:
        """The objects of a kind as far as heard, by name."""
        return [obj for _, obj in sorted(self.cluster.recorder.live(self.name, kind).items())]

    def get(self, kind: str, name: str) -> Obj | None:
        return self.cluster.recorder.live(self.name, kind).get(name)

    def live(self, kind: str, name: str) -> Obj:
        """Read from the API server."""
        return self.kube.get(kind, self.name, name)

    def pods_of(self, owner: str) -> list[Obj]:
        """Pods controlled by that Pool or BatchSandbox, by name."""
        return [p for p in self.all("pod") if any(r["name"] == owner and r.get("controller") for r in refs(p))]

    def history(self, kind: str, name: str = "") -> list[Seen]:
        events = self.cluster.recorder.events.get(self.name, [])
        return [e for e in list(events) if e.kind == kind and (not name or e.name == name)]

    def events(self, about: str, reason: str) -> list[Obj]:
        """Kubernetes events on an object of that name."""
        found = (e for e in self.all("event") if e["involvedObject"]["name"] == about)
        return [e for e in found if e["reason"] == reason]

    # -- waiting -----------------------------------------------------------------------------------------------------

    def until(self, what: str, check: Callable[[], T], *, seconds: float = WAIT) -> T:
        try:
            return self.cluster.recorder.until(what, check, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from None

    def until_pool(self, name: str, check: Callable[[Obj], Any], *, seconds: float = WAIT) -> Obj:
        return self._until_one("pool", name, check, seconds=seconds)

    def until_box(self, name: str, check: Callable[[Obj], Any], *, seconds: float = WAIT) -> Obj:
        return self._until_one("batchsandbox", name, check, seconds=seconds)

    def until_pod(self, name: str, check: Callable[[Obj], Any], *, seconds: float = WAIT) -> Obj:
        return self._until_one("pod", name, check, seconds=seconds)

    def until_snapshot(self, name: str, check: Callable[[Obj], Any], *, seconds: float = WAIT) -> Obj:
        return self._until_one("snapshot", name, check, seconds=seconds)

    def _until_one(self, kind: str, name: str, check: Callable[[Obj], Any], *, seconds: float) -> Obj:
        def look() -> Obj | None:
            obj = self.get(kind, name)
            return obj if obj is not None and check(obj) else None

        found = self.until(f"{kind} {name}", look, seconds=seconds)
        assert found is not None
        return found

    def served(self, *boxes: str, seconds: float = WAIT) -> list[Obj]:
        """The sandboxes once all of them are ready, in order."""
        self.until(f"all served: {boxes[:3]}", lambda: all(_is_served(self.get("batchsandbox", n)) for n in boxes),
                   seconds=seconds)  # fmt: skip
        return [obj for name in boxes if (obj := self.get("batchsandbox", name))]

    def gone(self, kind: str, *wanted: str, seconds: float = WAIT) -> None:
        """Returns when no object of that kind is left, or none of these names."""
        self.until(f"{kind} {wanted} gone", lambda: not self._left(kind, wanted), seconds=seconds)

    def _left(self, kind: str, wanted: Iterable[str]) -> list[str]:
        there = self.cluster.recorder.live(self.name, kind)
        return [name for name in there if name in wanted] if wanted else list(there)

    # -- what must always hold ---------------------------------------------------------------------------------------

    def double_owners(self) -> list[str]:
        """Pods that two sandboxes claimed at one moment, over the whole history of the namespace."""
        claims: dict[str, set[str]] = {}
        found: set[str] = set()
        for seen in self.history("batchsandbox"):
            uid = seen.obj["metadata"]["uid"]
            released = set((note(seen.obj, names.ALLOC_RELEASED) or {}).get("pods", []))
            claims[uid] = set() if seen.type == "DELETED" else set(record(seen.obj)) - released
            others = [pods for other, pods in claims.items() if other != uid]
            found.update(pod for pods in others for pod in pods & claims[uid])
        return sorted(found)

    def pods_over(self, pool: str, most: int) -> list[int]:
        """Numbers of the pool's pods, terminating ones included, that were above `most` at some moment."""
        there: set[str] = set()
        sizes = []
        for seen in self.history("pod"):
            if any(r["name"] == pool for r in refs(seen.obj)):
                (there.discard if seen.type == "DELETED" else there.add)(seen.obj["metadata"]["uid"])
                sizes.append(len(there))
        return [size for size in sizes if size > most]

    def told(self) -> str:
        """The state of the namespace in a few lines, for a failed test."""
        lines = [f"namespace {self.name}"]
        for kind in ("pool", "batchsandbox"):
            for obj in self.all(kind)[:12]:
                meta = obj["metadata"]
                short = {k: v for k, v in meta.items() if k in ("annotations", "finalizers", "deletionTimestamp")}
                lines.append(f"{kind} {meta['name']} {orjson.dumps([short, obj.get('status')]).decode()}")
        lines += [f"pod {p['metadata']['name']} {(p.get('status') or {}).get('phase')}" for p in self.all("pod")[:20]]
        return "\n".join(lines)


def refs(obj: Obj) -> list[Obj]:
    return obj["metadata"].get("ownerReferences") or []


def _is_served(box: Obj | None) -> bool:
    status = (box or {}).get("status") or {}
    return box is not None and status.get("phase") == "Succeed" and status.get("ready") == box["spec"]["replicas"]
