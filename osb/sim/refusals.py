"""Answers of the simulated API server that say no, in the shape and the words that clients of Kubernetes look for.

Any layer raises `Refusal`; `osb.sim.server` turns it into an HTTP answer with a `Status` body.
"""

from __future__ import annotations

from typing import Any

from osb.sim.kinds import Resource

Obj = dict[str, Any]


class Refusal(Exception):
    """An HTTP answer other than success: code, reason and message as the real server would send them."""

    def __init__(self, code: int, reason: str, message: str, *, details: Obj | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details
        self.retry_after: float | None = None

    def body(self) -> Obj:
        """The `Status` object."""
        status: Obj = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": str(self),
            "reason": self.reason, "code": self.code,
        }  # fmt: skip
        if not self.reason:
            del status["reason"]
        if self.details:
            status["details"] = self.details
        return status


def _details(res: Resource, name: str, **more: Any) -> Obj:
    details: Obj = {"name": name, "kind": res.plural}
    if res.group:
        details["group"] = res.group
    details.update(more)
    return {key: value for key, value in details.items() if value != ""}


def not_found(res: Resource, name: str) -> Refusal:
    return Refusal(404, "NotFound", f'{res.qualified} "{name}" not found', details=_details(res, name))


def no_such_path() -> Refusal:
    return Refusal(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(res: Resource, name: str) -> Refusal:
    return Refusal(409, "AlreadyExists", f'{res.qualified} "{name}" already exists', details=_details(res, name))


def conflict(res: Resource, name: str, why: str = "") -> Refusal:
    why = why or ("the object has been modified; please apply your changes to the latest version and try again")
    message = f'Operation cannot be fulfilled on {res.qualified} "{name}": {why}'
    return Refusal(409, "Conflict", message, details=_details(res, name))


def invalid(res: Resource, name: str, causes: list[tuple[str, str, str]]) -> Refusal:
    """422. A cause is (field path, reason such as FieldValueRequired, message)."""
    texts = [f"{field}: {message}" for field, _, message in causes]
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    details = _details(
        res, name, causes=[{"reason": why, "message": text, "field": field} for field, why, text in causes]
    )
    details["kind"] = res.kind
    return Refusal(422, "Invalid",
    f'{res.kind}{"." + res.group if res.group else ""} "{name}" is invalid: {text}',
                   details=details)  # fmt: skip


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def forbidden(res: Resource, name: str, why: str) -> Refusal:
    return Refusal(403, "Forbidden", f'{res.qualified} "{name}" is forbidden: {why}', details=_details(res, name))


def not_allowed() -> Refusal:
    return Refusal(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def unsupported_media(content: str, accepted: str) -> Refusal:
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return Refusal(415, "UnsupportedMediaType", f"{message}, not {content}", details={})


def unsupported_protobuf(kind: str) -> Refusal:
    """415: a built-in kind that we read as JSON only."""
    what = kind or "an object without a kind"
    message = f"the simulated cluster reads {what} only as JSON, which kubectl apply -f and create -f send"
    return Refusal(415, "UnsupportedMediaType", message, details={})


def expired(message: str) -> Refusal:
    return Refusal(410, "Expired", message)


def patch_failed(message: str) -> Refusal:
    """422: a JSON patch whose test or path does not hold."""
    return Refusal(
        422,
        "Invalid",
        f"the server rejected our request due to an error in our request: {message}",
        details={},
    )


def too_many(message: str, seconds: int) -> Refusal:
    refusal = Refusal(429, "TooManyRequests", message, details={"retryAfterSeconds": seconds} if seconds else None)
    refusal.retry_after = seconds or None
    return refusal
