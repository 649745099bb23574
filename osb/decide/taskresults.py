"""The `task-results` annotation: final results by index, so that no finished task ever runs again.

In: its text (users can edit it) or finished nodes. Out: `Results` and the text. Shape (spec/additions.md 3):
`{"v":1,"ok":"0-41,43","failed":{"42":[137,"TaskTimeout"]},"failedMore":"44-90"}`; at most 200 failures in
detail, the rest as ranges, so that the annotation stays small for thousands of tasks. `back`, ranges too: slots of
a sandbox without a pool whose pod was given back; a pooled one names such pods in `alloc-released`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from osb.decide.tasknode import COMPLETED, FAILED, SUCCEED, Node

DETAILED = 200
LARGEST_INDEX = 100_000
UNKNOWN_CODE = 1
REASON_BYTES = 64


@dataclass(frozen=True, slots=True)
class Results:
    """Final results by index.

    `failed`: index -> (exit code, reason).
    `back`: slots that need no pod any more, whatever the policy has become.
    `readable`: False for a text that could not be read (a user's edit): known results then count for nothing, and
      the next write replaces the text.
    """

    ok: frozenset[int] = frozenset()
    failed: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    back: frozenset[int] = frozenset()
    readable: bool = field(default=True, compare=False)

    def __contains__(self, index: object) -> bool:
        return index in self.ok or index in self.failed

    def indexes(self) -> frozenset[int]:
        """Tasks that are over: under policy Release their owned pod is not made again."""
        return self.ok | frozenset(self.failed)

    def node(self, index: int) -> Node | None:
        """The finished node of `index` as recovery takes it, None when it has no result."""
        if index in self.ok:
            return Node(index=index, resource=COMPLETED, state=SUCCEED)
        if index in self.failed:
            code, reason = self.failed[index]
            return Node(index=index, resource=COMPLETED, state=FAILED, exit_code=code, reason=reason)
        return None

    def plus(self, nodes: Iterable[Node]) -> Results:
        """With the results of finished `nodes`. A result that is there already stays as it is."""
        ok, failed = set(self.ok), dict(self.failed)
        for node in nodes:
            if not node.final or node.index in ok or node.index in failed:
                continue
            if node.state == SUCCEED:
                ok.add(node.index)
            else:
                failed[node.index] = (node.exit_code, _reason(node.reason))
        return Results(frozenset(ok), failed, self.back)

    def merged(self, other: Results) -> Results:
        """With those of `other` that are not there yet."""
        failed = {**{i: v for i, v in other.failed.items() if i not in self.ok}, **self.failed}
        return Results(self.ok | (other.ok - failed.keys()), failed, self.back | other.back)

    def below(self, count: int) -> Results:
        """Without what belongs to slots that were cut: a slot of that number is a new one."""
        return Results(
            frozenset(i for i in self.ok if i < count),
            {i: v for i, v in self.failed.items() if i < count},
            frozenset(i for i in self.back if i < count),
        )

    def given(self, slots: Iterable[int]) -> Results:
        """With `slots` among those given back."""
        return Results(self.ok, self.failed, self.back.union(slots))

    def text(self) -> str:
        """Compact JSON, keys in the documented order, empty members left out."""
        body: dict[str, Any] = {"v": 1}
        if self.ok:
            body["ok"] = ranges(self.ok)
        order = sorted(self.failed)
        if order:
            body["failed"] = {str(i): list(self.failed[i]) for i in order[:DETAILED]}
        if order[DETAILED:]:
            body["failedMore"] = ranges(order[DETAILED:])
        if self.back:
            body["back"] = ranges(self.back)
        return orjson.dumps(body).decode()


def parse(text: str | None) -> Results:
    """Never raises. Nonsense is `readable=False`; members of later versions are ignored."""
    if not text:
        return Results()
    try:
        body = orjson.loads(text)
        ok = frozenset(indexes(body.get("ok", "")))
        failed = {int(i): _detail(v) for i, v in (body.get("failed") or {}).items() if 0 <= int(i) < LARGEST_INDEX}
        for index in indexes(body.get("failedMore", "")):
            failed.setdefault(index, (UNKNOWN_CODE, ""))
        back = frozenset(indexes(body.get("back", "")))
    except (ValueError, TypeError, AttributeError):
        return Results(readable=False)
    return Results(ok - failed.keys(), failed, back)


def _detail(value: object) -> tuple[int, str]:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[0], int):
        return value[0], _reason(str(value[1]))
    raise ValueError(f"not [code, reason]: {value!r}")


def _reason(text: str) -> str:
    """An executor's word, bounded in bytes and without what JSON writes as an escape of six: 200 must fit."""
    shown = "".join(c for c in text if c.isprintable())
    return shown.encode(errors="replace")[:REASON_BYTES].decode(errors="ignore")


def ranges(values: Iterable[int]) -> str:
    """`0-41,43` of sorted distinct numbers."""
    parts: list[list[int]] = []
    for value in sorted(set(values)):
        if parts and value == parts[-1][1] + 1:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def indexes(text: str) -> list[int]:
    """The numbers of `0-41,43`. Raises ValueError for anything else, and for too many."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        low, high = int(first), int(last) if dash else int(first)
        if not 0 <= low <= high < LARGEST_INDEX:
            raise ValueError(f"not a range: {part!r}")
        found.extend(range(low, high + 1))
        if len(found) > LARGEST_INDEX:
            raise ValueError("too many indexes")
    return found
