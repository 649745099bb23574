"""What a process says when it starts: a Redis that must not be trusted, settings that are wrong for some work only.

In: a `Store`, settings. Out: one warning a problem, or ConfigError for a Redis that would lose or refuse what we write:
better no controller than one whose locks vanish at night. A setting that no process can start with is `osb.config`'s.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from osb.config import Settings, masked_url
from osb.decide.snapsource import option_problems
from osb.errors import ConfigError, InvalidInput, StoreDown
from osb.obs.log import get_logger
from osb.reconcile.snapshot import options_of
from osb.store.checks import check
from osb.store.client import Store, connect

log = get_logger("settings")


def problems(settings: Settings) -> list[InvalidInput]:
    """Settings that make snapshots fail although everything else works."""
    return option_problems(options_of(settings))


def tell_problems(settings: Settings) -> None:
    for problem in problems(settings):
        log.warning("a setting will make every snapshot fail", setting=problem.field, problem=problem.message)


def _warn(text: str, fix: str) -> None:
    log.warning(f"Redis: {text}", fix=fix)


def trust(store: Store, url: str, *, warn: Callable[[str, str], None] = _warn) -> None:
    """Look at the server once, before anything is written. Raises ConfigError with the remedy, StoreDown when away."""
    store.queue.now_ms()  # away is no finding: whoever waits for Redis goes on waiting
    for finding in check(store):
        if finding.level == "fatal":
            raise ConfigError(f"Redis {masked_url(url)}: {finding.text}; {finding.fix}")
        warn(finding.text, finding.fix)


def trust_or_end(store: Store, url: str) -> None:
    """`trust` for processes of Celery, which would catch the exception and go on: exit code 2 from any thread."""
    try:
        trust(store, url)
    except ConfigError as error:
        log.error("this process ends", error=str(error))
        os._exit(2)


def first_look(settings: Settings, name: str) -> bool:
    """Before Celery connects: end for a Redis that must not be trusted, say what to do about one that is away.

    True when it was there. Its connection is closed again, as a process may fork afterwards.
    """
    try:
        store = connect(settings.redis_url, name=name)
    except StoreDown as down:
        log.warning(f"Redis cannot be reached, trying again: is it up at {masked_url(settings.redis_url)}, "
                    "and is REDIS_URL right?", error=str(down))  # fmt: skip
        return False
    try:
        trust_or_end(store, settings.redis_url)
        return True
    except StoreDown:
        return False
    finally:
        store.close()
