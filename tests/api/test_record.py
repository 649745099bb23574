"""The allocation record, the release lists, endpoints, derived names."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osb.api import record
from osb.api.record import Record, Release
from osb.errors import RecordUnreadable

EXTENDED = (
    '{"pods":["warm-4f2kq","warm-9xw7c"],"poolRef":"warm","generation":4,"poolUID":"0c51",'
    '"uids":["1f0c9a2e","77ab01d3"],"seq":3,"open":[1],"losses":1,"detaching":true}'
)


def test_the_extended_record_is_read_and_written_as_documented() -> None:
    read = record.parse(EXTENDED)
    assert read == Record(
        pods=("warm-4f2kq", "warm-9xw7c"),
        pool_ref="warm",
        generation=4,
        pool_uid="0c51",
        uids=("1f0c9a2e", "77ab01d3"),
        seq=3,
        open=(1,),
        losses=1,
        detaching=True,
    )
    assert record.format(read) == EXTENDED


def test_pods_is_always_the_first_member_and_unknown_members_are_kept() -> None:
    read = record.parse('{"theirs":{"a":1},"pods":["p1"],"seq":1}')
    assert read is not None
    assert record.format(read) == '{"pods":["p1"],"uids":[],"seq":1,"theirs":{"a":1}}'


def test_a_plain_record_knows_only_names() -> None:
    read = record.parse('{"pods":["p1","p2"]}')
    assert read == Record(pods=("p1", "p2"))
    assert read is not None and (read.seq, read.pool_uid, read.uid_of(0)) == (0, "", "")


@pytest.mark.parametrize("text", [None, "", "null"])
def test_an_absent_record_is_none(text: str | None) -> None:
    assert record.parse(text) is None


@pytest.mark.parametrize("text", ["{}", '{"pods":null}', '{"other":[1]}'])
def test_an_empty_record_is_an_empty_list(text: str) -> None:
    read = record.parse(text)
    assert read is not None and read.pods == ()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '["p1"]',
        '"p1"',
        "7",
        '{"pods":"p1"}',
        '{"pods":[1]}',
        '{"pods":[null]}',
        '{"pods":{"p1":"x"}}',
        '{"pods":["p1"],"seq":"3"}',
        '{"pods":["p1"],"seq":-1}',
        '{"pods":["p1"],"open":[true]}',
        '{"pods":["p1"],"open":"0"}',
        '{"pods":["p1"],"uids":[7]}',
        '{"pods":["p1"],"detaching":1}',
        '{"pods":["p1"],"poolRef":{}}',
    ],
)
def test_anything_else_is_unreadable(text: str) -> None:
    with pytest.raises(RecordUnreadable) as caught:
        record.parse(text)
    assert caught.value.field == "metadata.annotations[sandbox.opensandbox.io/alloc-status]"


@given(st.text(max_size=40))
def test_no_text_raises_anything_but_unreadable(text: str) -> None:
    for read in (record.parse, record.parse_release, record.parse_names):
        try:
            read(text)
        except RecordUnreadable:
            pass


def test_a_release_list_is_deduplicated_and_sorted() -> None:
    read = record.parse_release('{"pods":["p2","p1","p2"],"force":["p1"]}')
    assert read == Release(("p2", "p1"), ("p1",))
    assert record.format_release(read) == '{"pods":["p1","p2"],"force":["p1"]}'
    assert record.format_release(Release(("p1",))) == '{"pods":["p1"]}', "an empty force is absent"


def test_released_names_keep_their_order_once() -> None:
    assert record.parse_names('{"pods":["b","a","b"]}') == ("b", "a")
    assert record.format_names(["b", "a", "b"]) == '{"pods":["b","a"]}'
    assert record.parse_names(None) == ()


@pytest.mark.parametrize("text", ['{"pods":"x"}', "[]", "{"])
def test_release_lists_can_be_unreadable_too(text: str) -> None:
    with pytest.raises(RecordUnreadable):
        record.parse_release(text)
    with pytest.raises(RecordUnreadable):
        record.parse_names(text)


@pytest.mark.parametrize("length", [1, 18, 40, 57, 63, 253])
def test_a_record_of_as_many_slots_as_a_pool_allows_stays_within_64_kib(length: int) -> None:
    pool = "p" * length
    count = min(1500, record.capacity(pool))
    pods = tuple(f"{pool[:57]}-{n:05}" for n in range(count))
    full = Record(pods=pods, uids=("12345678",) * count, pool_ref=pool, pool_uid="u" * 36, generation=9, seq=99999,
                  open=tuple(range(count)), losses=99999)  # fmt: skip
    assert len(record.format(full)) <= 64 * 1024
    assert count == 1500 if length <= 18 else count >= 730


def test_a_larger_record_of_somebody_else_can_still_be_written() -> None:
    pods = tuple(f"{'p' * 40}-{n:05}" for n in range(1200))
    assert record.parse(record.format(Record(pods=pods))) is not None


def test_endpoints_are_one_compact_list_by_slot() -> None:
    assert record.format_endpoints(["10.0.0.1", "", "10.0.0.3"]) == '["10.0.0.1","","10.0.0.3"]'
    assert record.parse_endpoints('["10.0.0.1",""]') == ("10.0.0.1", "")


@pytest.mark.parametrize("text", [None, "", "{", "{}", "[1]", '"x"'])
def test_unreadable_endpoints_count_as_unpublished(text: str | None) -> None:
    assert record.parse_endpoints(text) is None


# -- derived names -------------------------------------------------------------------------------------------


def test_a_name_that_fits_stays() -> None:
    assert record.derived("b7", 63) == "b7"
    assert record.derived("b7", 63, "-pause") == "b7-pause"
    assert record.derived("x" * 57, 63, "-pause") == "x" * 57 + "-pause"


def test_a_long_name_is_cut_and_marked_with_its_hash() -> None:
    name = "a" * 51 + "-" + "b" * 30
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    assert record.derived(name, 63) == f"{'a' * 51}-{digest}", "trailing non-alphanumerics are cut"
    assert record.derived(name, 63, "-commit") == f"{'a' * 45}-{digest}-commit"


@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True), st.sampled_from([63, 128, 253]))
def test_derived_names_fit_are_valid_and_differ(name: str, limit: int) -> None:
    made = record.derived(name, limit, "-commit")
    assert len(made) <= limit and re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", made)
    other: Any = name + "0"
    assert record.derived(other, limit, "-commit") != made


def test_records_survive_a_round_trip_through_json() -> None:
    before = Record(pods=("p1", "p2"), pool_ref="w", uids=("a", "b"), seq=9, failed=(0,), extra={"k": [1]})
    assert record.parse(record.format(before)) == before
    assert orjson.loads(record.format(before))["failed"] == [0]
