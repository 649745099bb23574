"""The task-results annotation: text to results and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osb.decide import taskresults
from osb.decide.tasknode import FAILED, SUCCEED, Node
from osb.decide.taskresults import Results


def test_the_documented_text_is_read() -> None:
    found = taskresults.parse('{"v":1,"ok":"0-41,43","failed":{"42":[137,"TaskTimeout"]},"failedMore":"44-90"}')
    assert found.ok == frozenset([*range(42), 43])
    assert found.failed[42] == (137, "TaskTimeout")
    assert set(found.failed) == {42, *range(44, 91)}


def test_members_stand_in_the_documented_order_and_empty_ones_are_left_out() -> None:
    nodes = [
        Node(index=0, state=SUCCEED),
        Node(index=1, state=SUCCEED),
        Node(index=2, state=FAILED, exit_code=3),
    ]
    assert Results().plus(nodes).text() == '{"v":1,"ok":"0-1","failed":{"2":[3,""]}}'
    assert Results().plus(nodes[:1]).text() == '{"v":1,"ok":"0"}'


def test_ten_thousand_failures_stay_a_small_text() -> None:
    nodes = [Node(index=i, state=FAILED, exit_code=1, reason="Failed") for i in range(10_000)]
    text = Results().plus(nodes).text()
    assert len(text) < 8 * 1024
    assert taskresults.parse(text).indexes() == frozenset(range(10_000))


def test_whatever_executors_call_their_failures_the_text_fits_an_annotation() -> None:
    words = ("\x00" * 256, '"' * 256, "\\" * 256, "é" * 256, "x" * 256)
    nodes = [Node(index=i, state=FAILED, exit_code=-(2**31), reason=words[i % 5]) for i in range(0, 3000, 2)]
    text = Results().plus(nodes).text()
    assert len(text.encode()) < 64 * 1024
    assert taskresults.parse(text).indexes() == frozenset(range(0, 3000, 2))


def test_what_was_cut_and_what_was_given_back_is_told_apart() -> None:
    found = taskresults.parse('{"v":1,"ok":"0-1","failed":{"2":[1,""]},"back":"0,2"}')
    assert found.back == frozenset({0, 2})
    assert found.below(2).text() == '{"v":1,"ok":"0-1","back":"0"}'
    assert found.below(1).given([0]).merged(Results(ok=frozenset({3}))).text() == '{"v":1,"ok":"0,3","back":"0"}'


def test_a_known_result_is_never_changed() -> None:
    known = Results(ok=frozenset({0}))
    assert known.plus([Node(index=0, state=FAILED, exit_code=1)]).failed == {}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"ok":"5-1"}',
        '{"ok":"x"}',
        '{"failed":{"a":[1,""]}}',
        '{"ok":"0-999999999"}',
        '{"failed":{"1":3}}',
    ],
)
def test_nonsense_is_no_result_and_no_crash(text: str) -> None:
    found = taskresults.parse(text)
    assert not found.readable
    assert not found.indexes()


@given(st.sets(st.integers(0, 500)), st.sets(st.integers(0, 500)))
def test_writing_and_reading_keep_every_index(ok: set[int], failed: set[int]) -> None:
    nodes = [Node(index=i, state=SUCCEED) for i in ok] + [Node(index=i, state=FAILED) for i in failed - ok]
    results = Results().plus(nodes)
    again = taskresults.parse(results.text())
    assert again.ok == frozenset(ok)
    assert set(again.failed) == failed - ok
