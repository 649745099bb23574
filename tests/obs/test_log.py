"""Log lines: their keys, their levels, and what never gets into them."""

from __future__ import annotations

import gzip
import logging
import os
import signal
from collections.abc import Iterator

import orjson
import pytest

from osb.config import Settings
from osb.obs import log
from osb.obs.logfile import RotatedFile
from tests.doubles.waiting import wait_until


@pytest.fixture
def lines(capsys) -> Iterator[object]:
    old = (logging.getLogger().handlers[:], logging.getLogger().level, signal.getsignal(signal.SIGUSR1))
    log.setup(Settings())

    def read() -> list[dict]:
        return [orjson.loads(line) for line in capsys.readouterr().err.splitlines()]

    yield read
    logging.getLogger().handlers, level, handler = old
    logging.getLogger().setLevel(level)
    signal.signal(signal.SIGUSR1, handler)
    log.setup(Settings())
    logging.getLogger().handlers = old[0]
    signal.signal(signal.SIGUSR1, handler)


def test_a_line_has_the_references_keys(lines):
    log.get_logger("pool").info("hello", count=3)
    (line,) = lines()
    assert list(line)[:5] == ["level", "ts", "logger", "caller", "msg"]
    assert (line["level"], line["logger"], line["msg"], line["count"]) == ("info", "pool", "hello", 3)
    assert line["caller"].startswith("obs/test_log.py:")
    assert line["ts"].endswith("Z")


def test_lines_within_a_reconcile_carry_its_key_and_id(lines):
    with log.reconcile(
        "snapshot", "n", "s", reconcile_id="task-1", task="osb.reconcile.snapshot", queue="q", attempt=2
    ):
        log.get_logger("x").info("inside")
    log.get_logger("x").info("outside")
    inside, outside = lines()
    assert inside["controller"] == "sandboxsnapshot"
    assert inside["controllerGroup"] == "sandbox.opensandbox.io"
    assert inside["controllerKind"] == "SandboxSnapshot"
    assert inside["SandboxSnapshot"] == {"name": "s", "namespace": "n"}
    assert (inside["namespace"], inside["name"], inside["reconcileID"]) == ("n", "s", "task-1")
    assert (inside["task"], inside["queue"], inside["attempt"]) == ("osb.reconcile.snapshot", "q", 2)
    assert "reconcileID" not in outside


def test_an_exception_has_its_text_and_stack(lines):
    try:
        raise ValueError("broken")
    except ValueError:
        log.get_logger("x").exception("it failed")
    (line,) = lines()
    assert line["level"] == "error"
    assert "broken" in line["error"]
    assert "test_log.py" in line["stacktrace"]


@pytest.mark.parametrize(
    "values",
    [
        {"token": "s3cret"},
        {"Authorization": "Bearer s3cretvalue"},
        {"executor_token": "s3cret"},
        {"note": "redis://user:s3cret@host:6379/0 failed"},
        {"note": "header Authorization: Bearer s3cretvalue"},
        {"body": {"env": [{"name": "A", "value": "s3cret"}]}},
        {"pod": {"metadata": {}, "spec": {"containers": [{"env": "s3cret"}]}}},
        {"env": [{"name": "A", "value": "s3cret"}]},
        {"template": {"x": "s3cret"}},
        {"nested": {"deeper": {"password": "s3cret"}}},
        {"anything": {"spec": {"x": "s3cret"}}},
    ],
)
def test_secrets_environments_and_whole_objects_never_get_out(lines, capsys, values):
    log.get_logger("x").info("told", **values)
    text = capsys.readouterr().err
    assert "told" in text
    assert "s3cret" not in text


def test_the_signal_switches_debug_on_and_off(lines):
    logger = log.get_logger("x")
    logger.debug("not yet")
    os.kill(os.getpid(), signal.SIGUSR1)
    logger.debug("now")
    os.kill(os.getpid(), signal.SIGUSR1)
    logger.debug("no more")
    messages: list[str] = []

    def told_twice() -> bool:  # by a thread of its own
        messages.extend(line["msg"] for line in lines())
        return messages.count("log level changed") == 2

    wait_until(told_twice)
    assert "now" in messages
    assert "not yet" not in messages
    assert "no more" not in messages


@pytest.mark.parametrize(
    ("text", "level"),
    [("debug", log.DEBUG), ("info", log.INFO), ("error", log.ERROR), ("0", log.INFO), ("5", log.DEBUG)],
)
def test_levels_are_the_references(text, level):
    assert log.level_of(text) == level


def test_equal_lines_beyond_a_hundred_a_second_are_left_out(lines, monkeypatch):
    monkeypatch.setattr(log.time, "monotonic", lambda: 5.0)
    for _ in range(300):
        log.get_logger("x").info("again")
    log.get_logger("x").info("another")
    messages = [line["msg"] for line in lines()]
    assert messages.count("again") == 100
    assert messages.count("another") == 1


def test_lines_of_libraries_have_the_same_form(lines):
    logging.getLogger("celery.worker").warning("lost %s", "connection")
    (line,) = lines()
    assert (line["level"], line["logger"], line["msg"]) == ("warn", "celery.worker", "lost connection")


def test_the_console_form_is_for_people(capsys):
    log.setup(Settings(log_format="console"))
    try:
        log.get_logger("x").warning("careful", pool="warm")
        assert "WARN  x: careful  pool=warm" in capsys.readouterr().err
    finally:
        log.setup(Settings())


def test_with_a_file_lines_go_to_stdout_and_the_file(tmp_path, capsys):
    path = tmp_path / "deep" / "controller.log"
    log.setup(Settings(file_log=True, log_file=str(path)))
    try:
        log.get_logger("x").info("both")
        assert "both" in capsys.readouterr().out
        assert "both" in path.read_text()
    finally:
        log.setup(Settings())


def test_a_file_is_rotated_by_size_compressed_and_pruned(tmp_path):
    file = RotatedFile(str(tmp_path / "controller.log"), size=100, keep=2, days=30, compress=True)
    for number in range(8):
        file.write(b"%d" % number * 60 + b"\n")
    file.close()
    backups = sorted(tmp_path.glob("controller-*.log.gz"))
    assert len(backups) == 2
    assert gzip.decompress(backups[-1].read_bytes()).startswith(b"6")
    assert (tmp_path / "controller.log").read_bytes().startswith(b"7")


def test_a_log_file_that_cannot_be_written_stops_nothing(tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    file = RotatedFile(str(tmp_path / "taken" / "controller.log"), size=100, keep=2, days=30, compress=True)
    file.write(b"line\n")
    assert "cannot be written" in capsys.readouterr().err
