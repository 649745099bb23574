"""The journal is capped, filtered, and never in the way."""

from __future__ import annotations

from typing import Any

from osb.store import keys
from osb.store.client import Store
from osb.store.journal import Journal


def entry(n: int, **more: Any) -> dict[str, Any]:
    return {"n": n, "pool": f"default/p{n % 2}", **more}


def test_entries_come_back_newest_first_with_their_time(store: Store) -> None:
    store.journal.append(entry(1), entry(2))
    store.journal.append(entry(3))
    found = store.journal.read()
    assert [e["n"] for e in found] == [3, 2, 1]
    assert all(e["at_ms"] > 1_000_000_000_000 for e in found)


def test_entries_are_found_by_pool_and_by_sandbox(store: Store) -> None:
    store.journal.append(entry(1, box="default/a"), entry(2, boxes=["default/a", "default/b"]), entry(3))
    assert [e["n"] for e in store.journal.read(pool="default/p1")] == [3, 1]
    assert [e["n"] for e in store.journal.read(box="default/a")] == [2, 1]
    assert [e["n"] for e in store.journal.read(pool="default/p0", box="default/b")] == [2]
    assert store.journal.read(box="default/none") == []


def test_a_search_goes_through_all_pages_and_stops_at_its_limit(store: Store) -> None:
    store.journal.append(*(entry(n) for n in range(1200)))
    assert [e["n"] for e in store.journal.read(limit=3)] == [1199, 1198, 1197]
    assert len(store.journal.read(pool="default/p0", limit=10_000)) == 600


def test_the_stream_stays_near_its_length(store: Store) -> None:
    journal = Journal(store.redis, length=500)
    for start in range(0, 3000, 100):
        journal.append(*(entry(n) for n in range(start, start + 100)))
    assert 500 <= store.redis.xlen(keys.JOURNAL) <= 700


def test_a_huge_entry_is_cut_and_says_so(store: Store) -> None:
    store.journal.append({"pool": "default/warm", "why": "x" * 9000, "boxes": ["default/a"] * 2000, "n": 1})
    (found,) = store.journal.read(pool="default/warm")
    assert (found["n"], found["cut"], len(found["why"])) == (1, True, 200)
    assert "boxes" not in found
