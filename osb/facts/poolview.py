"""`PoolView` and `ServeView`: everything one decision about a pool may know, `now` included.

`osb.reconcile.gather` fills them; `osb.decide.pool` and `osb.decide.allocate` read nothing else. A pod is in
a view only if this pool's UID is its controller; the ledger's word about it is in `entries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from osb.api.batchsandbox import BoxSpec
from osb.api.pool import PoolSpec
from osb.facts.ledger import LedgerEntry
from osb.facts.pod import PodFact


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingBox:
    """A sandbox that misses pods.

    `slots`: `wants()` minus those that the ledger already reserved or holds for it.
    `holds`: number of pods it has.
    `waits_since`: transition of its Progressing condition, None when it has none yet.
    """

    box: BoxSpec
    slots: tuple[int, ...]
    holds: int = 0
    waits_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeView:
    """Input of the fast pass.

    `available`: free in the ledger, ready, not leaving; longest ready first.
    `counts`: ledger entries by state.
    `held_for_ever`: number of pods of sandboxes that neither end nor expire.
    `line`: length of the whole line when only its head was read (0 = all of it).
    `create_failing`: the server's words, or "".
    """

    now: datetime
    pool: PoolSpec
    revision: str
    waiting: Sequence[WaitingBox] = ()
    available: Sequence[PodFact] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    held_by_tenant: Mapping[str, int] = field(default_factory=dict)
    held_for_ever: int = 0
    line: int = 0
    ledger_ready: bool = True
    create_failing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFact:
    """What eviction needs of a node."""

    name: str
    unschedulable: bool = False
    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What earlier passes of this pool left in Redis; all of it may be missing, then the defaults apply.

    `stuck_replaced`, `stuck_last_ms`: replacements of stuck pods in a row, and the time of the last.
    `create_failures`, `create_failed_ms`, `create_error`: refused creates in a row, the time of the
      last, its words.
    `granted_per_second`: demand over the sizing window.
    `lead_seconds`: the median time from create to Ready (None = unknown).
    `recycle_errors`: pods whose recycling last failed, and why.
    `warned`: warnings that had their event.
    `held_for_ever`, `held_by_tenant`: for the fast pass, which does not see all sandboxes.
    """

    stuck_replaced: int = 0
    stuck_last_ms: int = 0
    create_failures: int = 0
    create_failed_ms: int = 0
    create_error: str = ""
    granted_per_second: float = 0.0
    lead_seconds: float | None = None
    recycle_errors: Mapping[str, str] = field(default_factory=dict)
    warned: tuple[str, ...] = ()
    held_for_ever: int = 0
    held_by_tenant: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """Input of the full pass.

    `revision`: the current one, adoption considered.
    `pods`: all pods of the pool, terminating ones too.
    `entries`: the ledger.
    `names`: endless supply of new pod names.
    `since`: for the ledger's unfinished entries, since when (ms).
    `boxes`: every sandbox that the pool serves or that holds one of its pods, by UID, terminating ones too.
    `epoch`: the ledger's, for the mark in status and on adopted pods.
    `mirror_fresh`: False while the mirror is stale or a live read is owed.
    `nodes`: None when nodes are not watched.
    `room`: pods that the cap over all pools still allows (None = no cap).
    """

    now: datetime
    pool: PoolSpec
    revision: str
    pods: Mapping[str, PodFact]
    entries: Mapping[str, LedgerEntry]
    names: Iterable[str]
    since: Mapping[str, int] = field(default_factory=dict)
    boxes: Mapping[str, BoxSpec] = field(default_factory=dict)
    waiting: Sequence[WaitingBox] = ()
    ledger_ready: bool = True
    epoch: str = ""
    mirror_fresh: bool = True
    nodes: Mapping[str, NodeFact] | None = None
    memory: Memory = field(default_factory=Memory)
    room: int | None = None
    expectation_timeout: float = 30.0
