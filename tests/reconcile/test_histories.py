"""Random histories: whatever happens in whatever order, the invariants hold after every pass and the end is at rest.

Each history has its number, so a failure can be played again: `WALKS_FROM=17 WALKS=1`. More of them: `WALKS=500`.
People get others each time, CI the same ones: there a failure is the change's, not chance's.
"""

from __future__ import annotations

import os
import time

import pytest

from osb.kube.client import Kube
from osb.sim import SimCluster
from osb.store.client import Store
from tests.doubles.passworld import Passes
from tests.doubles.stepping import Stepping
from tests.doubles.walk import Walk

WALKS = int(os.environ.get("WALKS", "0"))  # 0: as many as fit into the time
FROM = int(os.environ.get("WALKS_FROM", "1" if os.environ.get("OSB_TEST_FIXED") else str(int(time.time()) * 100)))
SECONDS = 15.0
LENGTH = 25


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("asked", [False, True], ids=["any pass", "asked passes"])
def test_no_history_breaks_an_invariant_and_each_comes_to_rest(
    store: Store, client: Kube, simulated: SimCluster, asked: bool
) -> None:
    """With asked passes only, rest means too that no pass would do anything: whoever could be served has asked."""
    end, number = time.monotonic() + SECONDS, FROM
    while number < FROM + WALKS if WALKS else time.monotonic() < end:
        store.redis.flushall()
        passes = Passes(store, client)
        walk = Walk(Stepping(passes, simulated), number, asked=asked)
        try:
            walk.steps(LENGTH)
            if asked:
                walk.rests()
            walk.end()
        except AssertionError as error:
            lines = "\n".join(walk.told)
            raise AssertionError(f"history {number}: {error}\nits events:\n{lines}") from error
        finally:
            simulated.clear_faults()
            passes.close()
        number += 1
    assert number > FROM
