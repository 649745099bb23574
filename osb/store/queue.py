"""The work queue: which keys want a reconcile, who runs one, and when to look again.

In: `Add`s from `osb.decide.route` (whoever moved the mirror forward), tokens from workers, ticks from beat.
Out: wake-up messages on Celery's lists, published by the scripts themselves in the same step that marks a key
dirty; next stop: `workers.tasks`, which hands the key to `osb.reconcile.handle`.

Promise, per key: never two runs at once behind live leases; an event during a run means exactly one more
afterwards; many events collapse into one; nothing is lost when any process dies; an idle key leaves nothing behind
(spec/protocols.md 3). Every method raises `StoreDown`, after which it may be called again with the same arguments.
"""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal

import msgspec
import redis

from osb.api.key import RECYCLE, TASKS, Key, runnable
from osb.errors import InvalidInput
from osb.facts.adds import EVERY_POOL, EVERY_STAR, Add
from osb.store import keys
from osb.store.envelope import DEFAULT, checked_template, hand_message
from osb.store.scripts import Scripts, redis_errors

State = Literal["run", "busy", "clean", "early", "quarantined"]
How = Literal["done", "after", "retry", "stop", "part"]
What = Literal["dirty", "running", "due", "quarantined", "failing"]

LEASE_SECONDS: Final = 12.0  # of a run; renewed every 4 s by osb.store.lease
REASON_LIMIT: Final = 120
_ADDS_PER_CALL: Final = 500  # about 6 ms of Redis' time

_TICK_TTL_MS: Final = 600_000

_CLASSES: Final = {"later": 1, "now": 2}
_LISTED: Final = {"dirty": "dirty", "running": "run", "due": "due", "quarantined": "quar"}


@dataclass(frozen=True, slots=True)
class Begin:
    """Answer to `begin`. Only with state `run` may, and must, the caller go on and call `end` with its token.

    `deep`: a full pass is owed.
    `due_in_ms`: the pending timer, which may pay that debt later (-1: none, so a deep run must be a
      full pass now).
    `newly_quarantined`: this very call did it; tell people.
    """

    state: State
    deep: bool = False
    waited_ms: int = 0
    reason: str = ""
    due_in_ms: int = -1
    newly_quarantined: bool = False


@dataclass(frozen=True, slots=True)
class EndResult:
    """`ours` False: the lease had been lost, nothing was changed. `again`: dirty once more."""

    ours: bool
    again: bool
    wait_ms: int = -1
    failures: int = 0


@dataclass(frozen=True, slots=True)
class RescueResult:
    """What `rescue` brought back; `quarantined` are the keys it put into quarantine, to be told to people."""

    broken: int
    repeated: int
    promoted: int
    quarantined: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Sizes and ages (ms) of one kind's queue."""

    dirty_now: int
    dirty_later: int
    running: int
    due: int
    quarantined: int
    oldest_ms_now: int
    oldest_ms_later: int
    failing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """One key in the queue. `dirty_ms`: since when it asks for a run; `due_ms`, `quarantined_ms`: until then."""

    dirty_ms: int | None
    later: bool
    running: bool
    due_ms: int | None
    quarantined_ms: int | None
    failures: int
    crashes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Listed:
    """One key. `at_ms`: since when it is dirty, when its lease or wait ends, or its failures."""

    key: Key
    at_ms: int
    reason: str = ""


def new_token() -> str:
    """A fresh random token for one run; counters would match a frozen holder after a flush."""
    return uuid.uuid4().hex


def reason_text(text: str) -> str:
    """A reason as it may travel: one line, at most 120 characters, nothing that a repr must escape."""
    line = " ".join(text.split()).replace("'", "’").replace("\\", "/")
    return "".join(c for c in line if c.isprintable())[:REASON_LIMIT]


def wire(add: Add) -> list[str | int]:
    """An `Add` as the scripts take it (lua/queue_lib_v1.lua, q_adds); mirror_put carries the same form."""
    return [
        add.key.kind,
        add.key.member,
        _CLASSES[add.cls],
        int(add.deep),
        reason_text(add.reason),
        int(add.deletion),
        -1 if add.after is None else max(0, math.ceil(add.after * 1000)),
        -1 if add.at_ms is None else max(0, add.at_ms),
    ]


class WorkQueue:
    """One queue per kind, in one Redis. `dice` returns a float in 0..1 and is exchanged in tests only."""

    def __init__(self, client: redis.Redis, scripts: Scripts, *, dice: Callable[[], float] = random.random) -> None:
        self._redis = client
        self._scripts = scripts
        self._dice = dice

    def add(self, adds: Iterable[Add]) -> None:
        """Mark keys dirty, or keep their earliest due time; publish one wake-up for each that needs it.

        A key that no worker would take is left out: it would stay dirty for ever.
        """
        rest = (add for add in adds if add.key in (EVERY_POOL, EVERY_STAR) or runnable(add.key))
        while chunk := [wire(add) for add in islice(rest, _ADDS_PER_CALL)]:
            self._call("queue_add_v1", _seed(), msgspec.msgpack.encode(chunk))

    def begin(self, key: Key, token: str, *, hand: bool = False, task_id: str = "") -> Begin:
        """Start a run, or learn why not. Repeat an unclear call with the same token.

        `hand`: the message came without the wake-up header, so a person sent it: it counts as an event, once
        per `task_id`, and neither allowance nor quarantine holds it back.
        """
        if hand and not task_id:
            raise InvalidInput("task_id", "a hand-sent run needs its task id, so that a redelivery is recognised")
        return begun(self._call("queue_begin_v1", _seed(), key.kind, key.member, token, int(hand), task_id))

    def renew(self, key: Key, token: str) -> bool:
        """Prolong the lease to 12 s from now. False: it is not ours any more; write nothing more."""
        return self.renew_all([(key, token)])[0]

    def renew_all(self, leases: Sequence[tuple[Key, str]]) -> list[bool]:
        """`renew` for many leases in one trip."""
        if not leases:
            return []
        args = [part for key, token in leases for part in (key.kind, key.member, token)]
        return [kept == 1 for kept in self._call("queue_renew_v1", *args)]

    def end(
        self,
        key: Key,
        token: str,
        outcome: How,
        *,
        seconds: float = 0.0,
        progress: bool = False,
        deep_again: bool = False,
        staying: bool = False,
    ) -> EndResult:
        """End a run.

        `seconds`: the wait of after and part; the back-off of retry is made here, with ±20 % jitter.
        `deep_again`: the pass found work for a full pass: one is owed, `seconds` from now.
        `staying`: the caller begins again at once if the answer is `again`: no wake-up is sent, only marked as on
          its way, so that rescue sends it should the caller die first.
        """
        jitter = 0.8 + 0.4 * self._dice()
        wait = max(0, math.ceil(seconds * 1000))
        flags = (int(progress), int(deep_again), int(staying))
        args = (key.kind, key.member, token, outcome, wait, *flags, f"{jitter:.3f}")
        ours, again, wait_ms, failures = self._call("queue_end_v1", _seed(), *args)
        return EndResult(ours == 1, again == 1, wait_ms, failures)

    def due(self, kind: str, limit: int = 200) -> int:
        """Turn timers that have come into full passes; returns how many (= limit: call again)."""
        return int(self._call("queue_due_v1", _seed(), kind, limit))

    def rescue(self, kind: str, limit: int = 200) -> RescueResult:
        """Bring back runs whose worker vanished and wake-ups that nobody took.

        Keys that waited 30 s in class later are promoted to class now.
        """
        broken, repeated, promoted, quarantined = self._call("queue_rescue_v1", _seed(), kind, limit)
        found = (_shown(kind, member) for member in quarantined)
        return RescueResult(broken, repeated, promoted, tuple(key for key in found if runnable(key)))

    def set_tick(self) -> None:
        """The beat that acts is alive; workers run `due` and `rescue` themselves when it is silent."""
        self._scripts.call("stamp_set_v1", [keys.TICK], ["", _TICK_TTL_MS])

    def tick_age_ms(self) -> int | None:
        """How long ago the acting beat was alive; None when that was not within the last 10 minutes."""
        age = int(self._scripts.call("stamp_read_v1", [keys.TICK], [])[0])
        return None if age < 0 else age

    def stats(self, kind: str) -> QueueStats:
        return QueueStats(*self._call("queue_stats_v1", kind))

    def listing(self, kind: str, what: What, limit: int = 100) -> list[Listed]:
        """The first keys of one state, oldest or earliest first (failing: unordered)."""
        with redis_errors(f"list {what} keys of {kind}"):
            if what == "failing":
                pairs = islice(self._redis.hscan_iter(keys.queue(kind, "fail"), count=1000), limit)
                return [Listed(_shown(kind, name), int(n)) for name, n in pairs]
            found = self._redis.zrange(keys.queue(kind, _LISTED[what]), 0, limit - 1, withscores=True)
            names = [name for name, _ in found]
            why = self._redis.hmget(keys.queue(kind, "why"), names) if names else []
        return [
            Listed(_shown(kind, name), int(at), (reason or b"").decode(errors="replace"))
            for (name, at), reason in zip(found, why, strict=True)
        ]

    def forget(self, key: Key) -> bool:
        """Remove all that the queue knows of a key (an operator's tool); fences off a run in progress."""
        return bool(self._call("queue_forget_v1", key.kind, key.member))

    def send_hand(self, key: Key, reason: str = "") -> str:
        """Publish a task as a person would with `celery call`. Returns the task id, for `hand_seen`.

        It asks for one more run, without back-off or quarantine, never beside another run of the key.
        """
        task_id = str(uuid.uuid4())
        args = (key.namespace, key.name, reason_text(reason or "by hand"))
        queue = f"osb.{key.kind}" if key.kind in (RECYCLE, TASKS) else f"osb.{key.kind}.now"
        with redis_errors(f"send a task for {key}"):
            template = self._redis.hget(keys.ENVELOPE, keys.ENVELOPE_FIELD) or DEFAULT
            message = hand_message(template, kind=key.kind, queue=queue, task_id=task_id, args=args)
            self._redis.lpush(queue, message)
        return task_id

    def hand_seen(self, kind: str, task_id: str) -> bool:
        """A worker has taken the hand-sent task."""
        with redis_errors("look for a hand-sent task"):
            return bool(self._redis.exists(f"{keys.queue(kind, 'hand')}:{task_id}"))

    def hand_tell(self, kind: str, task_id: str, outcome: str) -> None:
        """Note how the hand-sent task ended, for as long as it is known to have been seen."""
        with redis_errors("note a hand-sent task's outcome"):
            self._redis.set(f"{keys.queue(kind, 'hand')}:{task_id}", f"={outcome}"[:500], xx=True, keepttl=True)

    def hand_outcome(self, kind: str, task_id: str) -> str:
        """What its worker told, "" while it has not."""
        with redis_errors("look for a hand-sent task's outcome"):
            text = (self._redis.get(f"{keys.queue(kind, 'hand')}:{task_id}") or b"").decode(errors="replace")
        return text[1:] if text.startswith("=") else ""

    def now_ms(self) -> int:
        """Redis' clock, which all times of the queue are in."""
        with redis_errors("read the clock"):
            seconds, micros = self._redis.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def peek(self, key: Key) -> Peek:
        """All that the queue knows of one key, for people."""
        with redis_errors(f"look at {key}"):
            pipe = self._redis.pipeline(transaction=False)
            for part in ("dirty", "later", "run", "due", "quar"):
                pipe.zscore(keys.queue(key.kind, part), key.member)
            for part in ("fail", "crash", "why"):
                pipe.hget(keys.queue(key.kind, part), key.member)
            pipe.time()
            *times, fail, crash, why, (seconds, micros) = pipe.execute()
        now = seconds * 1000 + micros // 1000
        dirty, later, run, due, quar = (None if at is None else int(at) - now for at in times)
        return Peek(
            dirty_ms=None if dirty is None else max(0, -dirty), later=later is not None, running=(run or 0) > 0,
            due_ms=due, quarantined_ms=quar, failures=int(fail or 0), crashes=int(crash or 0),
            reason=(why or b"").decode(),
        )  # fmt: skip

    def use_envelope(self, template: bytes) -> None:
        """Publish wake-ups in this shape from now on, in every process (osb.store.envelope).

        Raises ConfigError when `template` is not one.
        """
        with redis_errors("store the envelope"):
            self._redis.hset(keys.ENVELOPE, keys.ENVELOPE_FIELD, checked_template(template))

    def _call(self, name: str, *args: str | bytes | int) -> Any:
        return self._scripts.call(name, (), args)


def begun(reply: Sequence[Any]) -> Begin:
    """The reply of q_begin as a `Begin`; for scripts that begin and load in one trip too."""
    state, deep, waited, reason, due_in, fresh = reply
    return Begin(state.decode(), deep == 1, int(waited), reason.decode(), int(due_in), fresh == 1)


def _shown(kind: str, member: bytes) -> Key:
    """The key of a member, unchecked: what somebody else put there must be seen, not stop the list."""
    namespace, _, name = member.decode(errors="replace").partition("/")
    return Key(kind, namespace, name)


def _seed() -> str:
    return str(uuid.uuid4())
