"""A kubelet by hand, for tests that must decide themselves which pod has which address."""

from __future__ import annotations

import orjson

from osb.kube.client import RES
from osb.kube.transport import Call
from tests.doubles.cluster import Space


def bind(space: Space, pod: str, node: str) -> None:
    """What a scheduler does: for pods that the fake one leaves alone."""
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}}  # fmt: skip
    path = RES["pod"].path(space.name, pod, "binding")
    space.kube.transport.write(
        Call(
            method="POST", path=path, verb="create", kind="pod", what=f"bind {pod}", body=orjson.dumps(body), timeout=10
        )
    )


def play_kubelet(space: Space, pod: str, address: str) -> None:
    """What a kubelet writes about a running pod: for pods bound to a node that no kubelet plays."""
    space.until(f"pod {pod}", lambda: space.get("pod", pod))
    status = {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": "127.0.0.1",
        "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady", "PodScheduled")],
        "containerStatuses": [
            {"name": "main", "image": "img:1", "imageID": "", "ready": True, "restartCount": 0,
             "containerID": "containerd://1", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        ],
    }  # fmt: skip
    version = {"resourceVersion": space.live("pod", pod)["metadata"]["resourceVersion"]}
    space.kube.patch("pod", space.name, pod, {"metadata": version, "status": status}, sub="status")
