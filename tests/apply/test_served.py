"""Statuses under CRDs that are older than this controller."""

from __future__ import annotations

from typing import Any

from osb.api import names
from osb.api.crds import crds
from osb.apply.served import ANYTHING, CRD_OF, accepted_by, fitted
from osb.errors import Unavailable


class Server:
    """Answers reads of CRDs, and counts them."""

    def __init__(self, *found: dict[str, Any]) -> None:
        self.found = {crd["metadata"]["name"]: crd for crd in found}
        self.reads = 0

    def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any]:
        self.reads += 1
        if name not in self.found:
            raise Unavailable("no answer")
        return self.found[name]


def ours(kind: str) -> dict[str, Any]:
    return next(crd for crd in crds() if crd["metadata"]["name"] == CRD_OF[kind])


def older(kind: str) -> dict[str, Any]:
    """As the reference's: without our condition types, and without what we added to the status."""
    crd = ours(kind)
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    types = status["conditions"]["items"]["properties"]["type"]
    types["enum"] = [name for name in types["enum"] if name in names.BOX_CONDITIONS_REFERENCE]
    return crd


def conditions(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "message": text} for kind, text in pairs]}


STATUS = conditions((names.PROGRESSING, "being created"), (names.SPEC_INVALID, "poolRef: bad"))


def test_our_own_crds_take_everything() -> None:
    kube: Any = Server(ours("batchsandbox"))
    assert fitted(kube, "batchsandbox", STATUS) == STATUS
    accepted = accepted_by(ours("batchsandbox"))
    assert accepted.types is not None and set(names.BOX_CONDITIONS) <= accepted.types


def test_a_type_that_the_server_does_not_know_is_told_in_progressing() -> None:
    kube: Any = Server(older("batchsandbox"))
    (left,) = fitted(kube, "batchsandbox", STATUS)["conditions"]
    assert left["message"] == "being created; SpecInvalid: poolRef: bad"


def test_members_that_the_server_would_prune_are_not_written_again_and_again() -> None:
    crd = ours("pool")
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del status["waiting"], status["conditions"]
    kube: Any = Server(crd)
    assert fitted(kube, "pool", {"total": 1, "waiting": 2, "conditions": []}) == {"total": 1}


def test_the_crd_is_read_once() -> None:
    server = Server(ours("batchsandbox"))
    kube: Any = server
    for _ in range(5):
        fitted(kube, "batchsandbox", STATUS)
    assert server.reads == 1


def test_a_crd_that_cannot_be_read_restricts_nothing() -> None:
    kube: Any = Server()
    assert fitted(kube, "batchsandbox", STATUS) == STATUS


def test_a_schema_that_says_nothing_restricts_nothing() -> None:
    assert accepted_by({"spec": {"versions": [{"name": names.VERSION, "schema": {}}]}}) == ANYTHING
