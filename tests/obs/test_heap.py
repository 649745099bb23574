"""Memory goes back to the system after a big pass, and not more often than it pays."""

from __future__ import annotations

import pytest

from osb.obs import heap


def test_memory_is_given_back_at_most_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(heap, "_last", 0.0)
    monkeypatch.setattr(heap.time, "monotonic", lambda: now)
    first = heap.trim()
    assert not heap.trim()
    now += heap.EVERY
    assert heap.trim() == first
