"""What a reconcile is, and its four outcomes.

A reconciler gets a key, never an event and never an object, because by the time it runs the event is history: it
looks at the world as it is now (gather), decides what should change (a pure function), carries that out (apply) and
says when it wants to run again. It may be stopped, killed or repeated between any two lines; so every write carries
the version or UID it was decided on, and every step is safe to repeat.

The queue promises (osb.store.queue): never two reconciles of one key at once; an event during a reconcile means one
more run afterwards; many events collapse into one; nothing is lost when a process dies.

Outcomes, turned into queue operations and metrics by `osb.reconcile.handle` and by nothing else:

* `Done()`: in order; forget failures.
* `After(seconds)`: in order, look again then. Waiting is never an error.
* `Retry(cause)`: something failed; back off 0.5 s doubling to 60 s with jitter, counted once per reconcile.
* `Stop(cause)`: nothing will change until the object does (invalid spec).
* `Part(seconds)`: a fast pass ended; timers stay, an owed full pass is due after `seconds` (spec/protocols.md 3).

`progress` says that the pass changed something (a write was made): such runs are free of the hot-loop allowance.
`summary` is one short sentence for Flower and the log: "allocated 3, created 2".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    summary: str = ""
    progress: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Outcome):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class After(Outcome):
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry(Outcome):
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Outcome):
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Outcome):
    seconds: float = 0.25
