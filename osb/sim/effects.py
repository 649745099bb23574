"""Effects of faults on one request: waits, refusals, closed connections (the rules are `osb.sim.faults`)."""

from __future__ import annotations

import asyncio

from aiohttp import web

from osb.sim import refusals
from osb.sim.faults import Fault
from osb.sim.refusals import Refusal
from osb.sim.target import Target


async def before(hit: list[Fault], request: web.BaseRequest, target: Target) -> None:
    """Effects that come before the request is executed."""
    for fault in hit:
        if fault.latency:
            await asyncio.sleep(fault.latency)
        if fault.close:
            hang_up(request)
        if fault.deny:
            raise refusals.forbidden(
                target.res, target.name, fault.message or "denied by a fault of the simulated cluster"
            )
        if fault.status:
            reason = fault.reason or {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable",
                                      504: "Timeout", 403: "Forbidden", 401: "Unauthorized",
                                      409: "Conflict"}.get(fault.status, "")  # fmt: skip
            refusal = Refusal(fault.status, reason, fault.message or "a fault of the simulated cluster")
            refusal.retry_after = fault.retry_after or None
            raise refusal


def hang_up(request: web.BaseRequest) -> None:
    """Close the connection; the client never gets an answer."""
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("closed by a fault of the simulated cluster")
