"""Pod statuses as a kubelet writes them. Pure: containers and a moment in, a status object out."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any

import orjson

Obj = dict[str, Any]


@dataclass(slots=True)
class Container:
    """One container as the kubelet knows it.

    `ended` holds the terminated state once it will not run again.
    """

    name: str
    image: str
    id: str = ""
    restarts: int = 0
    started: str = ""
    last: Obj = field(default_factory=dict)
    ended: Obj | None = None
    init: bool = False

    def begin(self, now: str) -> None:
        """A first start, or another one: always a new id."""
        self.id = f"containerd://{secrets.token_hex(32)}"
        self.started = now

    def restart(self, now: str, *, code: int) -> None:
        self.last = {"terminated": self._terminated(now, code, "")}
        self.restarts += 1
        self.begin(now)

    def end(self, now: str, *, code: int, message: str) -> None:
        if not self.id:
            self.begin(now)
        self.ended = self._terminated(now, code, message)

    def _terminated(self, now: str, code: int, message: str) -> Obj:
        state: Obj = {
            "exitCode": code, "reason": "Completed" if code == 0 else "Error",
            "startedAt": self.started or now,
            "finishedAt": now, "containerID": self.id,
        }  # fmt: skip
        if message:
            state["message"] = message
        return state

    def status(self, *, ready: bool, waiting: str = "") -> Obj:
        if self.ended is not None:
            state: Obj = {"terminated": self.ended}
        elif self.init and self.id:
            state = {"terminated": self._terminated(self.started, 0, "")}
        elif waiting or not self.id:
            state = {"waiting": {"reason": waiting or "ContainerCreating"}}
        else:
            state = {"running": {"startedAt": self.started}}
        live = self.ended is None and not waiting and bool(self.id) and not self.init
        done = self.init and bool(self.id)
        return {
            "name": self.name,
            "image": self.image,
            "imageID": f"sha256:{digest(self.image)}" if self.id else "",
            "containerID": self.id,
            "restartCount": self.restarts,
            "ready": (ready and live) or done,
            "started": live,
            "state": state,
            "lastState": self.last,
        }


def restored(status: Obj, *, init: bool = False) -> Container:
    """A container from what an earlier kubelet wrote."""
    state = status.get("state") or {}
    return Container(
        status["name"],
        status.get("image", ""),
        status.get("containerID", ""),
        int(status.get("restartCount", 0)),
        (state.get("running") or {}).get("startedAt") or "",
        status.get("lastState") or {},
        None if init else state.get("terminated"),
        init,
    )


def pod_status(
    old: Obj, containers: list[Container], *, phase: str, ready: bool, now: str, ip: str, waiting: str = ""
) -> Obj:
    """The whole status. Transition times of conditions that did not flip are kept.

    `waiting` is the reason of the containers that wait; behind `init:` it is the reason of the init containers.

    A pod whose image cannot be pulled has an address already, as with a real kubelet.
    """
    why = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
    wanted = [
        ("Initialized", True, ""),
        ("Ready", ready, why),
        ("ContainersReady", ready, why),
        ("PodScheduled", True, ""),
    ]
    init_waits, _, init_reason = waiting.partition(":") if waiting.startswith("init:") else ("", "", "")
    waiting = "PodInitializing" if init_waits else waiting
    inits = [item.status(ready=False, waiting=init_reason) for item in containers if item.init]
    status: Obj = {
        "phase": phase,
        "conditions": [_condition(old, kind, value, why, now) for kind, value, why in wanted],
        "containerStatuses": [item.status(ready=ready, waiting=waiting) for item in containers if not item.init],
        "startTime": old.get("startTime") or now,
        "hostIP": "127.0.0.1",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
    }
    if inits:
        status["initContainerStatuses"] = inits
    return status


def _condition(old: Obj, kind: str, value: bool, why: str, now: str) -> Obj:
    before: Obj = next((item for item in old.get("conditions") or () if item.get("type") == kind), {})
    text = "True" if value else "False"
    since = before.get("lastTransitionTime") if before.get("status") == text else None
    condition = {"type": kind, "status": text, "lastProbeTime": None, "lastTransitionTime": since or now}
    if not value and why:
        condition["reason"] = why
    return condition


def unschedulable(old: Obj, message: str, now: str) -> Obj:
    """The status of a pod that no node takes."""
    condition = _condition(old, "PodScheduled", False, "Unschedulable", now)
    return {"phase": "Pending", "conditions": [{**condition, "message": message}]}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


FAILED_COMMIT = '{"v":1,"error":"nerdctl push ended with 1: simulated failure"}'


def commit_message(args: list[str]) -> str:
    """What the image committer leaves: one entry per `container:image` argument; "" for other programs."""
    if len(args) < 3 or args[0] == "unpause":
        return ""
    pairs = [spec.partition(":")[::2] for spec in args[2:] if ":" in spec and not spec.startswith("-")]
    entries = [{"name": name, "image": image, "digest": f"sha256:{digest(image)}"} for name, image in pairs]
    return orjson.dumps({"v": 1, "containers": entries}).decode() if entries else ""
