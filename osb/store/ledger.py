"""The ledger: who holds which pod of one pool, in Redis (spec/protocols.md 4).

In: proposals of a pass that holds the pool's token. Out: exactly what was asked, or nothing; `Fenced` when
the token is not the pool's current one, `LedgerNotReady` when this ledger may not be believed (missing,
foreign UID, other boot of Redis, being rebuilt, other epoch). Every change is made by one script that
checks all of that itself. The durable record is the sandbox's `alloc-status` annotation; a lost ledger is
rebuilt from those (`osb.reconcile.rebuild`).

Entries change state only as the table in lua/ledger_move_v1.lua says; nothing here frees a pod because a
reading did not show it. Next: `osb.apply.allocation` writes the record for what `allocate` promised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import redis

from osb.errors import Fenced, LedgerNotReady
from osb.store import keys, ledger_types
from osb.store.ledger_types import (
    STATES,
    Former,
    Grant,
    LedgerEntry,
    LedgerMeta,
    LedgerState,
    Move,
    Proof,
    Taken,
)
from osb.store.scripts import Arg, Scripts, redis_errors

COMMIT_LIMIT = 2000  # entries in one commit, about 26 ms of Redis' time; above, parts are put aside first
SLOTS_AT_ONCE = 64

_PARTS = ("meta", "pods", "by", "avail", "todo", "count")


class Ledger:
    """The ledger of pool `namespace/pool`. Thread-safe; holds nothing itself."""

    def __init__(self, client: redis.Redis, scripts: Scripts, namespace: str, pool: str) -> None:
        self._redis = client
        self._scripts = scripts
        self.member = f"{namespace}/{pool}"
        self._keys = (
            keys.queue("pool", "tok"),
            *(keys.ledger(self.member, part) for part in _PARTS),
            keys.RANK,
            keys.LEDGERS,
        )
        self._new = keys.ledger(self.member, "new")

    # -- looks, not fenced -----------------------------------------------------------------------------

    def meta(self) -> LedgerMeta:
        return self.state().meta

    def state(self, *, entries: bool = False) -> LedgerState:
        """Head, counts and unfinished pods at one moment; with `entries` all of them too (10,000: about 40 ms)."""
        reply = self._scripts.call("ledger_read_v1", self._keys, (self.member, "entries" if entries else ""))
        return ledger_state(reply)

    def entries(self) -> dict[str, LedgerEntry]:
        """Every entry by pod name. A pod without entry is unknown, never free."""
        with redis_errors(f"read the ledger of {self.member}"):
            raw: Mapping[bytes, bytes] = self._redis.hgetall(keys.ledger(self.member, "pods"))
        return {pod.decode(): ledger_types.parse(value) for pod, value in raw.items()}

    def holders(self, pods: Sequence[str]) -> dict[str, LedgerEntry]:
        """The entries of these pods; pods without one are left out."""
        if not pods:
            return {}
        with redis_errors(f"read the ledger of {self.member}"):
            raw = self._redis.hmget(keys.ledger(self.member, "pods"), list(pods))
        return {pod: ledger_types.parse(value) for pod, value in zip(pods, raw, strict=True) if value}

    def of_box(self, box_uid: str, slots: int = 0) -> dict[int, tuple[str, LedgerEntry]]:
        """Slot -> (pod, entry) of one sandbox, without a scan. `slots`: how many it may have at least.

        Slots are looked up 64 at a time until all of `slots` and one empty block beyond were seen.
        """
        found: dict[int, str] = {}
        start, empty = 0, False
        with redis_errors(f"read the ledger of {self.member}"):
            while start < slots or not empty:
                block = range(start, start + SLOTS_AT_ONCE)
                raw = self._redis.hmget(keys.ledger(self.member, "by"), [f"{box_uid}/{slot}" for slot in block])
                hits = {slot: pod.decode() for slot, pod in zip(block, raw, strict=True) if pod}
                found.update(hits)
                start, empty = start + SLOTS_AT_ONCE, not hits
        entries = self.holders(list(found.values()))
        return {slot: (pod, entries[pod]) for slot, pod in found.items() if pod in entries}

    def todo(self) -> dict[str, int]:
        """Pods whose entry is unfinished business -> ms since when, oldest first."""
        return dict(self.state().todo)

    def counts(self) -> dict[str, int]:
        """Entries by state; every state is there."""
        return dict(self.state().counts)

    def available(self, limit: int = 200, *, start: int = 0) -> list[tuple[str, float]]:
        """Free and ready pods with their rank, best first."""
        if limit <= 0:
            return []
        with redis_errors(f"read the stock of {self.member}"):
            stock = self._redis.zrange(keys.ledger(self.member, "avail"), start, start + limit - 1, withscores=True)
        return [(pod.decode(), float(rank)) for pod, rank in stock]

    # -- changes, each fenced by its script ------------------------------------------------------------

    def allocate(self, proof: Proof, op: str, grants: Sequence[Grant]) -> Taken:
        """Promise exactly these free pods to exactly these slots, or change nothing.

        Safe to repeat with its `op`.
        """
        args: list[Arg] = [op]
        for grant in grants:
            args += (grant.pod, grant.pod_uid, grant.box_uid, grant.box, grant.slot)
        status, *rest = self._fenced("ledger_allocate_v1", proof, args)
        if status == b"ok":
            seqs = {grant.pod: int(seq) for grant, seq in zip(grants, rest, strict=True)}
            return Taken(True, seqs=seqs)
        pods, slots = rest
        return Taken(False, tuple(pod.decode() for pod in pods), tuple(_slot(by) for by in slots))

    def move(self, proof: Proof, moves: Sequence[Move]) -> list[bool]:
        """Carry out each move whose entry is exactly as named; False where it was not, and stays as it is."""
        if not moves:
            return []
        args: list[Arg] = []
        for m in moves:
            args += (m.what, m.pod, m.pod_uid, m.from_state, m.box_uid, m.target, m.policy)
        return [done == 1 for done in self._fenced("ledger_move_v1", proof, args)[1:]]

    def prove(self, proof: Proof, pod: str = "", *, pod_uid: str = "", state: str = "", box_uid: str = "") -> bool:
        """Rule 3 of spec/protocols.md: call it after a version was read and before a write uses that version.

        Raises Fenced or LedgerNotReady when the pass may not write; False when the entry has moved on.
        Without a pod only the run itself is proved.
        """
        return self.prove_all(proof, [(pod, pod_uid, state, box_uid)] if pod else [])

    def prove_all(self, proof: Proof, entries: Iterable[tuple[str, str, str, str]]) -> bool:
        """`prove` for several (pod, pod UID, state, sandbox UID) in one trip: True when all stand."""
        args = [part for entry in entries for part in entry]
        return all(stands == 1 for stands in self._fenced("ledger_prove_v1", proof, args)[1:])

    def intend(self, proof: Proof, maximum: int, names: Sequence[str]) -> bool:
        """Note names before their POST. Safe to repeat.

        False, and nothing noted, when the pool would exceed `maximum` entries (terminating pods count) or a name
        has an entry that is not `new`.
        """
        return bool(self._fenced("ledger_intend_v1", proof, [maximum, *names])[0] == b"ok")

    def begin_rebuild(self, proof: Proof, epoch: str) -> Former:
        """Nothing is served until `commit`. `proof.pool_uid` must have been read live. Raises Fenced."""
        reply = self._fenced("ledger_rebuild_v1", proof, (), epoch=epoch)
        uid, old_epoch, boot, seq, raw = reply[1:]
        entries = {pod.decode(): ledger_types.parse(value) for pod, value in _pairs(raw)}
        return Former(uid.decode(), old_epoch.decode(), boot.decode(), int(seq), entries)

    def commit(self, proof: Proof, epoch: str, entries: Mapping[str, LedgerEntry], *, seq: int = 0) -> None:
        """Replace everything by `entries` and be ready.

        Raises Fenced, or LedgerNotReady when this rebuild was overtaken (another epoch, builder or boot): stop,
        do not try again in this pass. `seq`: the next sequence number is above this and above every entry's and
        the former ledger's.
        """
        texts: list[Arg] = [part for pod, entry in entries.items() for part in (pod, ledger_types.text(entry))]
        parts = [texts[at : at + 2 * COMMIT_LIMIT] for at in range(0, len(texts), 2 * COMMIT_LIMIT)] or [[]]
        last: Sequence[Arg] = parts[0]
        if len(parts) > 1:
            for number, part in enumerate(parts):
                self._fenced("ledger_stage_v1", proof, [int(number == 0), *part], epoch=epoch, new=True)
            last = ()
        self._fenced("ledger_commit_v1", proof, [int(len(parts) > 1), seq, *last], epoch=epoch, new=True)

    def drop(self, uid: str, *, proof: Proof | None = None) -> bool:
        """Forget the ledger of a Pool that a live read confirmed to be gone. False when it is another UID's."""
        fence = proof or Proof(self.member, "", uid)
        fence = Proof(self.member, fence.token, uid)
        return bool(self._fenced("ledger_drop_v1", fence, (), new=True)[0] == b"ok")

    def _fenced(
        self, name: str, proof: Proof, args: Iterable[Arg], *, epoch: str | None = None, new: bool = False
    ) -> list[Any]:
        """Call a script with the proof in front; turn its refusals into errors."""
        if proof.member != self.member:
            raise ValueError(f"a proof for {proof.member} was shown to the ledger of {self.member}")
        head = (proof.member, proof.token, proof.pool_uid, proof.epoch if epoch is None else epoch)
        reply: list[Any] = self._scripts.call(name, (*self._keys, self._new) if new else self._keys, (*head, *args))
        if reply[0] == b"fenced":
            raise Fenced(f"the token of pool {self.member} is not the current one any more; nothing was changed")
        if reply[0] in (b"notready", b"refused"):
            raise LedgerNotReady(f"the ledger of pool {self.member} must be rebuilt for UID {proof.pool_uid}")
        return reply


def ledger_meta(raw: Sequence[bytes], boot_now: bytes) -> LedgerMeta:
    """The head from an HGETALL reply."""
    data = {key.decode(): value.decode() for key, value in _pairs(raw)}
    return LedgerMeta(
        uid=data.get("uid", ""),
        epoch=data.get("epoch", ""),
        boot=data.get("boot", ""),
        state=data.get("state", ""),
        seq=int(data.get("seq", 0)),
        boot_now=boot_now.decode(),
    )


def ledger_counts(raw: Sequence[bytes]) -> dict[str, int]:
    """Entries by state from an HGETALL reply; every state is there."""
    return {state: 0 for state in STATES} | {state.decode(): int(n) for state, n in _pairs(raw)}


def ledger_state(reply: Sequence[Any]) -> LedgerState:
    """The reply of ledger_read_v1."""
    boot, meta, count, todo, raw = reply
    return LedgerState(
        meta=ledger_meta(meta, boot),
        counts=ledger_counts(count),
        todo={pod.decode(): int(since) for pod, since in _pairs(todo)},
        entries={pod.decode(): ledger_types.parse(value) for pod, value in _pairs(raw)},
    )


def _pairs(flat: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _slot(by: bytes) -> tuple[str, int]:
    box_uid, _, slot = by.decode().rpartition("/")
    return box_uid, int(slot)
