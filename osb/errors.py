"""Our error family. An exception's docstring is its meaning; `str(error)` names the object, the field, the remedy."""

from __future__ import annotations


class OsbError(Exception):
    """Base of every error that this project raises on purpose."""


class ConfigError(OsbError):
    """A setting is missing or wrong; the message names the variable or flag, the value and what is accepted."""


class InvalidInput(OsbError):
    """User input is wrong. `field` is a path such as `spec.capacitySpec.bufferMin`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class RecordUnreadable(InvalidInput):
    """An alloc-* annotation cannot be read; its sandbox is quarantined, nothing else stops."""


# -- the API server (made by osb.kube.errors from its answers; caught by meaning, never by status number) --------


class ApiError(OsbError):
    """The API server answered, or failed to answer, a call.

    `definite` is True when an HTTP answer arrived that proves the write did not happen; False when nobody knows
    (timeout, reset, 5xx from a proxy): the write may land now, later or never (spec/protocols.md, Words).
    """

    definite = True

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class NotFound(ApiError):
    """The object does not exist (404)."""


class AlreadyExists(ApiError):
    """An object of that name exists (409 AlreadyExists)."""


class Conflict(ApiError):
    """The object changed since it was read, or a precondition failed (409 Conflict). Normal at speed; not an error."""


class Gone(ApiError):
    """The resourceVersion or continue token is too old (410): list again."""


class Throttled(ApiError):
    """The server asks to wait (429); `retry_after` says how many seconds."""


class Refused(ApiError):
    """The server will not do this now or ever: admission, quota, RBAC, validation (400, 401, 403, 405, 415, 422)."""


class Unavailable(ApiError):
    """No definite answer: timeout, connection reset, 5xx. The write may have happened."""

    definite = False


# -- Redis ---------------------------------------------------------------------------------------------------------


class StoreDown(OsbError):
    """Redis cannot be reached or answers with an error (loading, read-only, out of memory)."""


class Fenced(OsbError):
    """The token is no longer the key's current one: stop the pass and write nothing more."""


class LedgerNotReady(OsbError):
    """The pool's ledger is missing, foreign or older than the live objects: rebuild before serving."""


class DeadlinePassed(OsbError):
    """The reconcile ran past its soft deadline or was asked to stop; it ends as Retry."""
