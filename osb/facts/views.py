"""The four views: all input of a decision, `now` included. Gathered by `osb.reconcile.gather`, read by
`osb.decide`.
"""

from __future__ import annotations

from osb.facts.boxview import BatchView, SnapshotView
from osb.facts.poolview import PoolView, ServeView

__all__ = ["BatchView", "PoolView", "ServeView", "SnapshotView"]
