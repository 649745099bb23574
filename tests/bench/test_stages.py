"""Marks of several processes become the parts of one sandbox's latency."""

from __future__ import annotations

from pathlib import Path

import pytest

from osb.bench import stages
from osb.bench.stages import by_cause, read
from osb.obs import trace

MS = 1_000_000


def write(folder: Path, process: str, *marks: tuple[str, str, float, str]) -> None:
    lines = [f"{stage}\t{name}\t{int(at * MS)}\t{0}\t{detail}\n" for stage, name, at, detail in marks]
    (folder / f"{process}.trace").write_text("".join(lines))


def test_each_part_of_the_way_gets_its_time(tmp_path: Path) -> None:
    # Given marks of a watcher and a worker
    write(tmp_path, "1", ("seen", "ns/a", 13.0, "5"), ("mirrored", "ns/a", 14.0, "5"), ("seen", "ns/a", 20.0, "6"))
    write(
        tmp_path, "2", ("begin", "pool/ns/warm", 16.0, "t1"), ("dealt", "ns/a", 17.0, "t1"),
        ("reserved", "pool/ns/warm", 17.5, "t1"), ("claimed", "ns/a", 20.5, "t1"), ("status", "ns/a", 24.0, "t1"),
    )  # fmt: skip

    # When the load generator called at 10 ms and the client's watch showed the endpoints at 20.3 ms
    calls, shown = [("a", 10 * MS, 13 * MS)], {"a": int(20.3 * MS)}
    parts = by_cause(read(tmp_path), calls, shown, namespace="ns", pool="warm")

    # Then the parts add up, and the watch was faster than the answer
    assert {name: values[0] for name, values in parts.items()} == pytest.approx(
        {
            "create to watcher": 3.0, "mirror": 1.0, "queue wait": 2.0, "load and decide": 1.0, "ledger": 0.5,
            "annotation write": 3.0, "watch return": -0.2, "status write": 3.5,
        }
    )  # fmt: skip


def test_a_sandbox_that_was_not_seen_whole_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "1", ("seen", "ns/a", 13.0, "5"))
    assert by_cause(read(tmp_path), [("a", 0, 1)], {"a": 5}, namespace="ns", pool="warm") == {}


def test_a_line_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "1.trace").write_text("seen\tns/a\t5\t0\tx\nmirrored\tns/a\t7")
    trace_ = read(tmp_path)
    assert [mark.name for mark in trace_.all("seen")] == ["ns/a"]
    assert trace_.all("mirrored") == []


def test_marks_from_before_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, "1", ("seen", "ns/a", 1.0, ""), ("seen", "ns/a", 9.0, ""))
    assert [mark.at for mark in read(tmp_path, since=5 * MS).all("seen")] == [9 * MS]
    assert read(tmp_path).first("seen", "ns/a", after=2 * MS) is not None


def test_a_process_writes_marks_that_the_bench_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "FOLDER", str(tmp_path))
    monkeypatch.setattr(trace, "_pid", 0)
    trace.mark("begin", "pool/ns/warm", "token")
    (mark,) = stages.read(tmp_path).all("begin")
    assert (mark.name, mark.detail) == ("pool/ns/warm", "token")
    assert mark.at > 0
