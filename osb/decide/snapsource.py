"""What a snapshot saves: the source pod, its containers, and the image reference of each.

In: a `SnapshotView`. Out: facts, or `Unsaveable` with the reason that the snapshot's condition shows. The
source is found by owner and record, never by a label that anybody can set, and is pinned by UID
(spec/pause-resume-snapshot.md 8.3, 8.4). Next: `osb.decide.snapshot` records them, `osb.decide.commitjob`
builds the Job from what was recorded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osb.api import claims, names, reading
from osb.api.batchsandbox import BoxSpec
from osb.api.record import derived
from osb.decide import boxslots, podbuild
from osb.errors import InvalidInput
from osb.facts.boxview import BatchView, SnapshotOptions, SnapshotView
from osb.facts.pod import PodFact

COMPONENT_LIMIT = 128
REPOSITORY_LIMIT = 255
_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_PUBLIC = re.compile(r"osb-snap-([0-9a-f]{32})")
_FIELDS = ("registry", "namespace", "sandbox", "container", "tag")


class Unsaveable(Exception):
    """There is nothing to save, for good; `reason` is the condition's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Source:
    """`containers` are (name, image reference); `left_out` are those of pod or template not saved."""

    pod: str
    uid: str
    node: str
    containers: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]
    template: dict[str, Any] | None


def candidate(box: BoxSpec, *, pods: tuple[PodFact, ...], slots: Mapping[int, PodFact]) -> PodFact | None:
    """The pod to save: slot 0, Running and not terminating; None when there is none.

    `osb.reconcile.gather` reads this pod live before the snapshot is decided on.
    """
    view = BatchView(now=box.created, spec=box, pods=pods, slots=slots)
    return boxslots.running_source(view)


def source(view: SnapshotView, *, internal: bool) -> Source:
    """The source as it is to be recorded. Raises Unsaveable."""
    name = reading.text(reading.part(view.obj, "spec"), "sandboxName")
    box = view.box
    if not view.options.registry:
        text = (
            "snapshot-registry not configured in controller manager; set --snapshot-registry "
            "(OSB_SNAPSHOT_REGISTRY), in the chart controller.snapshot.registry"
        )
        raise Unsaveable(names.REASON_REGISTRY_NOT_CONFIGURED, text)
    if not name:
        raise Unsaveable(names.REASON_LOOKUP_FAILED, "spec.sandboxName must be the name of a BatchSandbox")
    if box is None:
        raise Unsaveable(names.REASON_LOOKUP_FAILED, f"failed to get BatchSandbox {name}: not found")
    if not internal and box.replicas != 1:
        text = f"only a sandbox with spec.replicas=1 can be saved; got spec.replicas={box.replicas}"
        raise Unsaveable(names.REASON_UNSUPPORTED_REPLICAS, text)
    pod = view.source
    found = candidate(box, pods=view.box_pods, slots=view.box_slots)
    if found is None or pod is None or not usable(pod, found.uid):
        raise Unsaveable(names.REASON_SOURCE_POD_NOT_FOUND, _no_pod(box))
    saved, left_out = _containers(box, pod)
    if not saved:
        text = f"no containers found in BatchSandbox {name} template that run in pod {found.name}"
        raise Unsaveable(names.REASON_NO_CONTAINERS, text)
    try:
        images = tuple((one, image_uri(view, box, one, internal=internal)) for one in saved)
    except InvalidInput as error:
        raise Unsaveable(names.REASON_BUILD_JOB_FAILED, f"failed to build commit job: {error}") from error
    template = None
    if internal and claims.pooled(box):
        template = podbuild.solidify(pod, pool_template=view.pool_template, pool_revision=view.pool_revision)
    return Source(found.name, found.uid, str(pod["spec"].get("nodeName") or ""), images, left_out, template)


def usable(pod: Mapping[str, Any], uid: str) -> bool:
    """The live pod is the one meant, runs, and stays."""
    meta = pod.get("metadata") or {}
    phase = (pod.get("status") or {}).get("phase")
    return meta.get("uid") == uid and phase == "Running" and not meta.get("deletionTimestamp")


def _no_pod(box: BoxSpec) -> str:
    text = f"source pod not found: no running pod found for BatchSandbox {box.name}"
    paused = box.condition(names.COND_PAUSED) or {}
    if box.phase == names.PAUSED and paused.get("reason") == names.REASON_SNAPSHOT_NOT_FOUND:
        return f"{text}; it is paused, and {paused.get('message')}"
    if box.phase == names.PAUSED:
        return f"{text}; it is paused, its content is in the images of its pause snapshot"
    if 0 in claims.given_back(box):
        return f"{text}; it gave its pod back, and no other one takes its place"
    return text


def _containers(box: BoxSpec, pod: Mapping[str, Any]) -> tuple[list[str], tuple[str, ...]]:
    """(names to save, names left out): the template's containers that run in the live pod, else the pod's."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ended = {s.get("name") for s in statuses if "terminated" in (s.get("state") or {})}
    live = [str(c.get("name")) for c in (pod.get("spec") or {}).get("containers") or ()]
    template = (box.template or {}).get("spec") if not claims.pooled(box) else None
    wanted = [str(c.get("name")) for c in (template or {}).get("containers") or ()] or live
    saved = [name for name in wanted if name in live and name not in ended]
    return saved, tuple(dict.fromkeys(name for name in (*wanted, *live) if name not in saved))


# -- image references ----------------------------------------------------------------------------------------


def image_uri(view: SnapshotView, box: BoxSpec, container: str, *, internal: bool) -> str:
    """The image reference of one container. Raises InvalidInput when a registry would refuse it.

    Namespace and the snapshot's UID are part of it: sandboxes of one name in two namespaces, or one after the
    other, must never read each other's files.
    """
    meta = view.obj.get("metadata") or {}
    uri = view.options.image_template.format(
        registry=view.options.registry,
        namespace=box.namespace,
        sandbox=derived(box.name, COMPONENT_LIMIT),
        container=derived(container, COMPONENT_LIMIT),
        tag=tag(meta.get("name", ""), meta.get("uid", ""), generation=box.generation if internal else None),
    )
    check_reference(uri)
    return uri


def tag(snapshot: str, uid: str, *, generation: int | None) -> str:
    """`snap-gen<N>-<uid>` inside a pause (`generation` given), else `snap-<hex>-<uid>`; uid cut to 8."""
    if generation is not None:
        return f"snap-gen{generation}-{uid[:8]}"
    public = _PUBLIC.fullmatch(snapshot)
    digits = public.group(1) if public else hashlib.sha256(snapshot.encode()).hexdigest()[:32]
    return f"snap-{digits}-{uid[:8]}"


def check_reference(uri: str) -> None:
    """Raises InvalidInput unless `uri` is `host[:port]/path:tag` with components every registry takes."""
    repository, _, label = uri.rpartition(":")
    host, slash, path = repository.partition("/")
    if not slash or not _HOST.fullmatch(host):
        raise InvalidInput("image", f"{uri!r} does not begin with a registry host; no scheme, no leading '/'")
    if not _TAG.fullmatch(label):
        raise InvalidInput("image", f"{label!r} is not an image tag")
    for component in path.split("/"):
        if not _COMPONENT.fullmatch(component):
            raise InvalidInput("image", f"{component!r} in {uri!r} is not a repository name component")
    if len(path) > REPOSITORY_LIMIT:
        raise InvalidInput("image", f"the repository name of {uri!r} is longer than {REPOSITORY_LIMIT}")


def option_problems(options: SnapshotOptions) -> list[InvalidInput]:
    """What is wrong with the settings, to refuse them at start."""
    found = []
    template = options.image_template
    try:
        sample = template.format(registry="r.example", namespace="ns", sandbox="s", container="c", tag="t")
        check_reference(sample)
    except (KeyError, IndexError, ValueError, InvalidInput) as error:
        found.append(InvalidInput("--snapshot-image-template", f"{template!r} gives no image name ({error})"))
    missing = [f for f in _FIELDS if f != "registry" and f"{{{f}}}" not in template]
    if missing:
        found.append(InvalidInput("--snapshot-image-template", f"{template!r} lacks {{{missing[0]}}}"))
    if options.registry:
        try:
            check_reference(f"{options.registry}/x:t")
        except InvalidInput as error:
            found.append(InvalidInput("--snapshot-registry", f"{options.registry!r}: {error.message}"))
    if 0 < options.job_timeout < 1:
        found.append(InvalidInput("--commit-job-timeout", f"{options.job_timeout} s is below one second"))
    return found
