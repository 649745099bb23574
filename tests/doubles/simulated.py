"""A client of a simulated API server that knows our kinds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from osb.config import Settings
from osb.kube.client import Kube, connect
from osb.kube.install import install_crds, make_namespace
from osb.sim import SimCluster


@contextmanager
def client_of(sim: SimCluster, *namespaces: str, pool: int = 16) -> Iterator[Kube]:
    """The client, once our definitions and these namespaces are there. `pool` is the number of its connections."""
    with closing(connect(Settings(kubeconfig=str(sim.kubeconfig)), pool=pool)) as kube:
        install_crds(kube)
        for name in namespaces:
            make_namespace(kube, name)
        yield kube
