"""Pausing a sandbox that holds a pod of a pool: the pod is given back in two phases."""

from __future__ import annotations

from osb.api import names, record
from tests.doubles.boxworld import World, pooled


def annotations(world: World) -> dict[str, str]:
    return dict(world.box["metadata"].get("annotations") or {})


def generation(world: World) -> int:
    return int(world.box["metadata"]["generation"])


SOLID = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": "img:1"}]}}


def test_a_pooled_pause_gives_the_pod_back_before_it_is_paused() -> None:
    world = pooled()
    world.edit(pause=True)
    world.run(2)
    world.saved(source_template=SOLID)
    world.run()
    # The first phase is one patch: template, no pool, record and forced release, finalizer kept
    assert "poolRef" not in world.box["spec"]  # removed, not emptied: old servers refuse an empty text
    assert world.box["spec"]["template"] == SOLID
    held = record.parse(annotations(world)[names.ALLOC_STATUS])
    assert held is not None
    assert (held.detaching, held.pool_ref, held.pool_uid, held.pods) == (True, "warm", "pool-uid", ("warm-1",))
    assert annotations(world)[names.ALLOC_RELEASE] == '{"pods":["warm-1"],"force":["warm-1"]}'
    assert world.box["metadata"]["finalizers"] == [names.FINALIZER_POOL]
    world.run(3)
    assert world.phase == "Pausing", "the pool has not taken its pod back"
    world.pool_pass()
    world.run()
    assert world.phase == "Paused"
    kept = annotations(world)
    assert not {names.ALLOC_STATUS, names.ALLOC_RELEASE, names.ALLOC_RELEASED} & set(kept)
    assert world.box["metadata"]["finalizers"] == []


def test_a_detach_from_a_pool_that_is_gone_is_finished_by_the_sandbox_itself() -> None:
    world = pooled()
    world.edit(pause=True)
    world.run(2)
    world.saved(source_template=SOLID)
    world.run()
    world.pool_deleted = True
    world.run(2)
    assert world.phase == "Paused"
    assert names.ALLOC_STATUS not in annotations(world)


def test_a_pod_deleted_after_its_snapshot_does_not_stop_the_pause() -> None:
    world = pooled()
    world.edit(pause=True)
    world.run(2)
    world.saved(source_template=SOLID)
    world.pool_pods.clear()
    world.run()
    world.pool_pass()
    world.run()
    assert world.phase == "Paused"


def test_a_failed_pooled_pause_keeps_the_pod() -> None:
    world = pooled()
    world.edit(pause=True)
    world.run(2)
    world.saved(phase=names.FAILED, message="no")
    world.run()
    assert world.phase == "Succeed"
    assert names.ALLOC_RELEASE not in annotations(world)


def test_a_template_that_was_only_a_hint_is_replaced_and_not_merged() -> None:
    hint = {"metadata": {"labels": {"gpu": "a"}}, "spec": {"nodeSelector": {"gpu": "a"}, "containers": []}}
    world = pooled(template=hint)
    world.edit(pause=True)
    world.run(2)
    world.saved(source_template=SOLID)
    world.run()
    assert world.box["spec"]["template"] == SOLID


def test_a_pod_whose_template_nobody_kept_is_a_loss_that_names_the_images() -> None:
    # Given images that are saved, and a pod that went before its template was kept
    world = pooled()
    world.edit(pause=True)
    world.run(2)
    world.saved()
    world.run()
    # Then the sandbox cannot be resumed, and the message says where its files are
    assert (world.phase, world.reason("PauseFailed")) == ("Failed", "PodNotFound")
    text = next(c["message"] for c in world.status["conditions"] if c["type"] == "PauseFailed")
    assert "its files are in image reg.example/ns/box/main@sha256:" in text and "(container main)" in text
    assert "content is lost" not in text
