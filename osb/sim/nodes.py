"""The nodes of the fake kubelet: registration, heartbeat, and which of them takes a pod."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from datetime import UTC, datetime
from typing import Any

import aiohttp

from osb.sim.kubeapi import MERGE, Api, ApiAnswer

Obj = dict[str, Any]

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Nodes:
    """All nodes that one fake kubelet plays. `known` holds the latest object of each."""

    def __init__(self, api: Api, names: list[str], *, port: int, tls: bool) -> None:
        self.names = names
        self.known: dict[str, Obj] = {}
        self._api = api
        self._port = port
        self._tls = tls
        self._turn = itertools.count()

    async def register(self) -> None:
        """Create or refresh every node and its Lease; afterwards pods may be bound to them."""
        with contextlib.suppress(ApiAnswer):  # the real server makes this namespace itself, a moment after its start
            await self._api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "kube-node-lease"}})
        for name in self.names:
            with contextlib.suppress(ApiAnswer):  # it exists
                await self._api.call("POST", "/api/v1/nodes", self._node(name))
            await self._api.call(
                "PATCH", f"/api/v1/nodes/{name}", {"metadata": self._node(name)["metadata"]}, content=MERGE
            )
            path = f"/api/v1/nodes/{name}/status"
            self.known[name] = await self._api.call("PATCH", path, {"status": self._status()}, content=MERGE)
            await self._renew(name)

    async def heartbeat(self, *, every: float = 10.0) -> None:
        """Renew the Leases until cancelled."""
        while True:
            await asyncio.sleep(every)
            for name in self.names:
                with contextlib.suppress(ApiAnswer, aiohttp.ClientError, TimeoutError):
                    await self._renew(name)

    def choose(self, pod: Obj) -> str | None:
        """A node that takes new pods and matches the pod's nodeSelector, in turn; None when there is none."""
        wanted = (pod["spec"].get("nodeSelector") or {}).items()
        fitting = [
            name
            for name in self.names
            if (node := self.known.get(name)) is not None
            and not (node.get("spec") or {}).get("unschedulable")
            and all((node["metadata"].get("labels") or {}).get(key) == value for key, value in wanted)
        ]
        return fitting[next(self._turn) % len(fitting)] if fitting else None

    def saw(self, event: Obj) -> bool:
        """A node event; True when one of ours may take pods that it did not take before."""
        name = event["object"]["metadata"]["name"]
        if name not in self.names:
            return False
        if event["type"] == "DELETED":
            self.known.pop(name, None)
            return False
        before = (self.known.get(name) or {}).get("spec") or {}
        self.known[name] = event["object"]
        return before.get("unschedulable") != (event["object"].get("spec") or {}).get("unschedulable")

    async def _renew(self, name: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
        try:
            await self._api.call("PATCH", f"{_LEASES}/{name}", {"spec": spec}, content=MERGE)
        except ApiAnswer as answer:
            if answer.code != 404:
                raise
            await self._api.call("POST", _LEASES, {"metadata": {"name": name}, "spec": spec})

    def _node(self, name: str) -> Obj:
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        scheme = {"sim.osb/kubelet-scheme": "https" if self._tls else "http"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": scheme},
        }

    def _status(self) -> Obj:
        size = {"cpu": "1000", "memory": "4Ti", "pods": "50000", "ephemeral-storage": "10Ti"}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated",
                 "lastHeartbeatTime": now, "lastTransitionTime": now}  # fmt: skip
        return {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "capacity": size,
            "allocatable": size,
            "conditions": [ready], "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
            "nodeInfo": {
                "kubeletVersion": "v1.20.2", "osImage": "simulated", "kernelVersion": "0",
                "architecture": "amd64",
                "operatingSystem": "linux", "containerRuntimeVersion": "containerd://0", "machineID": "",
                "systemUUID": "",
                "bootID": "", "kubeProxyVersion": "v1.20.2",
            },
        }  # fmt: skip
