"""The client against whole API servers: what the scripted double cannot prove."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from osb.config import Settings
from osb.errors import AlreadyExists, ApiError, Conflict, Gone, NotFound, Refused
from osb.kube.events import EventRecorder
from osb.kube.lease import InstallationLease
from tests.doubles.together import together


def configmap(name, **data):
    return {"metadata": {"name": name}, "data": data}


def test_an_object_lives_from_create_to_delete(cluster):
    kube, ns = cluster
    made = kube.create("configmap", ns, configmap("a", x="1"))
    with pytest.raises(AlreadyExists):
        kube.create("configmap", ns, configmap("a"))
    changed = kube.patch("configmap", ns, "a", {"data": {"y": "2"}})
    assert kube.get("configmap", ns, "a")["data"] == {"x": "1", "y": "2"}
    with pytest.raises(Conflict):
        kube.replace("configmap", ns, "a", made)
    changed["data"] = {"z": "3"}
    assert kube.replace("configmap", ns, "a", changed)["data"] == {"z": "3"}
    kube.patch("configmap", ns, "a", [{"op": "remove", "path": "/data/z"}], content="json")
    kube.delete("configmap", ns, "a")
    with pytest.raises(NotFound):
        kube.get("configmap", ns, "a")
    with pytest.raises(NotFound):
        kube.delete("configmap", ns, "a")


def test_a_patch_computed_from_an_old_version_is_a_conflict(cluster):
    kube, ns = cluster
    made = kube.create("configmap", ns, configmap("a"))
    version = made["metadata"]["resourceVersion"]
    kube.patch("configmap", ns, "a", {"metadata": {"resourceVersion": version}, "data": {"x": "1"}})
    with pytest.raises(Conflict) as caught:
        kube.patch("configmap", ns, "a", {"metadata": {"resourceVersion": version}, "data": {"x": "2"}})
    assert caught.value.definite


def test_a_delete_for_an_object_that_was_made_anew_leaves_the_new_one(cluster):
    # Given an object that was deleted and created again under its name
    kube, ns = cluster
    old = kube.create("configmap", ns, configmap("a"))
    kube.delete("configmap", ns, "a", uid=old["metadata"]["uid"])
    kube.create("configmap", ns, configmap("a"))
    # When a late task deletes the old one
    with pytest.raises(Conflict):
        kube.delete("configmap", ns, "a", uid=old["metadata"]["uid"])
    # Then the new one is untouched
    assert kube.get("configmap", ns, "a")


def test_a_delete_decided_on_older_content_is_a_conflict(cluster):
    kube, ns = cluster
    old = kube.create("configmap", ns, configmap("a"))["metadata"]
    kube.patch("configmap", ns, "a", {"data": {"x": "1"}})
    with pytest.raises(Conflict):
        kube.delete("configmap", ns, "a", uid=old["uid"], version=old["resourceVersion"])


def test_what_the_server_refuses_is_refused_with_its_words(cluster):
    kube, ns = cluster
    with pytest.raises(Refused, match="Not_A_Name"):
        kube.create("configmap", ns, configmap("Not_A_Name"))


def test_pages_show_one_moment_even_while_objects_are_added(cluster):
    kube, ns = cluster
    for number in range(5):
        kube.create("configmap", ns, configmap(f"a{number}"))
    pages = kube.list("configmap", ns, limit=2)
    first = next(pages)
    kube.create("configmap", ns, configmap("a9"))
    rest = list(pages)
    names = [item["metadata"]["name"] for page in (first, *rest) for item in page.items]
    assert [name for name in names if name.startswith("a")] == [f"a{number}" for number in range(5)]
    assert {page.version for page in rest} == {first.version}


def test_selectors_are_passed_on(cluster):
    kube, ns = cluster
    kube.create("configmap", ns, {"metadata": {"name": "a", "labels": {"x": "1"}}})
    kube.create("configmap", ns, {"metadata": {"name": "b", "labels": {"x": "2"}}})
    assert [item["metadata"]["name"] for item in kube.all("configmap", ns, labels="x in (2)")[0]] == ["b"]
    assert [item["metadata"]["name"] for item in kube.all("configmap", ns, fields="metadata.name=a")[0]] == ["a"]


def test_a_watch_resumes_where_the_list_ended_and_misses_nothing(cluster):
    kube, ns = cluster
    kube.create("configmap", ns, configmap("before"))
    _, version = kube.all("configmap", ns)
    for number in range(20):
        kube.create("configmap", ns, configmap(f"a{number:02}"))
    kube.patch("configmap", ns, "a00", {"data": {"x": "1"}})
    kube.delete("configmap", ns, "a01")
    stop, seen = threading.Event(), []
    for batch in kube.watch("configmap", ns, version=version, stop=stop):
        seen += [(event.type, event.obj["metadata"].get("name"), int(event.version)) for event in batch]
        if len(seen) >= 22:
            stop.set()
    changes = [(kind, name) for kind, name, _ in seen if (name or "").startswith("a")]
    assert changes[:20] == [("ADDED", f"a{number:02}") for number in range(20)]
    assert changes[20:] == [("MODIFIED", "a00"), ("DELETED", "a01")]
    assert all(one < other for (_, _, one), (_, _, other) in pairwise(seen))


def test_a_version_from_another_time_is_gone_or_an_error_not_silence(cluster):
    kube, ns = cluster
    kube.create("configmap", ns, configmap("a"))
    with pytest.raises(ApiError):
        next(kube.watch("configmap", ns, version="99999999999999999999999999"))


def test_a_watch_from_a_compacted_version_is_gone(sim):
    # the simulated cluster only: a real one compacts after minutes
    from osb.kube.client import connect

    with_window = type(sim).start(sim.folder / "small", kubelet=False, window=5)
    kube = connect(Settings(kubeconfig=str(with_window.kubeconfig)))
    try:
        kube.create("namespace", None, {"metadata": {"name": "n"}})
        first = kube.create("configmap", "n", configmap("a"))["metadata"]["resourceVersion"]
        for number in range(20):
            kube.patch("configmap", "n", "a", {"data": {"x": str(number)}})
        with pytest.raises(Gone):
            list(kube.watch("configmap", "n", version=first))
    finally:
        kube.close()
        with_window.stop()


def test_two_writers_of_finalizers_lose_none(cluster):
    kube, ns = cluster
    kube.create("configmap", ns, configmap("a"))

    def write(side: str) -> None:
        for number in range(25):
            while True:
                meta = kube.get("configmap", ns, "a")["metadata"]
                names = [*meta.get("finalizers", []), f"example.com/{side}{number}"]
                body = {"metadata": {"finalizers": names, "resourceVersion": meta["resourceVersion"]}}
                try:
                    kube.patch("configmap", ns, "a", body)
                except Conflict:
                    continue
                break

    together(write, "lr")
    meta = kube.get("configmap", ns, "a")["metadata"]
    assert len(meta["finalizers"]) == 50
    kube.patch("configmap", ns, "a", {"metadata": {"finalizers": None, "resourceVersion": meta["resourceVersion"]}})


def test_events_and_their_counts_are_accepted(cluster):
    kube, ns = cluster
    target = kube.create("configmap", ns, configmap("a"))
    recorder = EventRecorder(kube, "test")
    for _ in range(3):
        recorder.emit({"kind": "ConfigMap", "apiVersion": "v1", **target}, "Warning", "Tried", "it did not work")
    recorder.close()
    (event,) = kube.all("event", ns, fields="involvedObject.name=a")[0]
    assert (event["count"], event["reason"], event["source"]["component"]) == (3, "Tried", "test")


def test_the_lease_is_taken_renewed_and_released(cluster):
    kube, ns = cluster
    ours = InstallationLease(kube, Settings(installation="here", pod_namespace=ns))
    other = InstallationLease(kube, Settings(installation="there", pod_namespace=ns))
    assert ours.acquire_or_renew()
    assert ours.acquire_or_renew()
    assert not other.acquire_or_renew()
    assert other.holder() == "osb_here"
    ours.release()
    assert other.acquire_or_renew()
    assert not ours.acquire_or_renew()


def test_a_client_asks_what_it_may_do(cluster):
    kube, ns = cluster
    attributes = {"namespace": ns, "verb": "update", "group": "coordination.k8s.io", "resource": "leases"}
    answer = kube.create("selfsubjectaccessreview", None, {"spec": {"resourceAttributes": attributes}})
    assert answer["status"]["allowed"] is True
