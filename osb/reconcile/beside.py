"""Serve beside a full pass: nobody waits for pods while the same pool is being recycled, scaled or rolled out.

In: the full pass, which asks between its steps and after each API write that ends. Out: newcomers of the waiting line
served at once by `osb.reconcile.serve`, on this pass's lease and token. What the full pass decided before stays safe:
each of its moves names the state it expects, and the ledger refuses the pods that were given away meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from osb.reconcile.poolload import Load, newcomers
from osb.reconcile.serve import Served, Stock, serve
from osb.reconcile.world import Pass
from osb.store.ledger_types import Proof

LOOK_SECONDS = 0.004  # between two looks at the line: about what one API write takes


@dataclass(slots=True)
class Beside:
    """Call it when there is a moment. `known`: names of sandboxes that were looked at; `served`: what came of it."""

    p: Pass
    proof: Proof
    known: set[str]
    served: list[Served] = field(default_factory=list)
    looked: float = field(default_factory=time.monotonic)

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self.looked < LOOK_SECONDS:
            return
        stock = newcomers(self.p, self.known)
        if stock is not None:
            self.known.update(box.spec.name for box in stock.waiters)
            self.served.append(serve(self.p, self.proof, stock, more=self._more))
        self.looked = time.monotonic()

    def _more(self, names: Collection[str]) -> Stock | None:
        self.known.update(names)
        return newcomers(self.p, self.known)


@contextmanager
def beside(p: Pass, proof: Proof, now: Load) -> Iterator[Beside]:
    """While this is open, `osb.apply.hand.in_parallel` finds the moments by itself."""
    one = Beside(p, proof, {box.spec.name for box in now.waiters})
    p.meanwhile = one
    try:
        yield one
    finally:
        p.meanwhile = None
