"""Structured log lines, one JSON object each: level, ts, logger, caller, msg, then the keys given.

`setup(settings)` once per process start; `get_logger("name")` anywhere, also before. Inside `with reconcile(...)`
every line of the thread carries the key and the reconcile id. SIGUSR1 switches between the configured level and
debug. What people must not see never gets out: values under suspicious keys, whole objects, tokens and passwords
in text are masked here, and no caller has to remember it. Lines of other libraries take the same path.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import orjson
import structlog

from osb.config import Settings
from osb.ending import aside
from osb.obs.logfile import Output, RotatedFile, Stream
from osb.obs.redact import redacted

DEBUG, INFO, WARN, ERROR, PANIC = 10, 20, 30, 40, 50
_LEVELS = {"debug": DEBUG, "info": INFO, "warn": WARN, "error": ERROR, "panic": PANIC}
_NAMES = {value: name for name, value in _LEVELS.items()}

SAMPLE = 100  # equal lines a second before the rest of that second is only counted

_KINDS = {
    "pool": ("pool", "Pool"),
    "batchsandbox": ("batchsandbox", "BatchSandbox"),
    "snapshot": ("sandboxsnapshot", "SandboxSnapshot"),
    "recycle": ("recycle", "Pod"),
    "tasks": ("tasks", "BatchSandbox"),
}
_GROUP = "sandbox.opensandbox.io"


class _State:
    """What `setup` and the signal change; read by every line."""

    def __init__(self) -> None:
        self.level = INFO
        self.configured = INFO
        self.console = False
        self.outputs: list[Output] = [Stream(sys.stderr)]
        self.lock = threading.RLock()  # a finalizer's line may come in the middle of another
        self.second = 0
        self.seen: dict[tuple[str, str], int] = {}


_state = _State()


def _fresh_lock() -> None:
    """A forked child may inherit the lock held by a thread that does not exist in it."""
    _state.lock = threading.RLock()


os.register_at_fork(after_in_child=_fresh_lock)


class Logger(structlog.BoundLoggerBase):
    """The methods of our loggers. Lines below the current level cost a comparison."""

    def bind(self, **values: Any) -> Logger:
        return super().bind(**values)

    def debug(self, msg: str, **values: Any) -> None:
        if _state.level <= DEBUG:
            self._line(DEBUG, msg, values)

    def info(self, msg: str, **values: Any) -> None:
        if _state.level <= INFO:
            self._line(INFO, msg, values)

    def warning(self, msg: str, **values: Any) -> None:
        if _state.level <= WARN:
            self._line(WARN, msg, values)

    def error(self, msg: str, **values: Any) -> None:
        if _state.level <= ERROR:
            self._line(ERROR, msg, values)

    def exception(self, msg: str, **values: Any) -> None:
        """An error line with the current exception's text and stack trace."""
        failure = sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1]
        if failure is not None:
            values.setdefault("error", repr(failure))
            values["stacktrace"] = "".join(traceback.format_exception(failure))
        self._line(ERROR, msg, values)

    def _line(self, level: int, msg: str, values: dict[str, Any]) -> None:
        frame = sys._getframe(2)
        path = PurePath(frame.f_code.co_filename)
        caller = f"{path.parent.name}/{path.name}:{frame.f_lineno}"
        context = {**structlog.contextvars.get_contextvars(), **self._context, **values}
        name = context.pop("logger", "osb")
        _write(level, str(name), caller, msg, context)


def get_logger(name: str) -> Logger:
    """A logger whose lines carry `logger: name`. Works before `setup`: info and above to stderr."""
    return Logger(None, [], {"logger": name})


def setup(settings: Settings) -> None:
    """Configure this process's log lines; SIGUSR1 toggles debug (when called in the main thread)."""
    level = DEBUG if settings.log_devel and settings.log_level == "info" else level_of(settings.log_level)
    with _state.lock:
        _state.level = _state.configured = level
        _state.console = settings.log_format == "console" or settings.log_devel
        for output in _state.outputs:
            output.close()
        _state.outputs = _outputs(settings)
    _capture_libraries()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, lambda *_: _signalled())


def level_of(text: str) -> int:
    """debug, info, warn, error, panic; a number above 0 is debug (more = more verbose)."""
    if text.isdigit():
        return DEBUG if int(text) > 0 else INFO
    return _LEVELS[text]


def toggle() -> None:
    """Between debug and the configured level (info when debug is configured)."""
    quiet = INFO if _state.configured == DEBUG else _state.configured
    set_level(quiet if _state.level == DEBUG else DEBUG)


def _signalled() -> None:
    """The level counts from here on; the line is another thread's, as this one may be in the middle of a line."""
    toggle()
    level = _NAMES.get(_state.level, str(_state.level))
    aside(lambda: _write(INFO, "log", "obs/log.py", "log level changed", {"now": level}))


def set_level(level: int) -> None:
    """Change the level of the running process, silently."""
    _state.level = level


@contextmanager
def reconcile(kind: str, namespace: str, name: str, *, reconcile_id: str, **more: Any) -> Iterator[None]:
    """Lines of this thread carry the key and id meanwhile; `more` is task, queue, attempt."""
    controller, object_kind = _KINDS.get(kind, (kind, kind))
    values = {
        "controller": controller,
        "controllerGroup": _GROUP,
        "controllerKind": object_kind,
        object_kind: {"name": name, "namespace": namespace},
        "namespace": namespace,
        "name": name,
        "reconcileID": reconcile_id,
        **more,
    }
    with structlog.contextvars.bound_contextvars(**values):
        yield


def _write(level: int, logger: str, caller: str, msg: str, values: Mapping[str, Any]) -> None:
    if not _allowed(logger, msg):
        return
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"level": _NAMES.get(level, "info"), "ts": now, "logger": logger, "caller": caller}
    line |= {"msg": redacted("msg", msg), **{key: redacted(key, value) for key, value in values.items()}}
    text = _console(line) if _state.console else orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS)
    with _state.lock:
        for output in _state.outputs:
            output.write(text + b"\n")


def _console(line: Mapping[str, Any]) -> bytes:
    rest = {key: value for key, value in line.items() if key not in ("level", "ts", "logger", "caller", "msg")}
    stack = rest.pop("stacktrace", "")
    tail = "  " + " ".join(f"{key}={value}" for key, value in rest.items()) if rest else ""
    text = f"{line['ts'][11:23]} {line['level'].upper():5} {line['logger']}: {line['msg']}{tail}"
    return (text + (f"\n{stack}" if stack else "")).encode("utf-8", "replace")


def _allowed(logger: str, msg: str) -> bool:
    """Sampling: the first 100 equal lines of a second, and none of it at debug level."""
    if _state.level <= DEBUG:
        return True
    second = int(time.monotonic())
    with _state.lock:
        if second != _state.second:
            _state.second = second
            _state.seen.clear()
        count = _state.seen[logger, msg] = _state.seen.get((logger, msg), 0) + 1
    return count <= SAMPLE


def _outputs(settings: Settings) -> list[Output]:
    if not settings.file_log:
        return [Stream(sys.stderr)]
    file = RotatedFile(
        settings.log_file,
        size=settings.log_max_size * 1_000_000,
        keep=settings.log_max_backups,
        days=settings.log_max_age,
        compress=settings.log_compress,
    )
    return [Stream(sys.stdout), file]


class _Libraries(logging.Handler):
    """Lines of other libraries (celery, urllib3, kubernetes) in our form."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < _state.level:
            return
        values: dict[str, Any] = {}
        if record.exc_info and record.exc_info[1] is not None:
            values["error"] = repr(record.exc_info[1])
            values["stacktrace"] = "".join(traceback.format_exception(record.exc_info[1]))
        caller = f"{record.module}:{record.lineno}"
        level = max(DEBUG, min(PANIC, record.levelno // 10 * 10))
        _write(level, record.name, caller, record.getMessage(), values)


def _capture_libraries() -> None:
    root = logging.getLogger()
    root.handlers = [_Libraries()]
    root.setLevel(logging.INFO)
    # Celery says of every task that it came and that it ended; our own line of the reconcile says more.
    for noisy in ("urllib3", "kubernetes", "celery.worker.strategy", "celery.app.trace"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
