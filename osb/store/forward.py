"""Move the mirror forward and enqueue what moved: the one door for watch events, lists and our own writes.

In: raw objects of one mirror kind. Per batch two trips to Redis: one reads the old entries and what routing
needs beside them, `osb.decide.route` computes the keys here, one script puts everything and marks the keys
dirty, object by object (spec/protocols.md 2, rule 1). Where two writers meet, the script answers `retry`
with the current entry, and only those objects are routed and put again. Next: the queue
(`osb.store.queue`), whose wake-ups that script published.

An object that our own code cannot read is left out and told once: it must not stop the stream of its kind.

Own writes are no news: `own` leaves the writer's own key out, but only if the write carried the version its
pass decided on; without one, the answer may contain somebody else's change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec

from osb.api import batchsandbox
from osb.api.key import BATCHSANDBOX, Key, of_member
from osb.decide.route import route as route_table
from osb.decide.route_raw import Context
from osb.errors import Gone
from osb.facts import index as facts_index
from osb.facts.adds import Add
from osb.facts.index import Entry
from osb.facts.pod import PodFact
from osb.facts.pod import decode as decode_pod
from osb.obs import unread
from osb.store import keys, published
from osb.store.mirror import Answer, Delete, MirrorEntry, Moved, Opening, Put, entry_of, parts
from osb.store.news import NEEDS, PODS, RECONCILED, Fact, context_of, endpoints, fact, later, newer, question, record

if TYPE_CHECKING:
    from osb.store.client import Store

R = TypeVar("R")
Object = dict[str, Any]
EntryOf = Callable[[str, Object], Entry]
Route = Callable[[str, Any, Any, Context], tuple[Add, ...]]

_ROUNDS = 20  # writers that meet on one object this often in a row are not writers but a fault


class Page(Protocol):
    """One page of a list, as `osb.kube` yields it."""

    @property
    def items(self) -> Sequence[Object]: ...
    @property
    def version(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PutSummary:
    """How many objects moved the mirror and how many were not newer. `unsynced`: list this kind again at
    once."""

    applied: int
    old: int
    unsynced: bool


@dataclass(frozen=True, slots=True)
class _Known:
    """What the mirror had when routing began: the entry it was computed from, and the rest of the context."""

    entry: MirrorEntry | None
    context: Context


@dataclass(slots=True)
class _Item:
    """One object on its way: what goes in, and the keys beside those of the table (a list after a loss)."""

    name: str
    version: str
    new: Fact | None
    entry: Entry | None = None  # of our own kinds made only when the object turns out to be news
    last: Fact | None = None  # of a deleted object: its last state, in case the mirror never had it
    known: _Known = _Known(None, Context())

    def state(self, kind: str) -> tuple[str, str]:
        return f"{kind}/{self.name}", self.version

    @property
    def old(self) -> bool:
        """The mirror has this version, or a newer one."""
        return self.known.entry is not None and not newer(self.version, self.known.entry.version)


class Forwarder:
    """`entry` and `route` are exchanged in tests only."""

    def __init__(self, store: Store, *, entry: EntryOf = facts_index.entry, route: Route = route_table) -> None:
        self._store = store
        self._entry = entry
        self._route = route

    def put(self, kind: str, objs: Sequence[Object], *, own: Key | None = None, versioned: bool = False) -> PutSummary:
        """Objects as the API server showed or answered them. `own` says that this is an answer to a write
        made under that key (so it proves nothing about the stream), `versioned` that the write carried a
        version."""
        total = PutSummary(0, 0, False)
        for part in parts(objs):
            items = self._items(kind, part)
            total = _sum(total, self._put(kind, items, _Rules(own, versioned)))
        return total

    def delete(self, kind: str, obj: Object, *, own: Key | None = None, versioned: bool = False) -> PutSummary:
        """An object that is gone, in its last state (its version is that of the deletion)."""
        items = self._items(kind, [obj])
        for item in items:
            item.last, item.new = item.new, None
        return self._delete(kind, items, _Rules(own, versioned), self._delete_call(kind, fresh=own is None))

    def relist(self, kind: str, pages: Iterable[Page]) -> str:
        """A complete list without resourceVersion; returns the version to watch from. Pages are asked for
        only after the list was opened here, so pass a generator.

        While the mirror is unknown every key is enqueued, class later and deep: its marks were lost with
        Redis. Raises Gone when Redis was lost meanwhile, or when the list is older than one before (the
        cluster's store was restored: the kind is forgotten and every ledger is distrusted): list again.
        """
        mirror = self._store.mirror
        opening = mirror.begin_list(kind)
        rules = _Rules(None, False, everything=not opening.known)
        seen: set[str] = set()
        version = ""
        for page in pages:
            version = page.version if not version or newer(version, page.version) else version
            for part in parts(page.items):
                seen.update(_name(obj) for obj in part)
                self._put(kind, self._items(kind, part), rules)
        if not version:
            raise Gone(f"the list of {kind} had no page")
        self._prune(kind, version, opening, seen, rules)
        answer = mirror.finish(kind, version, opening.epoch, floor=opening.floor)
        if answer == "older":
            mirror.reset(kind)
            raise Gone(f"{kind} is listed at {version}, before {opening.floor}: the cluster's store went back")
        if answer == "refused":
            raise Gone(f"the mirror of {kind} was lost during its list")
        return version

    # -- one batch -------------------------------------------------------------------------------------

    def _put(self, kind: str, items: list[_Item], rules: _Rules) -> PutSummary:
        def call(todo: Sequence[_Item]) -> Moved:
            puts = [_as_put(kind, item, self._adds(kind, item, rules)) for item in todo]
            return self._store.mirror.put(kind, puts, fresh=rules.own is None)

        items = self._look(kind, items, chained=True)
        stale = [item for item in items if item.old]
        news = [item for item in items if not item.old]
        summary = PutSummary(0, 0, False)
        if news:
            summary, late = self._rounds(kind, news, call)
            stale += late
        elif rules.own is None:
            # Most events are echoes of our own writes: a sign of life, no more.
            summary = PutSummary(0, 0, not self._store.mirror.touch(kind))
        summary = PutSummary(summary.applied, len(stale), summary.unsynced)
        if rules.everything and stale:
            self._store.queue.add(add for item in stale for add in self._adds(kind, item, rules))
        return summary

    def _delete_call(self, kind: str, *, fresh: bool) -> Callable[[list[Delete]], Moved]:
        return lambda deletes: self._store.mirror.delete(kind, deletes, fresh=fresh)

    def _delete(
        self, kind: str, items: list[_Item], rules: _Rules, send: Callable[[list[Delete]], Moved]
    ) -> PutSummary:
        def call(todo: Sequence[_Item]) -> Moved:
            return send(
                [
                    Delete(
                        name=item.name,
                        version=item.version,
                        expected=_version(item.known.entry),
                        adds=self._adds(kind, item, rules),
                    )
                    for item in todo
                ]
            )

        items = self._look(kind, items, chained=False)
        return self._rounds(kind, items, call)[0]

    def _prune(self, kind: str, version: str, opening: Opening, seen: set[str], rules: _Rules) -> None:
        mirror = self._store.mirror
        absent = [name for name in mirror.names(kind) if name not in seen]
        for part in parts(absent):
            items = [_Item(name, version, None) for name in part]
            summary = self._delete(kind, items, rules, lambda gone: mirror.prune(kind, version, opening.epoch, gone))
            if summary.unsynced:
                raise Gone(f"the mirror of {kind} was lost during its list")

    def _rounds(
        self,
        kind: str,
        items: list[_Item],
        call: Callable[[Sequence[_Item]], Moved],
    ) -> tuple[PutSummary, list[_Item]]:
        """Route, send; again for the objects that somebody else moved meanwhile. Also those found old."""
        applied, unsynced, stale, todo = 0, False, list[_Item](), items
        for _ in range(_ROUNDS):
            moved = call(todo)
            unsynced |= moved.unsynced
            again: list[_Item] = []
            for item, answer in zip(todo, moved.answers, strict=False):
                if answer.state == "retry":
                    again.append(_retried(item, answer))
                elif answer.state == "old":
                    stale.append(item)
                else:
                    applied += 1
            todo = again
            if not todo:
                break
        else:
            raise Gone(f"{len(todo)} objects of {kind} never stood still, e.g. {todo[0].name}")
        return PutSummary(applied, len(stale), unsynced), stale

    def _look(self, kind: str, items: list[_Item], *, chained: bool) -> list[_Item]:
        """Fill in what is known before; the second object of one name in a batch follows the first.

        Returns those that can be read. The others are read live by their own passes, which say what is wrong.
        """
        questions = [(item, unread.tried(*item.state(kind), question, kind, item.name, item.new)) for item in items]
        asked = [(item, question) for item, question in questions if question is not None]
        self._store.queue.add(add for item, question in questions if question is None for add in _own_key(kind, item))
        args: list[Any] = [NEEDS.get(kind, "none"), keys.index_prefix("batchsandbox"), keys.LEDGER]
        args += [msgspec.msgpack.encode(question) for _, question in asked]
        if not asked:
            return []
        reply = self._store.scripts.call("mirror_before_v1", (keys.mirror(kind, "doc"),), args)
        latest: dict[str, MirrorEntry] = {}
        found: list[_Item] = []
        for (item, _), (raw, extra) in zip(asked, reply, strict=True):
            entry = latest.get(item.name) or entry_of(raw)
            item.known = _Known(entry, context_of(kind, extra))
            if chained and not item.old:
                made = item.entry = item.entry or unread.tried(
                    *item.state(kind), self._entry, kind, cast(Object, item.new)
                )
                if made is None:
                    self._store.queue.add(_own_key(kind, item))
                    continue
                latest[item.name] = MirrorEntry(item.version, made.uid, made.doc)
            found.append(item)
        return found

    def _items(self, kind: str, objs: Iterable[Object]) -> list[_Item]:
        made = (unread.tried(*unread.state(kind, obj), self._item, kind, obj) for obj in objs)
        return [item for item in made if item is not None]

    def _item(self, kind: str, obj: Object) -> _Item:
        meta = obj["metadata"]
        # A version that is no number cannot be compared: "0" is never news, so the object is read live instead.
        text = str(meta.get("resourceVersion") or "")
        version = text if text.isdecimal() else "0"
        name = _name(obj)
        if kind not in PODS:
            return _Item(name, version, obj)
        entry = self._entry(kind, obj)
        return _Item(name, version, decode_pod(entry.doc), entry)

    def _adds(self, kind: str, item: _Item, rules: _Rules) -> tuple[Add, ...]:
        old = fact(kind, item.known.entry) or (item.last if item.new is None else None)
        if old is None and item.new is None:
            return ()
        context = unread.tried(*item.state(kind), self._judged, kind, item, old, rules) or item.known.context
        adds = self._routed(kind, item, old, context)
        if rules.everything:
            if item.new is not None:
                adds += self._routed(kind, item, None, context)
            return tuple(later(kind, item.name, adds))
        if rules.ours:
            return tuple(add for add in adds if add.key != rules.own or add.at_ms is not None)
        return adds

    def _routed(self, kind: str, item: _Item, old: Fact | None, context: Context) -> tuple[Add, ...]:
        """The keys of the table; of a change that it cannot judge the object's own key."""
        adds = unread.tried(*item.state(kind), self._route, kind, old, item.new, context)
        return _own_key(kind, item, "its change cannot be judged") if adds is None else adds

    def _judged(self, kind: str, item: _Item, old: Fact | None, rules: _Rules) -> Context:
        """Are the endpoints that changed those of the pods? Seldom asked: our own writes are left out, and known
        when their events come."""
        context, new = item.known.context, item.new
        if kind != BATCHSANDBOX or rules.ours or new is None or endpoints(old) == endpoints(new):
            return context
        if context.ledger_agrees and record(old) != record(new):
            return context  # a claim: record and endpoints in one patch. The most frequent of all, so no pods are read
        box = batchsandbox.parse(cast(Object, new))
        right = published.rightly(self._store.mirror, box, ledger_agrees=context.ledger_agrees)
        return replace(context, endpoints_agree=right)


def _own_key(kind: str, item: _Item, reason: str = "it cannot be mirrored") -> tuple[Add, ...]:
    return (Add(key=of_member(RECONCILED[kind], item.name), reason=reason),) if kind in RECONCILED else ()


def _name(obj: Object) -> str:
    meta = obj["metadata"]
    return f"{meta.get('namespace') or ''}/{meta['name']}"


@dataclass(frozen=True, slots=True)
class _Rules:
    """Whose write this is, and whether every key is to be enqueued whatever the table says."""

    own: Key | None
    versioned: bool
    everything: bool = False

    @property
    def ours(self) -> bool:
        """Nothing of somebody else's is in it: the writer decided on the version that it patched."""
        return self.own is not None and self.versioned


def _as_put(kind: str, item: _Item, adds: tuple[Add, ...]) -> Put:
    assert item.entry is not None
    pool = ""
    if kind == "poolpod" and isinstance(item.new, PodFact) and item.new.owner_kind == "Pool":
        pool = f"{item.new.namespace}/{item.new.owner_name}"
    return Put(
        name=item.name,
        version=item.version,
        uid=item.entry.uid,
        doc=item.entry.doc,
        indexes=item.entry.indexes,
        expected=_version(item.known.entry),
        pool=pool,
        rank=item.entry.rank if pool else None,
        adds=adds,
    )


def _retried(item: _Item, answer: Answer) -> _Item:
    item.known = _Known(answer.current, item.known.context)
    return item


def _version(entry: MirrorEntry | None) -> str:
    return entry.version if entry is not None else ""


def _sum(one: PutSummary, other: PutSummary) -> PutSummary:
    return PutSummary(one.applied + other.applied, one.old + other.old, one.unsynced or other.unsynced)
