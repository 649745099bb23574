"""The sentence that tells a waiting sandbox why it waits and where it stands.

It begins with a code (spec/additions.md 2.2), then `missing 2 of 3; position about 40 of 180`. The position
is rounded. It and the room that pools have left are never reason enough for a write: a line of 1,000 must not cost
1,000 writes per grant.
"""

from __future__ import annotations

import re

from osb.api import names
from osb.facts.boxview import Waiting

_POSITION = re.compile(r"; position about \d+ of \d+")
_ROOM = re.compile(r"poolMax \d+ leaves \d+ of the \d+ asked for")


def no_room(pool_max: int, left: int, asked: int) -> str:
    """Why a pool that fits cannot be chosen now, with the numbers of the moment."""
    return f"poolMax {pool_max} leaves {left} of the {asked} asked for"


def lasting(text: str) -> str:
    """The cause without what moves by itself: equal texts are one cause, told once."""
    return _ROOM.sub("it has no room", _POSITION.sub("", text))


def waiting_message(waiting: Waiting | None, *, missing: int, of: int, prior: str = "") -> str:
    """The message of Progressing/WaitingForPool; `prior` itself when nothing but the position would change.

    With no `waiting` the caller does not know why: the prior reason stands, else `NoReadyPod`.
    """
    old = _told(prior)
    if waiting is None:
        waiting = Waiting(code=_code(old) or names.WAIT_NO_READY_POD)
        if _code(old) and f"missing {missing} of {of}" in old:
            return old
    clause = f"{waiting.code}: {waiting.detail}" if waiting.detail else waiting.code
    text = f"{clause}; missing {missing} of {of}"
    if old and not waiting.refresh and lasting(old) == lasting(text):
        return old
    if waiting.position <= 0 or waiting.code in (names.WAIT_POOL_NOT_FOUND, names.WAIT_NO_POOL_FITS):
        return text
    line = nearest(max(waiting.line, waiting.position))
    return f"{text}; position about {min(rounded(waiting.position), line)} of {line}"


def rounded(value: int) -> int:
    """1, 2, 5, 10, and from there two significant digits, rounded up."""
    for step in (1, 2, 5, 10):
        if value <= step:
            return step
    unit = int(10 ** (len(str(value)) - 2))
    return -(-value // unit) * unit


def nearest(value: int) -> int:
    """Exact below 100, from there the nearest number of two significant digits."""
    unit = int(10 ** max(0, len(str(value)) - 2))
    return (value + unit // 2) // unit * unit


def span(seconds: float) -> str:
    """A length of time to the minute, or to the second below one."""
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{max(seconds, 0):.0f} s"


def exactly(seconds: float) -> str:
    """A limit as it was set, without rounding: `13 min`, `3 min 40 s`, `40 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return " ".join(([f"{minutes} min"] if minutes else []) + ([f"{rest} s"] if rest or not minutes else []))


def _told(prior: str) -> str:
    """The waiting part of a prior message, which may stand behind `1/3 ready; `."""
    head, found, tail = prior.partition(" ready; ")
    return tail if found and "/" in head else prior


def _code(text: str) -> str:
    return next((code for code in names.WAIT_CODES if text.startswith(code)), "")
