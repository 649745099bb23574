"""What `osb.apply` needs of a pass: `osb.reconcile.world.Pass` is one. Next: the writers in this package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from datetime import datetime
from typing import Any, Protocol, TypeVar

from osb.api.key import Key
from osb.config import Settings
from osb.errors import ApiError, OsbError
from osb.kube.client import Kube
from osb.kube.events import EventRecorder
from osb.obs.deadline import bound
from osb.store.client import Store
from osb.store.forward import Forwarder

T = TypeVar("T")
R = TypeVar("R")


class Hand(Protocol):
    """The writing hand of one pass. `check` raises when it must not write any more; call it before each write."""

    @property
    def key(self) -> Key: ...
    @property
    def token(self) -> str: ...
    @property
    def store(self) -> Store: ...
    @property
    def kube(self) -> Kube: ...
    @property
    def forward(self) -> Forwarder: ...
    @property
    def events(self) -> EventRecorder: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def writers(self) -> ThreadPoolExecutor: ...
    @property
    def claimers(self) -> ThreadPoolExecutor: ...
    @property
    def meanwhile(self) -> Callable[[], None] | None: ...
    @property
    def step(self) -> Callable[[str], None]: ...
    def check(self) -> None: ...
    def now(self) -> datetime: ...


def in_parallel(hand: Hand, work: Callable[[T], R], items: Iterable[T], *, urgent: bool = False) -> list[R | ApiError]:
    """`work` of every item by the process's write threads, in order; an ApiError takes its item's place.

    One item runs in the calling thread: a thread hop costs more than it saves. Anything but an ApiError (a lost
    token, a passed deadline) is raised after all have ended. `urgent` work (what a user waits for) has threads of its
    own, so that it never queues behind refills and recycling; while other work is on its way the calling thread asks
    `hand.meanwhile` whether something urgent came in.
    """

    def one(item: T) -> R | ApiError:
        hand.check()
        try:
            return work(item)
        except ApiError as error:
            return error

    todo: Sequence[T] = list(items)
    if len(todo) < 2:
        return [one(item) for item in todo]
    threads = hand.claimers if urgent else hand.writers
    futures = [threads.submit(bound(one), item) for item in todo]
    results: list[R | ApiError] = []
    failed = None if urgent else _meanwhile(hand, futures)
    for future in futures:
        error = future.exception()
        if error is not None:
            failed = failed or error
        else:
            results.append(future.result())
    if failed is not None:
        raise failed
    return results


def _meanwhile(hand: Hand, futures: Sequence[Future[Any]]) -> BaseException | None:
    """Wait for all futures; after each that ends, ask `hand.meanwhile` to look for what is urgent.

    Returns the first OsbError that this raised (then it is not asked again), None when there was none.
    """
    failed: BaseException | None = None
    for _ in as_completed(futures) if hand.meanwhile is not None else ():
        if hand.meanwhile is None or failed is not None:
            continue
        try:
            hand.meanwhile()
        except OsbError as error:
            failed = error
    return failed
