"""Specs with JSON of the wrong type, in whole passes: told in words, and nobody else is kept waiting."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from osb.api import batchsandbox, names
from osb.api import pool as pools
from osb.reconcile import readable
from tests.doubles.passworld import Obj, Passes

NO_LIST = ["x", ["x"], [5], {"a": 1}]


def template(containers: Any) -> Obj:
    return {"spec": {"containers": containers}}


@pytest.mark.parametrize("containers", NO_LIST, ids=repr)
def test_a_pool_whose_containers_are_no_list_of_objects_says_so_and_makes_nothing(
    passes: Passes, containers: Any
) -> None:
    passes.pool("warm", 2, 2, 0, 9, template=template(containers))
    passes.pool_pass()
    told = passes.condition("pool", "warm", names.SPEC_INVALID)
    assert told is not None and told["reason"] == "TemplateInvalid"
    assert told["message"].startswith("spec.template.spec.containers")
    assert passes.pods() == [] and names.SPEC_INVALID in passes.told.reasons()


@pytest.mark.parametrize("containers", NO_LIST, ids=repr)
def test_a_pool_in_use_serves_and_takes_back_although_its_template_became_unusable(
    passes: Passes, containers: Any
) -> None:
    # Given a pool in use
    [pod] = passes.warm()
    passes.box("old")
    passes.pool_pass(times=2)
    assert passes.record("old") == [pod]
    # When its template becomes unusable, one sandbox goes and another comes
    passes.patch("pool", "warm", {"spec": {"template": template(containers)}})
    passes.box("new")
    passes.pool_pass()
    passes.delete("batchsandbox", "old")
    passes.pool_pass(times=4)
    # Then the one is gone, and the other says why it waits
    assert not passes.there("batchsandbox", "old")
    passes.box_pass("new")
    waits = passes.condition("batchsandbox", "new", names.PROGRESSING)
    assert waits is not None and waits["message"].startswith(names.WAIT_POOL_SPEC_INVALID)
    # and a usable template serves it
    passes.patch("pool", "warm", {"spec": {"template": template([{"name": "main", "image": "img"}])}})
    passes.pool_pass()
    passes.ready()
    passes.pool_pass()
    assert len(passes.record("new")) == 1


@pytest.mark.parametrize("containers", NO_LIST, ids=repr)
def test_a_wish_for_any_pool_is_served_beside_a_pool_with_an_unusable_template(passes: Passes, containers: Any) -> None:
    passes.pool("broken", 1, 1, 0, 9, template=template(containers))
    passes.warm()
    passes.box(poolRef="*", template=template([{"name": "main", "image": "img"}]))
    passes.box_pass()
    assert passes.get("batchsandbox", "b")["spec"]["poolRef"] == "warm"
    passes.box("alone", poolRef="*", template=template(containers))
    passes.box_pass("alone")
    told = passes.get("batchsandbox", "alone")
    assert told["spec"]["poolRef"] == "warm", "a hint that cannot be read excludes no pool"


@pytest.mark.parametrize("metadata", ["x", {"labels": ["a"]}, {"annotations": [1]}], ids=repr)
def test_a_sandbox_with_a_wrong_type_in_its_template_fails_in_words(passes: Passes, metadata: Any) -> None:
    passes.own(template={"metadata": metadata, **template([{"name": "main", "image": "img"}])})
    passes.box_pass()
    told = passes.condition("batchsandbox", "b", names.SPEC_INVALID)
    assert told is not None and told["message"].startswith("spec.template.metadata")
    assert passes.pods() == [] and passes.get("batchsandbox", "b")["status"]["phase"] == names.FAILED
    passes.delete("batchsandbox", "b")
    passes.box_pass()
    assert not passes.there("batchsandbox", "b")


def test_what_is_nested_too_deep_is_told(passes: Passes) -> None:
    deep: Any = 1
    for _ in range(120):
        deep = {"a": deep}
    bad = {**template([{"name": "main", "image": "img"}]), "more": deep}
    passes.pool("deep", 1, 1, 0, 9, template=bad)
    passes.own(template=bad)
    passes.pool_pass("deep")
    passes.box_pass()
    for kind, name in (("pool", "deep"), ("batchsandbox", "b")):
        told = passes.condition(kind, name, names.SPEC_INVALID)
        assert told is not None and told["message"].startswith("spec.template: is nested deeper than 100 levels")
    assert passes.pods() == []


# -- what has no effect --------------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", ["banana", "9" * 21])
@pytest.mark.parametrize("waits", [False, True], ids=["served", "waiting"])
def test_a_priority_that_is_no_number_in_range_is_told_once(passes: Passes, priority: str, waits: bool) -> None:
    passes.pool() if waits else passes.warm()
    passes.box(meta={"annotations": {names.PRIORITY: priority}})
    passes.pool_pass(times=2)
    passes.box_pass()
    told = [message for reason, message in passes.told.events if reason == "InvalidPriority"]
    assert len(told) == 1 and "it is ignored" in told[0]


def test_what_a_pool_makes_useless_is_told_once(passes: Passes) -> None:
    passes.warm()
    passes.box(template=template([{"name": "main", "image": "img"}]), shardPatches=[{"metadata": {}}])
    passes.pool_pass(times=2)
    passes.box_pass()
    assert passes.told.reasons().count("TemplateIgnored") == 1
    assert passes.told.reasons().count("ShardPatchesIgnored") == 1
    assert passes.condition("batchsandbox", "b", names.SPEC_INVALID) is None


def test_a_template_that_a_pool_was_chosen_by_is_no_news(passes: Passes) -> None:
    passes.warm()
    passes.box(poolRef="*", template=template([{"name": "main", "image": "img"}]))
    passes.box_pass()
    passes.pool_pass(times=2)
    passes.box_pass()
    assert "TemplateIgnored" not in passes.told.reasons()


# -- the second fence: what our own code cannot read ---------------------------------------------------------


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of objects whose reading raises, in passes about others."""
    found: set[str] = set()

    def raising(parse: Any) -> Any:
        def read(raw: Obj) -> Any:
            if raw["metadata"]["name"] in found:
                raise AttributeError("'str' object has no attribute 'get'")
            return parse(raw)

        return read

    monkeypatch.setattr(pools, "parse", raising(pools.parse))
    monkeypatch.setattr(batchsandbox, "parse", raising(batchsandbox.parse))
    return found


def test_a_pool_that_cannot_be_read_is_left_out_of_the_choice_and_told_once(
    passes: Passes, poisoned: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    passes.pool("broken", 1, 1, 0, 9)
    passes.warm()
    poisoned.add("broken")
    for name in ("a", "b"):
        passes.box(name, poolRef="*")
        passes.box_pass(name)
        assert passes.get("batchsandbox", name)["spec"]["poolRef"] == "warm"
    written = capsys.readouterr()
    said = [line for line in (written.out + written.err).splitlines() if "cannot be read" in line]
    assert len([line for line in said if f"pool/{passes.ns}/broken" in line]) == 1


def test_a_sandbox_that_cannot_be_read_keeps_its_pod_and_stops_nobody_else(passes: Passes, poisoned: set[str]) -> None:
    # Given two sandboxes with pods, one of which cannot be read any more
    passes.warm(count=3)
    passes.box("held")
    passes.box("other")
    passes.pool_pass(times=2)
    [pod] = passes.record("held")
    poisoned.add("held")
    # When others come and go, it is edited, and the ledger is lost
    passes.box("third")
    passes.delete("batchsandbox", "other")
    passes.annotate("batchsandbox", "held", any_edit="x")
    passes.pool_pass(times=3)
    assert len(passes.record("third")) == 1 and not passes.there("batchsandbox", "other")
    assert passes.entries()[pod].state == "held"
    passes.store.redis.flushall()
    passes.pool_pass(times=3)
    # Then it still has its pod, and is served again when it can be read
    assert passes.entries()[pod].state == "held"
    assert not passes.get("pod", pod)["metadata"].get("deletionTimestamp")
    poisoned.clear()
    passes.pool_pass(times=2)
    assert passes.record("held") == [pod] and passes.entries()[pod].state == "held"


def test_what_stands_in_for_an_unreadable_sandbox_is_in_quarantine(passes: Passes, poisoned: set[str]) -> None:
    raw = passes.box("held", meta={"annotations": {names.ALLOC_STATUS: orjson.dumps({"pods": ["p"]}).decode()}})
    assert not readable.stands_in(readable.box(raw))
    poisoned.add("held")
    box = readable.box(raw)
    assert readable.stands_in(box) and box.record is None and box.uid == raw["metadata"]["uid"]
