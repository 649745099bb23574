"""The installation's Lease against a server that keeps one object with versions, and a foreign holder."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from osb.errors import NotFound, Refused
from osb.kube.lease import LAST_RENEWED, NAME, InstallationLease
from tests.doubles.http_fault import json, status

PATH = f"/apis/coordination.k8s.io/v1/namespaces/home/leases/{NAME}"


class Server:
    """One Lease with optimistic locking."""

    def __init__(self, lease=None):
        self.lease = lease
        self.version = 10

    def __call__(self, request):
        if request.method == "GET":
            return json(self.lease) if self.lease else status(404, "NotFound")
        body = request.json
        if request.method == "POST" and self.lease:
            return status(409, "AlreadyExists")
        if request.method == "PUT" and body["metadata"]["resourceVersion"] != str(self.version):
            return status(409, "Conflict")
        self.store(body)
        return json(self.lease)

    def store(self, body):
        self.version += 1
        self.lease = body | {"metadata": body["metadata"] | {"resourceVersion": str(self.version)}}

    def foreign(self, holder="go_1234", **spec):
        self.store(
            {
                "metadata": {"name": NAME},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15} | spec,
            }
        )


class Clocks:
    def __init__(self):
        self.mono = 100.0
        self.wall = datetime(2026, 1, 1, tzinfo=UTC)

    def advance(self, seconds):
        self.mono += seconds
        self.wall += timedelta(seconds=seconds)


@pytest.fixture
def held(serving):
    def make(server, *, clocks=None, installation="here"):
        _, kube = serving(server)
        clocks = clocks or Clocks()
        settings = kube_settings(installation)
        return InstallationLease(kube, settings, clock=lambda: clocks.mono, wall=lambda: clocks.wall)

    return make


def kube_settings(installation):
    from osb.config import Settings

    return Settings(installation=installation, pod_namespace="home")


def test_a_free_lease_is_taken_renewed_and_given_up(held):
    server, clocks = Server(), Clocks()
    lease = held(server, clocks=clocks)

    assert lease.acquire_or_renew()
    assert server.lease["spec"]["holderIdentity"] == "osb_here"
    assert server.lease["spec"]["leaseDurationSeconds"] == 15
    first = server.lease["spec"]

    clocks.advance(5)
    assert lease.acquire_or_renew()
    assert server.lease["spec"]["renewTime"] > first["renewTime"]
    assert server.lease["spec"]["acquireTime"] == first["acquireTime"]
    assert server.lease["spec"]["leaseTransitions"] == 0

    lease.release()
    assert server.lease["spec"]["holderIdentity"] == ""


def test_all_processes_of_an_installation_share_it(held):
    server = Server()
    first, second = held(server), held(server)
    assert first.acquire_or_renew()
    assert second.acquire_or_renew()
    assert first.acquire_or_renew()


def test_another_holder_keeps_it_as_long_as_it_renews(held):
    server, clocks = Server(), Clocks()
    server.foreign()
    lease = held(server, clocks=clocks)
    for _ in range(5):
        assert not lease.acquire_or_renew()
        assert lease.holder() == "go_1234"
        clocks.advance(10)
        server.foreign(renewTime=str(clocks.mono))


def test_a_holder_that_stopped_renewing_is_followed_after_its_duration_as_we_saw_it(held):
    # Given a foreign record whose clock is far in the past: that proves nothing
    server, clocks = Server(), Clocks()
    server.foreign(renewTime="2001-01-01T00:00:00.000000Z", leaseTransitions=3)
    lease = held(server, clocks=clocks)
    assert not lease.acquire_or_renew()

    # When it does not change for its duration while we look
    clocks.advance(14)
    assert not lease.acquire_or_renew()
    clocks.advance(1)

    # Then it is ours
    assert lease.acquire_or_renew()
    assert server.lease["spec"]["leaseTransitions"] == 4


def test_a_released_lease_is_taken_at_once(held):
    server = Server()
    server.foreign(holder="")
    assert held(server).acquire_or_renew()


def test_a_lost_race_is_not_an_error(held):
    server = Server()
    server.foreign(holder="")
    lease = held(server)
    original = lease._kube.get

    def read_then_be_overtaken(*args):
        answer = original(*args)
        if not server.lease["spec"]["holderIdentity"]:
            server.foreign(holder="faster")
        return answer

    lease._kube.get = read_then_be_overtaken
    assert not lease.acquire_or_renew()
    assert lease.holder() == "faster"


def test_only_its_holder_releases_it(held):
    server = Server()
    server.foreign()
    held(server).release()
    assert server.lease["spec"]["holderIdentity"] == "go_1234"


def test_a_missing_permission_names_the_rule_and_the_way_out(held):
    lease = held(lambda request: status(403, "Forbidden", "no"))
    with pytest.raises(Refused, match=r"get, create, update on leases.*namespace home.*--no-lease"):
        lease.acquire_or_renew()


def test_a_missing_namespace_is_said(held):
    lease = held(lambda request: status(404, "NotFound", 'namespaces "home" not found'))
    with pytest.raises(NotFound, match="home"):
        lease.acquire_or_renew()


def test_how_long_nobody_of_ours_watched_is_kept_on_the_lease(held):
    server, clocks = Server(), Clocks()
    lease = held(server, clocks=clocks)
    assert lease.unwatched_since() == math.inf
    lease.acquire_or_renew()
    clocks.advance(59)
    assert lease.unwatched_since() is None
    clocks.advance(10)
    assert lease.unwatched_since() == 69


def test_a_foreign_holder_does_not_count_as_watching(held):
    server, clocks = Server(), Clocks()
    server.foreign()
    assert held(server, clocks=clocks).unwatched_since() == math.inf
    server.lease["metadata"]["annotations"] = {LAST_RENEWED: "nonsense"}
    assert held(server, clocks=clocks).unwatched_since() == math.inf
