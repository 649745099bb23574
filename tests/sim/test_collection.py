"""What follows a deletion: dependents, foreground and orphan deletion, namespaces."""

from __future__ import annotations

from pathlib import Path

from osb.sim import SimCluster
from tests.sim.conftest import MERGE, Api, Obj, pod, until, widget


def _owned(api: Api, owner: Obj, name: str, **more: object) -> Obj:
    meta = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    body = {"metadata": {"name": name, "ownerReferences": [reference], **more}}
    return api.call("POST", api.maps(), body).ok()


def _gone(api: Api, path: str) -> None:
    until(lambda: api.call("GET", path).status == 404, f"{path} is collected", seconds=30)


def test_dependents_go_after_their_owner_in_the_background(api: Api) -> None:
    owner = api.call("POST", api.maps(), {"metadata": {"name": "owner"}}).ok()
    _owned(api, owner, "child")
    api.call("DELETE", api.maps("owner")).ok()
    _gone(api, api.maps("child"))


def test_an_object_of_an_owner_that_never_was_is_collected(api: Api) -> None:
    ghost = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000000"},
    }
    _owned(api, ghost, "child")
    _gone(api, api.maps("child"))


def test_an_orphaning_deletion_keeps_the_dependents(api: Api) -> None:
    owner = api.call("POST", api.maps(), {"metadata": {"name": "owner"}}).ok()
    _owned(api, owner, "child")
    api.call("DELETE", api.maps("owner"), {"propagationPolicy": "Orphan"}).ok()
    _gone(api, api.maps("owner"))
    assert not api.call("GET", api.maps("child")).ok()["metadata"].get("ownerReferences")


def test_a_foreground_deletion_waits_for_the_dependents(api: Api) -> None:
    owner = api.call("POST", api.maps(), {"metadata": {"name": "owner"}}).ok()
    _owned(api, owner, "child", finalizers=["x.y/hold"])
    api.call("DELETE", api.maps("owner"), {"propagationPolicy": "Foreground"}).ok()
    until(
        lambda: api.call("GET", api.maps("child")).ok()["metadata"].get("deletionTimestamp"),
        "the child is deleted",
        seconds=30,
    )
    assert "foregroundDeletion" in api.call("GET", api.maps("owner")).ok()["metadata"]["finalizers"]
    api.call("PATCH", api.maps("child"), {"metadata": {"finalizers": None}}, content=MERGE).ok()
    _gone(api, api.maps("owner"))


def test_a_dependent_with_another_living_owner_stays(api: Api) -> None:
    one = api.call("POST", api.maps(), {"metadata": {"name": "one"}}).ok()
    two = api.call("POST", api.maps(), {"metadata": {"name": "two"}}).ok()
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
        for o in (one, two)
    ]
    api.call("POST", api.maps(), {"metadata": {"name": "child", "ownerReferences": references}}).ok()
    api.call("DELETE", api.maps("one")).ok()

    def only_two() -> bool:
        left = api.call("GET", api.maps("child")).ok()["metadata"]["ownerReferences"]
        return [reference["name"] for reference in left] == ["two"]

    until(only_two, "the dead reference is dropped", seconds=30)


def test_a_deleted_namespace_takes_its_contents(api: Api) -> None:
    api.call("POST", api.maps(), {"metadata": {"name": "m"}}).ok()
    api.call("POST", api.widgets(), widget("w")).ok()
    api.call("POST", api.pods(), pod("p")).ok()
    path = f"/api/v1/namespaces/{api.namespace}"
    assert api.call("DELETE", path).ok()["status"]["phase"] == "Terminating"
    _gone(api, path)
    assert api.call("GET", api.maps("m")).status == 404


def test_nothing_is_created_in_a_namespace_that_is_leaving(api: Api) -> None:
    held = {"metadata": {"name": "m", "finalizers": ["x.y/hold"]}}
    api.call("POST", api.maps(), held).ok()
    api.call("DELETE", f"/api/v1/namespaces/{api.namespace}").ok()
    answer = api.call("POST", api.maps(), {"metadata": {"name": "late"}})
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    api.call("PATCH", api.maps("m"), {"metadata": {"finalizers": None}}, content=MERGE).ok()
    _gone(api, f"/api/v1/namespaces/{api.namespace}")


def test_a_missing_namespace_is_made_or_refused_as_the_cluster_was_started(sim_api: Api, tmp_path: Path) -> None:
    path, body = "/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "m"}}
    assert sim_api.call("POST", path, body).status == 201
    with SimCluster.start(tmp_path / "strict", kubelet=False, auto_namespaces=False) as cluster:
        strict = Api(cluster.url, "t")
        answer = strict.call("POST", path, body)
        assert (answer.status, answer.body["message"]) == (404, 'namespaces "nowhere" not found')
        strict.close()
