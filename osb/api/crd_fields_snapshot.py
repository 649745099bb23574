"""The field table of SandboxSnapshot (spec/pause-resume-snapshot.md 8.1, spec/additions.md 5)."""

from __future__ import annotations

from osb.api import names
from osb.api.crd_fields import Schema, column, conditions, free, group, listing, number, text

ABOUT = "The root filesystems of a sandbox's containers, saved as images in the controller's registry."

COLUMNS = (
    column("PHASE", "string", ".status.phase"),
    column("SANDBOX", "string", ".spec.sandboxName"),
    column("AGE", "date", ".metadata.creationTimestamp"),
)

SPEC = group(
    "What is to be saved.",
    {"sandboxName": text("Name of the BatchSandbox in the same namespace; it must have one replica.")},
    required=("sandboxName",),
)

_CONTAINER = group(
    "The image of one container.",
    {
        "containerName": text("Name of the container."),
        "imageUri": text("Image reference under which it was pushed."),
        "imageDigest": text("Digest of the pushed manifest; the exact content."),
    },
    required=("containerName", "imageUri"),
)

STATUS = group(
    "How far the snapshot is. Written by the controller only.",
    {
        "observedGeneration": number("The generation of the spec that this status was computed from.", bits=64),
        "phase": text("Pending, Committing, then Succeed or Failed, which are final.", enum=names.SNAPSHOT_PHASES),
        "containers": listing("One image for each saved container.", _CONTAINER),
        "sourcePodName": text("Pod that is saved."),
        "sourcePodUID": text("UID of that pod: another pod of the same name is never saved in its place."),
        "sourceNodeName": text("Node on which the pod runs and the commit job must run."),
        "jobUID": text("UID of the commit job."),
        "sourceTemplate": free("Pod template made from the source pod, for a pooled sandbox that is being paused."),
        "conditions": conditions(
            "Stored only while True.", types=names.SNAPSHOT_CONDITIONS, statuses=("True", "False")
        ),
    },
)

RULES: tuple[tuple[tuple[str, ...], Schema], ...] = ()
