"""Version, health, discovery, OpenAPI, access reviews."""

from __future__ import annotations

import pytest

from osb.sim import SimCluster
from tests.sim.conftest import Api


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
def test_health_is_ok(api: Api, path: str) -> None:
    answer = api.call("GET", path)
    assert (answer.status, answer.body) == (200, "ok")


def test_the_version_is_1_20(api: Api) -> None:
    version = api.call("GET", "/version").ok()
    assert (version["major"], version["minor"]) == ("1", "20")
    assert version["gitVersion"].startswith("v1.20")


@pytest.mark.parametrize(
    ("path", "name", "verbs"),
    [
        ("/api/v1", "pods", {"list", "watch", "deletecollection", "patch"}),
        ("/api/v1", "pods/exec", {"create"}),
        ("/apis/batch/v1", "jobs/status", {"patch"}),
        ("/apis/sim.test.example/v1", "widgets", {"list", "watch"}),
        ("/apis/sim.test.example/v1", "widgets/status", {"patch"}),
    ],
)
def test_resources_are_discoverable(api: Api, path: str, name: str, verbs: set[str]) -> None:
    found = {entry["name"]: entry for entry in api.call("GET", path).ok()["resources"]}
    assert verbs <= set(found[name]["verbs"])


def test_custom_kinds_have_their_short_names(api: Api) -> None:
    found = {entry["name"]: entry for entry in api.call("GET", "/apis/sim.test.example/v1").ok()["resources"]}
    assert (found["widgets"]["kind"], found["widgets"]["singularName"]) == ("Widget", "widget")
    assert found["widgets"]["shortNames"] == ["wdg"]


def test_groups_are_listed(api: Api) -> None:
    names = {group["name"] for group in api.call("GET", "/apis").ok()["groups"]}
    assert {"apps", "batch", "coordination.k8s.io", "sim.test.example"} <= names


def test_openapi_describes_custom_kinds(sim_api: Api) -> None:
    document = sim_api.call("GET", "/openapi/v2").ok()
    model = document["definitions"]["example.test.sim.v1.Widget"]
    assert model["properties"]["spec"]["properties"]["size"]["type"] == "integer"
    assert model["x-kubernetes-group-version-kind"] == [
        {"group": "sim.test.example", "kind": "Widget", "version": "v1"}
    ]


def _review(api: Api, verb: str) -> bool:
    body = {"spec": {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": "default"}}}
    return bool(
        api.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body).ok()["status"]["allowed"]
    )


def test_access_is_granted(api: Api) -> None:
    assert _review(api, "create")


def test_a_denied_verb_shows_in_the_access_review(sim: SimCluster, sim_api: Api) -> None:
    sim.add_fault(deny=True, verbs=["create"], path="/pods")
    assert not _review(sim_api, "create")
    assert _review(sim_api, "get")
    answer = sim_api.call("POST", sim_api.pods(), {"metadata": {"name": "p"}})
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
