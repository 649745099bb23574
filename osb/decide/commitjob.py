"""Bodies of the two Jobs of a snapshot: commit (save and push images) and unpause (unfreeze containers).

In: what the snapshot's status recorded. Out: plain dicts. A Job's pod is pinned to the source's node and has
the node's container runtime socket, which is root on that node: so no token, no capabilities, a read-only
root, arguments as a list and never through a shell (spec/pause-resume-snapshot.md 8.5). Next: `osb.committer`
is the program that runs in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from osb.api import names
from osb.api.reading import parts, text
from osb.api.record import derived
from osb.facts.boxview import SnapshotOptions

NAME_LIMIT = 63
CONTAINER = "commit"
PROGRAM = "/usr/local/bin/image-committer"
SOCKET = "/var/run/containerd/containerd.sock"
CREDENTIALS = "/var/run/opensandbox/registry"
DEFAULT_TIMEOUT = 600
BACKOFF_LIMIT = 3
UNPAUSE_TTL = 300

Meta = Mapping[str, Any]


def commit_name(snapshot: str) -> str:
    return derived(snapshot, NAME_LIMIT, "-commit")


def unpause_name(snapshot: str) -> str:
    return derived(snapshot, NAME_LIMIT, "-unpause")


def deadline(options: SnapshotOptions) -> int:
    """Whole seconds, at least 1; the default for anything not positive."""
    return max(int(options.job_timeout), 1) if options.job_timeout > 0 else DEFAULT_TIMEOUT


def recorded(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The containers that a snapshot's status names, each with the image to push; [] when none can be read."""
    return [c for c in parts(status, "containers") if text(c, "containerName") and text(c, "imageUri")]


def commit_job(
    meta: Meta,
    status: Mapping[str, Any],
    options: SnapshotOptions,
    *,
    keep_frozen: bool,
) -> dict[str, Any]:
    """The Job that commits and pushes every recorded container of the recorded pod.

    `keep_frozen`: the pod is removed right after a success, so its containers stay frozen and nothing written
    after the commit can be lost. There is no TTL: the result is read from the Job's pod, which we delete when
    it is recorded.
    """
    images = [f"{c['containerName']}:{c['imageUri']}" for c in recorded(status)]
    env = [
        *_env(status),
        {"name": "SNAPSHOT_REGISTRY_INSECURE", "value": "true" if options.registry_insecure else "false"},
    ]
    if keep_frozen:
        env.append({"name": "SNAPSHOT_KEEP_FROZEN", "value": "true"})
    pod = _pod_spec(meta, status, options, args=images, env=env)
    if options.push_secret:
        item = {"key": ".dockerconfigjson", "path": "config.json"}
        pod["volumes"].append(
            {"name": "registry-creds", "secret": {"secretName": options.push_secret, "items": [item]}}
        )
        mount = {"name": "registry-creds", "mountPath": CREDENTIALS, "readOnly": True}
        pod["containers"][0]["volumeMounts"].append(mount)
    job = {
        "backoffLimit": BACKOFF_LIMIT,
        "activeDeadlineSeconds": deadline(options),
        "template": {"spec": pod},
    }
    return _job(meta, commit_name(meta["name"]), f"{meta['name']}-commit", job)


def unpause_job(meta: Meta, status: Mapping[str, Any], options: SnapshotOptions) -> dict[str, Any]:
    """The Job that unfreezes the recorded containers, for when a committer could not do it itself."""
    containers = [c["containerName"] for c in recorded(status)]
    pod = _pod_spec(meta, status, options, args=containers, env=_env(status), mode=("unpause",))
    job = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": deadline(options),
        "ttlSecondsAfterFinished": UNPAUSE_TTL,
        "template": {"spec": pod},
    }
    return _job(meta, unpause_name(meta["name"]), f"{meta['name']}-unpause", job)


def _job(meta: Meta, name: str, full: str, spec: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {
        "name": name,
        "namespace": meta["namespace"],
        "labels": {
            names.LABEL_SNAPSHOT_NAME: derived(meta["name"], NAME_LIMIT),
            names.LABEL_PRIVILEGED: "true",
        },
        "ownerReferences": [
            {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND_SNAPSHOT,
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    if name != full or derived(meta["name"], NAME_LIMIT) != meta["name"]:
        own["annotations"] = {names.FULL_NAME: full}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": own, "spec": spec}


def _env(status: Mapping[str, Any]) -> list[dict[str, str]]:
    env = [{"name": "CONTAINERD_SOCKET", "value": SOCKET}]
    if uid := text(status, "sourcePodUID"):
        env.append({"name": "SNAPSHOT_POD_UID", "value": uid})
    return env


def _pod_spec(
    meta: Meta,
    status: Mapping[str, Any],
    options: SnapshotOptions,
    *,
    args: Sequence[str],
    env: list[dict[str, str]],
    mode: tuple[str, ...] = (),
) -> dict[str, Any]:
    scratch = {"tmp": "/tmp", "nerdctl": "/var/lib/nerdctl"}  # what nerdctl writes; the root is read-only
    container = {
        "name": CONTAINER,
        "image": options.committer_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAM],
        "args": [*mode, text(status, "sourcePodName"), meta["namespace"], *args],
        "env": env,
        "volumeMounts": [
            {"name": "containerd-sock", "mountPath": SOCKET},
            *({"name": name, "mountPath": path} for name, path in scratch.items()),
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "nodeName": text(status, "sourceNodeName"),
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [
            {"name": "containerd-sock", "hostPath": {"path": options.containerd_socket, "type": "Socket"}},
            *({"name": name, "emptyDir": {}} for name in scratch),
        ],
    }
    if options.service_account:
        pod["serviceAccountName"] = options.service_account
    return pod
