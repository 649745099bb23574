"""One wrapper for every call to the API server: bytes in, bytes out. Below `read`, `write` and `watch`.

Each call, in this order: the reconcile's deadline is checked; a Retry-After window of the server is waited
for; the client-side budget is taken; the token is asked for (it refreshes itself); one request goes out with
its own timeout; metrics count it; a 401 rebuilds the client once. Only reads are repeated (429, 5xx, lost
connections): a write is never sent twice from here (spec/protocols.md, what is assumed).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import urllib3
from urllib3.exceptions import HTTPError, ReadTimeoutError

from osb.errors import ApiError, ConfigError, Throttled, Unavailable
from osb.kube import errors
from osb.kube.budget import Budget
from osb.kube.session import Answer, Session, Timeout
from osb.obs import deadline, metrics
from osb.obs.log import get_logger

MAX_AGE = 600.0  # seconds until a client is rebuilt: certificates and tokens on disk may have been replaced
CONNECT_TIMEOUT = 5.0
READ_ATTEMPTS = 4
BACKOFF = 0.2  # seconds before the first repeat of a read, doubling, with jitter
LONGEST_WAIT = 10.0  # seconds that one call waits for the server's Retry-After window or for the budget

_REPEATABLE = (429, 500, 502, 503, 504)

log = get_logger("kube")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. `verb` and `kind` are for metrics, `what` for messages ("patch pod ns/a")."""

    method: str
    path: str
    verb: str
    kind: str
    what: str
    body: bytes | None = None
    content: str = "application/json"
    timeout: float = 10.0


@dataclass(slots=True)
class _Gate:
    """Until when the server asked not to be called (429 with Retry-After), shared by all threads."""

    until: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self, seconds: float) -> None:
        with self.lock:
            self.until = max(self.until, time.monotonic() + seconds)

    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())


class Transport:
    """Thread-safe. Sessions (configuration and pool) are made on first use in each process and renewed."""

    def __init__(
        self,
        load: Callable[[], Session],
        *,
        budget: Budget | None = None,
        max_age: float = MAX_AGE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load = load
        self._budget = budget
        self._max_age = max_age
        self._clock = clock
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._pid = 0
        self._born = 0.0
        self._gate = _Gate()

    def read(self, call: Call) -> bytes:
        """Send a GET; repeated up to three times on 429, 5xx and lost connections, not after a timeout."""
        for attempt in range(1, READ_ATTEMPTS + 1):
            try:
                return self._send(call)
            except (Throttled, Unavailable) as error:
                last_try = attempt == READ_ATTEMPTS
                repeatable = error.status in _REPEATABLE or (error.status == 0 and not _timed_out(error))
                if last_try or not repeatable:
                    raise
                self._pause(error, attempt)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def write(self, call: Call) -> bytes:
        """Send a POST, PUT, PATCH or DELETE exactly once (twice only after a 401, which changed nothing)."""
        return self._send(call)

    def open(self, call: Call) -> urllib3.BaseHTTPResponse:
        """Send a GET whose answer is a stream; `call.timeout` is the longest silence. The caller closes."""
        answer = self._answer(call, stream=True)
        assert isinstance(answer, urllib3.BaseHTTPResponse)  # only a PATCH goes another way
        return answer

    def session(self) -> Session:
        """The current session of this process: made on first use, after a fork, and when too old."""
        current = self._session
        if current is not None and self._pid == os.getpid() and self._clock() - self._born < self._max_age:
            return current
        return self._renew(current)

    def close(self) -> None:
        with self._lock:
            if self._session is not None and self._pid == os.getpid():
                self._session.close()
            self._session = None

    def _send(self, call: Call) -> bytes:
        return self._answer(call, stream=False).data

    def _answer(self, call: Call, *, stream: bool) -> Answer:
        self._admit(call)
        session = self.session()
        response = self._request(session, call, stream=stream)
        if response.status == 401:
            response.drain_conn()
            session = self._renew(session)
            response = self._request(session, call, stream=stream)
        if 200 <= response.status < 300:
            return response
        error = errors.of_answer(call.what, response.status, response.data, response.headers)
        response.release_conn()
        if isinstance(error, Throttled):
            self._gate.close(error.retry_after or 1.0)
        raise error

    def _request(self, session: Session, call: Call, *, stream: bool) -> Answer:
        now = deadline.current()
        timeout = now.limit(call.timeout) if now and not stream else call.timeout
        start = time.perf_counter()
        code = "none"
        try:
            response = session.request(
                call.method,
                call.path,
                body=call.body,
                content=call.content,
                timeout=Timeout(connect=min(CONNECT_TIMEOUT, timeout), read=timeout),
                stream=stream,
            )
            code = str(response.status)
            return response
        except (HTTPError, OSError) as error:
            raise errors.of_failure(call.what, error) from error
        finally:
            metrics.api_call(call.verb, call.kind, code, time.perf_counter() - start)

    def _admit(self, call: Call) -> None:
        """Everything that may hold a call back before it is sent. Raises without sending."""
        deadline.check()
        waits = self._gate.left()
        if self._budget is not None:
            waits = max(waits, self._budget.take(LONGEST_WAIT))
        if waits <= 0:
            return
        metrics.api_throttled(min(waits, LONGEST_WAIT))
        if waits > LONGEST_WAIT or not _waited(waits):
            raise Throttled(
                f"{call.what}: not sent: the API server asked to wait {waits:.1f} s",
                status=429,
                retry_after=waits,
            )
        deadline.check()

    def _pause(self, error: ApiError, attempt: int) -> None:
        """Wait before a read is repeated; raise `error` when that takes too long or the run must end."""
        seconds = error.retry_after or BACKOFF * 2 ** (attempt - 1) * random.uniform(0.75, 1.25)
        if isinstance(error, Throttled):
            metrics.api_throttled(min(seconds, LONGEST_WAIT))
        if seconds > LONGEST_WAIT or not _waited(seconds):
            raise error

    def _renew(self, seen: Session | None) -> Session:
        """A fresh session, unless another thread replaced `seen`. The old one ends with its last user."""
        with self._lock:
            same_process = self._pid == os.getpid()
            if self._session is not None and self._session is not seen and same_process:
                return self._session
            try:
                fresh = self._load()
            except ConfigError as error:
                if self._session is None or not same_process:
                    raise
                log.warning("client configuration cannot be reloaded; the old one stays", error=str(error))
                fresh = self._session
            self._session, self._pid, self._born = fresh, os.getpid(), self._clock()
            return fresh


def _waited(seconds: float) -> bool:
    """Wait; False when the reconcile's deadline does not allow it."""
    now = deadline.current()
    if now is not None:
        return now.wait(seconds)
    time.sleep(seconds)
    return True


def _timed_out(error: BaseException) -> bool:
    return isinstance(error.__cause__, ReadTimeoutError | TimeoutError)
