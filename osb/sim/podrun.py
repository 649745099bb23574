"""One pod on the fake kubelet, from its binding to its end. Writes through the kubelet's `insist`."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from osb.sim.kubeapi import MERGE
from osb.sim.kubexec import Outcome
from osb.sim.podstatus import FAILED_COMMIT, Container, commit_message, pod_status, restored
from osb.sim.script import marks, script_of

if TYPE_CHECKING:
    from osb.sim.kubelet import FakeKubelet

Obj = dict[str, Any]


def is_job_pod(pod: Obj) -> bool:
    return any(owner.get("kind") == "Job" for owner in pod["metadata"].get("ownerReferences") or ())


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class PodRun:
    """The kubelet's knowledge of one bound pod.

    `start` begins its life, `see` takes every later version of it.
    """

    def __init__(self, kubelet: FakeKubelet, pod: Obj) -> None:
        self._kubelet = kubelet
        self._pod = pod
        meta, status = pod["metadata"], pod.get("status") or {}
        self.uid: str = meta["uid"]
        self._path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        self.ip = kubelet.address(status.get("podIP", ""))
        self._marks = marks(pod)
        self.script = script_of(pod, ready_after=kubelet.pod_ready)
        self.containers = [*_containers(pod, "containers"), *_containers(pod, "initContainers")]
        self._ready = status.get("phase") == "Running"
        self._over = status.get("phase") in ("Succeeded", "Failed")
        self._ended: dict[str, int] = {}  # containers that ended and have not been started again: their exit codes
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    # -- from outside ----------------------------------------------------------------------------------------

    def start(self) -> None:
        if "deletionTimestamp" in self._pod["metadata"]:
            self._stop()
        elif not self._over:
            self._task = self._kubelet.spawn(self._afterwards() if self._ready else self._live())

    def see(self, pod: Obj) -> None:
        """A newer version: deleted, or with other sim.osb/ annotations."""
        self._pod = pod
        if "deletionTimestamp" in pod["metadata"]:
            self._stop()
            return
        found = marks(pod)
        if found != self._marks and not self._over:
            self._marks = found
            self.script = script_of(pod, ready_after=self._kubelet.pod_ready)
            self.cancel()
            self._task = self._kubelet.spawn(self._react())

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def execute(self, container: str, command: list[str]) -> Outcome:
        """What a command in a container does: kill restarts it, everything else echoes."""
        if self.script.exec == "hang":
            await asyncio.sleep(3600)
        if self.script.exec == "error":
            return Outcome(1, "scripted failure\n")
        if self.script.exec == "ignore":
            return Outcome(0, "")
        if not _kills(command):
            words = command[1:] if command[:1] == ["echo"] else command
            return Outcome(0, " ".join(words) + "\n")
        known = any(item.name == container and not item.init for item in self.containers)
        if not known or self._over or self._stopping:
            return Outcome(1, f"container {container} is not running\n")
        self._ended[container] = 143  # kept beside the task: the next kill or annotation may cancel that at any step
        self.cancel()
        self._task = self._kubelet.spawn(self._restart())
        return Outcome(0, "")

    # -- life ------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """From bound to Ready, or to whatever the script says instead."""
        script = self.script
        if script.waiting_reason:
            await self._write("Pending", waiting=script.waiting_reason)
            if script.waiting_for == math.inf:
                return
            await asyncio.sleep(script.waiting_for)
        if is_job_pod(self._pod):
            await self._work()
            return
        if script.running_after is not None or script.never_ready:
            await asyncio.sleep(script.running_after or 0)
            self._begin()
            await self._write("Running")
            if script.never_ready:
                return
        await asyncio.sleep(max(0.0, script.ready_after - (script.running_after or 0)))
        if script.fail:
            await self._end("Failed", 1)
            return
        self._begin()
        await self._write("Running", ready=True)
        await self._afterwards()

    async def _afterwards(self) -> None:
        """What the script wants of a Ready pod."""
        script = self.script
        if script.complete_after is not None:
            await asyncio.sleep(script.complete_after)
            await self._end("Succeeded", 0)
        elif script.fail_after is not None:
            await asyncio.sleep(script.fail_after)
            await self._end("Failed", 1)
        elif script.crash_after is not None:
            await asyncio.sleep(script.crash_after)
            code = script.exit_code if script.exit_code is not None else 1
            self._ended.update({item.name: code for item in self.containers if not item.init})
            await self._restart()

    async def _react(self) -> None:
        """The annotations of a pod changed."""
        if self.script.fail:
            await self._end("Failed", 1)
        elif self._ended:
            await self._restart()
        elif not any(item.id for item in self.containers):
            await self._live()
        elif self.script.waiting_reason:
            self._ready = False
            await self._write("Running", waiting=self.script.waiting_reason)
        elif self.script.never_ready:
            await self._write("Running")
        elif not self._ready:
            await asyncio.sleep(self.script.ready_after)
            await self._write("Running", ready=True)
            await self._afterwards()
        else:
            await self._afterwards()

    async def _restart(self) -> None:
        """Start the ended containers again under new ids, not Ready in between; or end the pod."""
        policy, code = self._pod["spec"].get("restartPolicy", "Always"), max(self._ended.values())
        if policy == "Never" or (policy == "OnFailure" and code == 0):
            await self._end("Failed" if code else "Succeeded", code)
            return
        if self.script.restart_after:
            await self._write("Running", waiting="CrashLoopBackOff")
            await asyncio.sleep(self.script.restart_after)
        for item in self.containers:
            if item.name in self._ended:
                item.restart(_now(), code=self._ended.pop(item.name))
        await self._write("Running")
        if self.script.never_ready:
            return
        await asyncio.sleep(self.script.ready_after)
        await self._write("Running", ready=True)

    async def _work(self) -> None:
        """A Job's pod: runs for a moment, leaves its message, ends."""
        source = self._kubelet.source_of(self._pod)
        wish = source.script.commit if source is not None and not self._unpauses() else ""
        await asyncio.sleep(self.script.ready_after)
        self._begin()
        if wish == "hang" or self.script.never_ready:
            await self._write("Running", ready=True)
            return
        code = self.script.exit_code if self.script.exit_code is not None else int(wish == "fail" or self.script.fail)
        message = self.script.termination_message
        if message is None:
            message = wish if wish not in ("", "fail") else commit_message(self._args())
        if code:
            message = FAILED_COMMIT if commit_message(self._args()) else ""
        await self._end("Failed" if code else "Succeeded", code, message=message)

    def _args(self) -> list[str]:
        return list(self._pod["spec"]["containers"][0].get("args") or [])

    def _unpauses(self) -> bool:
        return self._args()[:1] == ["unpause"]

    def _begin(self) -> None:
        for item in self.containers:
            if not item.id:
                item.begin(_now())

    async def _end(self, phase: str, code: int, *, message: str = "") -> None:
        code = self.script.exit_code if self.script.exit_code is not None and phase == "Failed" else code
        for item in self.containers:
            if not item.init:
                item.end(_now(), code=code, message=message)
        self._over = True
        await self._write(phase)

    async def _write(self, phase: str, *, ready: bool = False, waiting: str = "") -> None:
        self._ready = ready
        status = pod_status(
            self._pod.get("status") or {},
            self.containers,
            phase=phase,
            ready=ready,
            now=_now(),
            ip=self.ip,
            waiting=waiting,
        )
        body = {"metadata": {"uid": self.uid}, "status": status}
        await self._kubelet.insist("PATCH", f"{self._path}/status", body, content=MERGE)

    # -- the end ---------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        if not self._stopping:
            self._stopping = True
            self.cancel()
            self._task = self._kubelet.spawn(self._remove())

    async def _remove(self) -> None:
        """Stop the containers and take the pod away, at the latest when its grace is over."""
        grace = float(self._pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        await asyncio.sleep(min(self.script.stop_after, grace))
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
        await self._kubelet.insist("DELETE", self._path, options)


def _containers(pod: Obj, group: str) -> list[Container]:
    """New ones, or as an earlier kubelet left them."""
    init = group == "initContainers"
    statuses = (pod.get("status") or {}).get("initContainerStatuses" if init else "containerStatuses") or ()
    known = {item["name"]: item for item in statuses}
    return [
        restored(known[item["name"]], init=init)
        if item["name"] in known
        else Container(item["name"], item["image"], init=init)
        for item in pod["spec"].get(group) or ()
    ]


def _kills(command: list[str]) -> bool:
    """`kill 1` and its relatives, also inside a shell."""
    words = " ".join(command).split()
    return any(word.rsplit("/", 1)[-1] in ("kill", "pkill", "reboot") for word in words)
