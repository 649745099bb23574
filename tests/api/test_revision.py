"""Revisions of templates, and keeping the reference's revision in force."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from osb.api import names, revision

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"tier": "warm"}},
    "spec": {"containers": [{"name": "main", "image": "img:1"}]},
}
THEIRS = "00112233aabbccdd"


def test_a_missing_template_hashes_the_text_null_as_the_reference_does() -> None:
    assert revision.revision(None) == "74234e98afe7498f"


def test_key_order_and_explicit_nulls_do_not_change_the_revision() -> None:
    other = {
        "spec": {"nodeName": None, "containers": [{"image": "img:1", "name": "main", "env": None}]},
        "metadata": {"creationTimestamp": None, "labels": {"tier": "warm"}},
    }
    assert revision.revision(other) == revision.revision(TEMPLATE)
    assert len(revision.revision(TEMPLATE)) == 16


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"tier": "cold"}}},
        {"spec": {"containers": [{"name": "main", "image": "img:2"}]}},
        {"spec": {"containers": TEMPLATE["spec"]["containers"], "fieldOfTheFuture": 1}},
    ],
)
def test_any_change_inside_the_template_changes_it(change: dict[str, Any]) -> None:
    assert revision.revision({**TEMPLATE, **change}) != revision.revision(TEMPLATE)


def adopted(**given: Any) -> str:
    known: dict[str, Any] = {"annotation": None, "status": {}, "generation": 3, **given}
    return revision.adopted(known.pop("template", TEMPLATE), **known)


def test_the_revision_of_an_up_to_date_foreign_status_is_taken_over() -> None:
    assert adopted(status={"revision": THEIRS, "observedGeneration": 3}) == THEIRS


def test_a_status_of_another_generation_is_not() -> None:
    status = {"revision": THEIRS, "observedGeneration": 2}
    assert adopted(status=status) == revision.revision(TEMPLATE)


def test_idle_pods_that_carry_it_and_match_the_template_settle_it_too() -> None:
    status = {"revision": THEIRS, "observedGeneration": 2}
    assert adopted(status=status, idle=[THEIRS, THEIRS], idle_match=True) == THEIRS
    ours = revision.revision(TEMPLATE)
    assert adopted(status=status, idle=[THEIRS, "other"], idle_match=True) == ours
    assert adopted(status=status, idle=[THEIRS], idle_match=False) == ours
    assert adopted(status=status, idle=[], idle_match=True) == ours


def test_an_adopted_revision_survives_capacity_edits_and_ends_with_the_template() -> None:
    note = revision.format_adopted(TEMPLATE, THEIRS)
    later = {"revision": THEIRS, "observedGeneration": 3}
    assert adopted(annotation=note, status=later, generation=9) == THEIRS
    changed = copy.deepcopy(TEMPLATE)
    changed["spec"]["containers"][0]["image"] = "img:2"
    assert adopted(template=changed, annotation=note, status=later) == revision.revision(changed)


@pytest.mark.parametrize("note", ["", "{", "[]", '{"template":"x"}', '{"template":1,"revision":"y"}'])
def test_an_unreadable_note_counts_as_none(note: str) -> None:
    assert revision.parse_adopted(note) is None


POD: dict[str, Any] = {
    "metadata": {"labels": {"tier": "warm", names.LABEL_POOL_NAME: "p"}, "annotations": {"cni": "x"}},
    "spec": {
        "nodeName": "n1",
        "containers": [
            {"name": "injected", "image": "mesh"},
            {"name": "main", "image": "img:1", "terminationMessagePath": "/dev/termination-log"},
        ],
        "tolerations": [{"key": "node.kubernetes.io/not-ready"}],
    },
}


def test_a_pod_made_from_the_template_matches_it_with_everything_the_server_added() -> None:
    assert revision.matches(TEMPLATE, POD)
    assert revision.matches({"spec": {"containers": [{"name": "main"}], "volumes": []}}, POD)


@pytest.mark.parametrize(
    "template",
    [
        {"spec": {"containers": [{"name": "main", "image": "img:2"}]}},
        {"spec": {"containers": [{"name": "gone"}]}},
        {"metadata": {"labels": {"tier": "cold"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"spec": {"nodeSelector": {"disk": "ssd"}}},
    ],
)
def test_a_pod_of_another_template_does_not(template: dict[str, Any]) -> None:
    assert not revision.matches(template, POD)
