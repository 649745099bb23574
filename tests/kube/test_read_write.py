"""What reads and writes put on the wire, and what makes a list worth something."""

from __future__ import annotations

import pytest

from osb.errors import Gone
from osb.kube.client import Kube
from osb.kube.resources import RES
from tests.doubles.http_fault import json, status


def page(names, version="7", token=""):
    items = [{"metadata": {"name": name}} for name in names]
    return json({"kind": "PodList", "metadata": {"resourceVersion": version, "continue": token}, "items": items})


def test_a_list_comes_in_pages_of_one_version_with_the_kind_on_every_item(serving):
    server, kube = serving([page("ab", token="t1"), page("c")])
    pages = list(kube.list("pod", "n", labels="x=y", fields="spec.nodeName=z", limit=2))
    assert [[item["metadata"]["name"] for item in one.items] for one in pages] == [["a", "b"], ["c"]]
    assert {one.version for one in pages} == {"7"}
    assert pages[0].items[0]["kind"] == "Pod"
    assert pages[0].items[0]["apiVersion"] == "v1"
    assert server.requests[0].path == (
        "/api/v1/namespaces/n/pods?limit=2&labelSelector=x%3Dy&fieldSelector=spec.nodeName%3Dz"
    )
    assert server.requests[1].path.endswith("&continue=t1")


def test_pages_of_two_versions_are_no_list(serving):
    _, kube = serving([page("a", version="7", token="t"), page("b", version="8")])
    with pytest.raises(Gone, match="7 and 8"):
        list(kube.list("pod"))


def test_a_continue_token_that_expired_midway_is_gone_and_all_starts_over_once(serving):
    server, kube = serving([page("a", token="t"), status(410, "Expired"), page("ab", version="9")])
    items, version = kube.all("pod")
    assert [item["metadata"]["name"] for item in items] == ["a", "b"]
    assert version == "9"
    assert len(server.requests) == 3


def test_a_list_that_is_lost_twice_is_gone(serving):
    _, kube = serving(lambda request: status(410, "Expired") if "continue" in request.path else page("a", token="t"))
    with pytest.raises(Gone):
        kube.all("pod")


@pytest.mark.parametrize(
    ("content", "body", "media"),
    [
        ("merge", {"a": None}, "application/merge-patch+json"),
        ("strategic", {"a": 1}, "application/strategic-merge-patch+json"),
        ("json", [{"op": "remove", "path": "/a"}], "application/json-patch+json"),
    ],
)
def test_a_patch_is_sent_under_its_own_media_type(serving, content, body, media):
    server, kube = serving([json({})])
    kube.patch("pod", "n", "p", body, content=content)
    assert server.requests[0].headers["Content-Type"] == media
    assert server.requests[0].json == body


@pytest.mark.parametrize(("content", "body"), [("merge", []), ("json", {})])
def test_a_patch_whose_body_does_not_fit_its_type_is_refused_before_sending(serving, content, body):
    server, kube = serving([json({})])
    with pytest.raises(TypeError):
        kube.patch("pod", "n", "p", body, content=content)
    assert server.requests == []


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"finalizers": ["a"]}},
        {"metadata": {"ownerReferences": []}},
        {"status": {"conditions": []}},
    ],
)
def test_a_patch_that_replaces_a_list_needs_the_version_it_was_computed_from(serving, body):
    server, kube = serving([json({})])
    with pytest.raises(ValueError, match="resourceVersion"):
        kube.patch("pod", "n", "p", body)
    body["metadata"] = body.get("metadata", {}) | {"resourceVersion": "5"}
    kube.patch("pod", "n", "p", body)
    assert len(server.requests) == 1


def test_status_goes_to_the_status_subresource(serving):
    server, kube = serving([json({})])
    kube.patch("batchsandbox", "n", "b", {"status": {"ready": 1}}, sub="status")
    path = "/apis/sandbox.opensandbox.io/v1alpha1/namespaces/n/batchsandboxes/b/status"
    assert (server.requests[0].method, server.requests[0].path) == ("PATCH", path)


def test_a_delete_carries_its_preconditions_in_the_body(serving):
    server, kube = serving([json({})])
    kube.delete("pod", "n", "p", uid="u", version="3", grace=0, propagation="Background")
    assert server.requests[0].json == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u", "resourceVersion": "3"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }


def test_names_from_annotations_cannot_leave_their_path():
    assert Kube.namespaced_path("pod", "n", "../../secrets/x") == "/api/v1/namespaces/n/pods/..%2F..%2Fsecrets%2Fx"


def test_an_object_in_a_namespace_needs_one():
    with pytest.raises(ValueError, match="namespace"):
        RES["pod"].path(None, "p")
    assert RES["node"].path(None, "x") == "/api/v1/nodes/x"
    assert RES["pod"].path() == "/api/v1/pods"
