"""API answers, and missing answers, to our errors (`osb.errors`): callers catch by meaning, never by number.

The one distinction that everything else rests on is `definite` (spec/protocols.md, Words): True when it is
certain that the write did not happen. That is so for every 4xx answer and for a connection that was never
made; not for a timeout, a reset or a 5xx.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson
import urllib3.exceptions as http

from osb.errors import AlreadyExists, ApiError, Conflict, Gone, NotFound, Refused, Throttled, Unavailable

MESSAGE_LIMIT = 500  # characters of the server's own words: they may quote whole objects

_BY_STATUS: dict[int, type[ApiError]] = {404: NotFound, 408: Unavailable, 410: Gone, 429: Throttled}

# How urllib3 names a connection or a pool in front of its message: the name of a class, ours too.
_CONNECTION = re.compile(r"\b\w+\(host='([^']*)', port='?(\w+)'?\): ")

# The request never left: no TCP connection, no TLS session.
_NEVER_SENT = (http.NewConnectionError, http.ConnectTimeoutError, http.NameResolutionError, http.ProxyError)


def of_answer(what: str, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> ApiError:
    """The error for a non-2xx HTTP answer. `what` says what was attempted, e.g. "patch pod ns/a"."""
    answer = _decoded(body)
    retry_after = _seconds((headers or {}).get("Retry-After"))
    return of_status(what, answer, code=status, retry_after=retry_after)


def of_status(what: str, answer: Mapping[str, Any], *, code: int = 0, retry_after: float | None = None) -> ApiError:
    """The error for a Kubernetes Status object, as an answer's body or inside a watch."""
    code = code or int(answer.get("code") or 0)
    reason = str(answer.get("reason") or "")
    words = str(answer.get("message") or "")
    details = answer.get("details")
    if retry_after is None and isinstance(details, Mapping):
        retry_after = _seconds(details.get("retryAfterSeconds"))
    kind = _kind(code, reason)
    text = f"{what}: {code or 'no status'} {reason}".rstrip()
    if words and words != reason:
        text += f": {capped(words)}"
    return kind(text, status=code, reason=reason, retry_after=retry_after)


def of_failure(what: str, cause: BaseException) -> Unavailable:
    """The error for a call without an answer. Definite only when the request certainly never left."""
    inner = cause.reason if isinstance(cause, http.MaxRetryError) and cause.reason else cause
    error = Unavailable(f"{what}: no answer: {type(inner).__name__}: {capped(_said(inner), 200)}")
    error.definite = isinstance(inner, _NEVER_SENT)
    return error


def _said(cause: BaseException) -> str:
    """Its message without the names of objects inside the library."""
    text = str(cause)
    if isinstance(cause, http.ConnectTimeoutError) and cause.args:
        text = str(cause.args[-1])  # (connection, message)
    elif isinstance(cause, http.ProxyError):
        text = f"{cause.args[0]}: {cause.original_error}"
    return _CONNECTION.sub(r"\1:\2: ", text)


def capped(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """`text` on one line and at most `limit` characters, the rest counted."""
    text = " ".join(text.split())
    if len(text) <= limit:
        return text
    return f"{text[:limit]}... and {len(text) - limit} more characters"


def _kind(code: int, reason: str) -> type[ApiError]:
    if code == 409:
        return AlreadyExists if reason == "AlreadyExists" else Conflict
    if reason in ("Expired", "Gone"):
        return Gone
    if known := _BY_STATUS.get(code):
        return known
    return Refused if 400 <= code < 500 else Unavailable


def _decoded(body: bytes) -> Mapping[str, Any]:
    """The Status in `body`; a plain-text body (a proxy, an old server) becomes its message."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {"message": body[: 2 * MESSAGE_LIMIT].decode("utf-8", "replace")}
    return answer if isinstance(answer, dict) else {}


def _seconds(text: object) -> float | None:
    """Retry-After in seconds; dates and nonsense count as none."""
    try:
        seconds = float(text)  # type: ignore[arg-type]  # whatever the server sent: TypeError is caught below
    except (TypeError, ValueError):
        return None
    return seconds if 0 < seconds < 86_400 else None
