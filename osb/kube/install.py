"""Makes a cluster of our own ready for the controller: the demo's, the benchmark's, the tests'.

A cluster with users gets the definitions from its administrator: the chart, or `osbctl crds`.
"""

from __future__ import annotations

import contextlib

from osb.api.crds import crds
from osb.errors import AlreadyExists, NotFound
from osb.kube.client import Kube


def install_crds(kube: Kube) -> None:
    """Create our three definitions; one that exists gets the spec of this version."""
    for body in crds():
        try:
            kube.create("crd", None, body)
        except AlreadyExists:
            kube.patch("crd", None, body["metadata"]["name"], {"spec": body["spec"]})


def make_namespace(kube: Kube, name: str) -> None:
    """Create a namespace that may exist already."""
    with contextlib.suppress(AlreadyExists):
        kube.create("namespace", None, {"metadata": {"name": name}})


def serves_our_kinds(kube: Kube) -> bool:
    """Whether the API server knows them: a real one does only a while after `install_crds`."""
    try:
        for kind in ("pool", "batchsandbox", "snapshot"):
            kube.all(kind)
    except NotFound:
        return False
    return True
