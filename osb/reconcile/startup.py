"""What a worker says about its settings when it starts: not wrong enough to refuse work, wrong enough to be told once.

In: settings. Out: one warning a problem. A setting that no process can start with is `osb.config`'s to refuse.
"""

from __future__ import annotations

from osb.config import Settings
from osb.decide.snapsource import option_problems
from osb.errors import InvalidInput
from osb.obs.log import get_logger
from osb.reconcile.snapshot import options_of

log = get_logger("settings")


def problems(settings: Settings) -> list[InvalidInput]:
    """Settings that make snapshots fail although everything else works."""
    return option_problems(options_of(settings))


def tell_problems(settings: Settings) -> None:
    for problem in problems(settings):
        log.warning("a setting will make every snapshot fail", setting=problem.field, problem=problem.message)
