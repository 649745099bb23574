"""`problems`: everything that is wrong with one of our objects, in words; for people and the workers.

`parse` finds what has a fallback; this adds what only costs time to find (patches are tried out) and what is
allowed but has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from osb.api import batchsandbox, claims, names, pool, smp
from osb.api.batchsandbox import BoxSpec
from osb.api.problem import Problem
from osb.api.reading import part, text
from osb.decide import taskgen
from osb.errors import InvalidInput

_KINDS = {
    names.KIND_POOL.lower(): "pool",
    names.KIND_BOX.lower(): "box",
    names.KIND_SNAPSHOT.lower(): "snapshot",
    "snapshot": "snapshot",
}


def problems(kind: str, obj: Mapping[str, Any]) -> list[Problem]:
    """All broken rules, worst first within each object part; empty for a sound object.

    `kind` is the Kubernetes kind or ours in lower case. Raises InvalidInput for a kind that is not ours.
    """
    known = _KINDS.get(kind.lower())
    if known == "pool":
        return list(pool.parse(obj).problems)
    if known == "box":
        return list(_box(batchsandbox.parse(obj)))
    if known == "snapshot":
        return list(_snapshot(obj))
    raise InvalidInput("kind", f"{kind!r} is none of {', '.join(names.PLURALS)}")


def shard_problems(box: BoxSpec) -> Iterator[Problem]:
    """Shard patches that cannot be applied to the template, one by one: the other pods are made."""
    for index, patch in enumerate(box.shard_patches[: box.replicas]):
        try:
            smp.merge(box.template or {}, patch, at=f"spec.shardPatches[{index}]")
        except InvalidInput as error:
            yield Problem(error.field, error.message, reason=names.EVENT_INVALID_SHARD_PATCH)


def task_problems(box: BoxSpec) -> Iterator[Problem]:
    """Tasks that cannot be sent: their pods are made and stay idle, so only the condition says why."""
    template, patches = box.task_template, box.shard_task_patches
    if template is None:
        return
    for error in taskgen.problems(box.name, box.replicas, template=template, patches=patches):
        yield Problem(error.field, error.message, reason=names.EVENT_INVALID_TASK_TEMPLATE)


def _box(box: BoxSpec) -> Iterator[Problem]:
    yield from box.problems
    if box.record_error is not None:
        error = box.record_error
        yield Problem(error.field, error.message, reason=names.REASON_RECORD_UNREADABLE)
    if claims.pooled(box):
        yield from _ignored_in_pool_mode(box)
    else:
        yield from shard_problems(box)
    for member, patches in (
        ("shardPatches", box.shard_patches),
        ("shardTaskPatches", box.shard_task_patches),
    ):
        if len(patches) > box.replicas:
            message = f"has {len(patches)} patches for {box.replicas} replicas; the last ones have no effect"
            yield _no_effect(f"spec.{member}", message)
    yield from task_problems(box)


def _ignored_in_pool_mode(box: BoxSpec) -> Iterator[Problem]:
    if box.has_template and box.pool_ref not in ("", names.ANY_POOL):
        yield _no_effect("spec.template", f"only helps to choose a pool; pool {box.pool_ref} provides the pods")
    if box.shard_patches:
        yield _no_effect("spec.shardPatches", "apply only to pods made from a template; a pool provides these")


def _snapshot(obj: Mapping[str, Any]) -> Iterator[Problem]:
    if not text(part(obj, "spec"), "sandboxName"):
        yield Problem("spec.sandboxName", "is required: the sandbox to save", reason="SandboxNameMissing")


def _no_effect(field: str, message: str) -> Problem:
    return Problem(field, message, reason="NoEffect", level="warning")
