"""What the fast pass of a pool reads, in as few trips as possible: Pool, ledger head, line, stock. Next: `serve`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import orjson

from osb.api import claims, names
from osb.api import pool as pools
from osb.api.pool import PoolSpec
from osb.api.revision import adopted
from osb.facts.ledger import FREE
from osb.facts.pod import PodFact
from osb.reconcile import gather
from osb.reconcile.gather import Box, Obj
from osb.reconcile.serve import Stock
from osb.reconcile.world import Pass
from osb.store import hot as hotpath
from osb.store.hot import HotLoad


@dataclass(frozen=True, slots=True)
class Load:
    """`ready`: the ledger is this Pool's and may be believed. `busy`: sandboxes with something to give back."""

    raw: Obj | None
    pool: PoolSpec | None
    ready: bool
    waiters: list[Box] = field(default_factory=list)
    available: list[PodFact] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)
    line: int = 0
    busy: int = 0
    ready_idle: int = 0
    epoch: str = ""

    def stock(self) -> Stock:
        assert self.pool is not None
        failing = next((c for c in self.pool.conditions
                        if c["type"] == names.CREATE_FAILING and c.get("status") == "True"), None)  # fmt: skip
        return Stock(
            pool=self.pool, revision=revision_of(self.pool), waiters=self.waiters, available=self.available,
            counts=self.counts, line=self.line, create_failing=str(failing.get("message")) if failing else "",
        )  # fmt: skip


def revision_of(pool: PoolSpec) -> str:
    """The template's revision in force, an adopted one considered."""
    return adopted(
        pool.template, annotation=pool.annotations.get(names.ADOPTED_REVISION), status=pool.status,
        generation=pool.generation,
    )  # fmt: skip


def load(p: Pass) -> Load:
    """Pool, ledger head, the first waiters of the line and as many ready idle pods as they ask for.

    By live reads when the mirror is not known or too old.
    """
    hot = hotpath.load(p.store, p.key, p.token, waiters=p.settings.serve_batch)
    if not hot.fresh(gather.STALE_MS) or hot.pool is None:
        return _live(p, hot)
    raw: Obj = orjson.loads(hot.pool.doc)
    pool = pools.parse(raw)
    waiters = gather.parsed(one.obj for one in hot.waiters)
    return Load(
        raw, pool, hot.ledger.ready and hot.ledger.uid == pool.uid, waiters, _stock(p, hot, waiters), hot.counts,
        hot.line, p.store.mirror.count("batchsandbox", "busy", p.key.member), hot.stock, hot.ledger.epoch,
    )  # fmt: skip


def newcomers(p: Pass, known: Collection[str]) -> Stock | None:
    """A stock for the sandboxes that joined the line since `known` was looked at.

    None when there are none, when the pool cannot serve now, and when a pass has had its fill (its ledger script
    must stay short).
    """
    if len(known) >= p.settings.serve_batch:
        return None
    line = hotpath.line(p.store, p.key, limit=p.settings.serve_batch)
    if all(member.rpartition("/")[2] in known for member in line):
        return None
    now = load(p)
    fresh = [box for box in now.waiters if box.spec.name not in known]
    if now.pool is None or now.pool.deleting is not None or not now.ready or not fresh:
        return None
    return replace(now.stock(), waiters=fresh)


def _stock(p: Pass, hot: HotLoad, waiters: list[Box]) -> list[PodFact]:
    """The loaded pods, and more of them when the waiters ask for more than one load brings."""
    wanted = sum(max(1, box.spec.replicas) for box in waiters)
    pods = list(hot.pods)
    if wanted > len(pods) and hot.stock > len(pods):
        pods += hotpath.more_pods(p.store, p.key, start=len(pods), count=wanted - len(pods))
    return [one.fact for one in pods]


def _live(p: Pass, hot: HotLoad) -> Load:
    """The same from the API server. The stock stays what the ledger has, with facts read live."""
    raw = gather.live(p, "pool", p.key.namespace, p.key.name)
    if raw is None:
        return Load(None, None, False)
    pool = pools.parse(raw)
    ready = hot.ledger.ready and hot.ledger.uid == pool.uid
    waiters = [box for box in gather.live_boxes(p, p.key.name) if claims.wants(box.spec, pool.uid)]
    free = {pod.name: pod for pod in gather.live_pods(p, "poolpod", pool.uid) if pod.offerable}
    entries = p.store.ledger(p.key.namespace, p.key.name).holders(list(free)) if free and ready else {}
    stock = [pod for name, pod in free.items() if name in entries and entries[name].state == FREE]
    busy = p.store.mirror.count("batchsandbox", "busy", p.key.member)
    return Load(raw, pool, ready, waiters, stock, hot.counts, len(waiters), busy, len(stock), hot.ledger.epoch)
