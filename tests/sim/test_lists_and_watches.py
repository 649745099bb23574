"""Lists with selectors and pages; watches with versions, bookmarks, selectors and limits."""

from __future__ import annotations

import threading
import time

import pytest

from osb.sim import SimCluster
from tests.sim.conftest import MERGE, Api, Obj, pod, until, widget


def _names(items: list[Obj]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def _fill(api: Api, count: int) -> None:
    for index in range(count):
        labels = {"even": str(index % 2 == 0).lower(), "index": str(index)}
        api.call("POST", api.maps(), {"metadata": {"name": f"m{index}", "labels": labels}}).ok()


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("even=true", ["m0", "m2", "m4"]),
        ("even==false", ["m1", "m3"]),
        ("even!=true", ["m1", "m3"]),
        ("index in (1, 4)", ["m1", "m4"]),
        ("index notin (0,1,2)", ["m3", "m4"]),
        ("index,even=true", ["m0", "m2", "m4"]),
        ("!index", []),
    ],
)
def test_label_selectors_choose_objects(api: Api, selector: str, wanted: list[str]) -> None:
    _fill(api, 5)
    items = api.call(
        "GET",
        api.maps() + f"?labelSelector={selector},even".replace(" ", "%20").replace("!index,even", "!index"),
    )
    assert [name for name in _names(items.ok()["items"]) if name.startswith("m")] == wanted


def test_field_selectors_choose_objects(api: Api) -> None:
    api.call("POST", api.pods(), pod("a", nodeName="n1")).ok()
    api.call("POST", api.pods(), pod("b")).ok()
    assert _names(api.call("GET", api.pods() + "?fieldSelector=spec.nodeName%3Dn1").ok()["items"]) == ["a"]
    assert _names(api.call("GET", api.pods() + "?fieldSelector=spec.nodeName!%3Dn1").ok()["items"]) == ["b"]
    assert _names(api.call("GET", api.pods() + "?fieldSelector=metadata.name%3Db").ok()["items"]) == ["b"]
    assert api.call("GET", api.pods() + "?fieldSelector=spec.color%3Dred").status == 400
    api.call("DELETE", api.pods("a"), {"gracePeriodSeconds": 0}).ok()


def test_a_list_has_kind_version_and_is_sorted(api: Api) -> None:
    for name in ("b", "a", "c"):
        api.call("POST", api.widgets(), widget(name)).ok()
    got = api.call("GET", api.widgets()).ok()
    assert (got["kind"], got["apiVersion"]) == ("WidgetList", "sim.test.example/v1")
    assert int(got["metadata"]["resourceVersion"]) >= int(got["items"][2]["metadata"]["resourceVersion"])
    assert _names(got["items"]) == ["a", "b", "c"]


def test_pages_show_one_consistent_snapshot(api: Api) -> None:
    for index in range(5):
        api.call("POST", api.widgets(), widget(f"w{index}")).ok()
    first = api.call("GET", api.widgets() + "?limit=2").ok()
    assert first["metadata"]["remainingItemCount"] == 3
    api.call("DELETE", api.widgets("w3")).ok()
    second = api.call("GET", api.widgets() + f"?limit=2&continue={first['metadata']['continue']}").ok()
    third = api.call("GET", api.widgets() + f"?limit=2&continue={second['metadata']['continue']}").ok()
    assert _names([*first["items"], *second["items"], *third["items"]]) == ["w0", "w1", "w2", "w3", "w4"]
    assert not third["metadata"].get("continue")
    assert first["metadata"]["resourceVersion"] == third["metadata"]["resourceVersion"]


def test_metadata_can_be_asked_for_alone(api: Api) -> None:
    api.call("POST", api.widgets(), widget("w")).ok()
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    got = api.call("GET", api.widgets(), accept=accept).ok()
    assert got["kind"] == "PartialObjectMetadataList"
    assert "spec" not in got["items"][0]
    assert got["items"][0]["metadata"]["name"] == "w"


def test_a_nonsense_continue_token_is_a_bad_request(api: Api) -> None:
    assert api.call("GET", api.widgets() + "?limit=2&continue=nonsense").status == 400


def test_a_watch_from_a_version_sends_only_what_came_later(api: Api) -> None:
    made = api.call("POST", api.widgets(), widget("old")).ok()
    api.call("POST", api.widgets(), widget("new")).ok()
    api.call("PATCH", api.widgets("new"), {"spec": {"size": 2}}, content=MERGE).ok()
    api.call("DELETE", api.widgets("old")).ok()
    events = api.watch(api.widgets(), seconds=1, resourceVersion=made["metadata"]["resourceVersion"])
    seen = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert seen == [("ADDED", "new"), ("MODIFIED", "new"), ("DELETED", "old")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(versions)


def test_a_watch_without_a_version_begins_with_what_exists(api: Api) -> None:
    api.call("POST", api.widgets(), widget("w")).ok()
    assert [event["type"] for event in api.watch(api.widgets(), seconds=1)] == ["ADDED"]


def test_a_watch_sends_changes_as_they_happen_and_ends_in_time(api: Api) -> None:
    version = api.call("GET", api.widgets()).ok()["metadata"]["resourceVersion"]
    events: list[Obj] = []
    begun = time.monotonic()
    reader = threading.Thread(
        target=lambda: events.extend(api.watch(api.widgets(), seconds=2, resourceVersion=version))
    )
    reader.start()
    api.call("POST", api.widgets(), widget("w")).ok()
    reader.join(timeout=10)
    assert [event["type"] for event in events] == ["ADDED"]
    assert time.monotonic() - begun > 1.5


def test_a_watch_with_a_selector_tells_when_an_object_begins_and_ceases_to_match(api: Api) -> None:
    made = api.call("POST", api.maps(), {"metadata": {"name": "m"}}).ok()
    for value in ("yes", "no", "yes"):
        api.call("PATCH", api.maps("m"), {"metadata": {"labels": {"wanted": value}}}, content=MERGE).ok()
    api.call("PATCH", api.maps("m"), {"data": {"a": "1"}}, content=MERGE).ok()
    version = made["metadata"]["resourceVersion"]
    events = api.watch(api.maps(), seconds=1, resourceVersion=version, labelSelector="wanted%3Dyes")
    assert [event["type"] for event in events] == ["ADDED", "DELETED", "ADDED", "MODIFIED"]


def test_a_watch_of_cordoned_nodes_shows_one_while_it_is_cordoned(api: Api) -> None:
    # Given one node that is cordoned and one that is not
    node, quiet = f"cordoned-{api.namespace}", f"quiet-{api.namespace}"
    made = api.call("POST", "/api/v1/nodes", {"metadata": {"name": quiet}}).ok()
    api.call("POST", "/api/v1/nodes", {"metadata": {"name": node, "labels": {"a": "1"}}}).ok()

    def patch(body: Obj) -> Obj:
        return api.call("PATCH", f"/api/v1/nodes/{node}", body, content=MERGE).ok()

    try:
        patch({"metadata": {"labels": {"a": "2"}}})
        patch({"spec": {"unschedulable": True}})
        patch({"metadata": {"labels": {"a": "3"}}})
        listed = api.call("GET", "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue").ok()["items"]
        others = api.call("GET", "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dfalse").ok()["items"]
        freed = patch({"metadata": {"labels": {"a": "4"}}, "spec": {"unschedulable": None}})
        patch({"metadata": {"labels": {"a": "5"}}})
        patch({"spec": {"unschedulable": True}})
        version = made["metadata"]["resourceVersion"]
        api.call("DELETE", f"/api/v1/nodes/{node}").ok()
        events = api.watch(
            "/api/v1/nodes", seconds=1, resourceVersion=version, fieldSelector="spec.unschedulable%3Dtrue"
        )
    finally:
        for name in (node, quiet):
            api.call("DELETE", f"/api/v1/nodes/{name}")
    # Then an absent field counts as false, and the watch tells when a node begins and ceases to be cordoned
    assert node in _names(listed) and quiet not in _names(listed)
    assert quiet in _names(others) and node not in _names(others)
    own = [e for e in events if e["object"]["metadata"]["name"] == node]
    assert [e["type"] for e in own if e["type"] != "MODIFIED"] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    assert quiet not in {e["object"]["metadata"]["name"] for e in events}
    # and one that ceases is shown as it was before, under the version of the change
    left = next(e["object"] for e in own if e["type"] == "DELETED")
    assert left["spec"]["unschedulable"] is True and left["metadata"]["labels"]["a"] == "3"
    assert left["metadata"]["resourceVersion"] == freed["metadata"]["resourceVersion"]


def test_a_watch_of_one_namespace_does_not_show_others(api: Api) -> None:
    made = api.call("POST", api.widgets(), widget("w")).ok()
    api.call("POST", f"{api.widgets().replace(api.namespace, 'default')}", widget("elsewhere"))
    events = api.watch(api.widgets(), seconds=1, resourceVersion=int(made["metadata"]["resourceVersion"]) - 1)
    assert {event["object"]["metadata"]["name"] for event in events} <= {"w"}
    api.call("DELETE", f"{api.widgets('elsewhere').replace(api.namespace, 'default')}")


def test_bookmarks_carry_a_version(sim_api: Api) -> None:
    version = sim_api.call("POST", sim_api.widgets(), widget("w")).ok()["metadata"]["resourceVersion"]
    events = sim_api.watch(sim_api.widgets(), seconds=1, resourceVersion=version, allowWatchBookmarks="true")
    marks = [event["object"] for event in events if event["type"] == "BOOKMARK"]
    assert marks
    assert marks[0]["kind"] == "Widget"
    assert int(marks[-1]["metadata"]["resourceVersion"]) >= int(version)


def test_a_watch_from_before_the_log_ends_with_410(sim: SimCluster, sim_api: Api) -> None:
    first = sim_api.call("POST", sim_api.widgets(), widget("a")).ok()["metadata"]["resourceVersion"]
    sim_api.call("POST", sim_api.widgets(), widget("b")).ok()
    sim_api.call("POST", "/_sim/compact").ok()
    (event,) = sim_api.watch(sim_api.widgets(), seconds=5, resourceVersion=first)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


def test_the_log_is_bounded(tmp_path: object) -> None:
    with SimCluster.start(str(tmp_path), kubelet=False, window=5) as cluster:
        api = Api(cluster.url, "t")
        api.namespace = "default"
        first = api.call("POST", api.maps(), {"metadata": {"name": "m"}}).ok()["metadata"]["resourceVersion"]
        for index in range(8):
            api.call("PATCH", api.maps("m"), {"data": {"a": str(index)}}, content=MERGE).ok()
        (event,) = api.watch(api.maps(), seconds=5, resourceVersion=first)
        assert event["object"]["code"] == 410
        api.close()


def test_an_old_continue_token_is_gone(sim_api: Api) -> None:
    for index in range(3):
        sim_api.call("POST", sim_api.widgets(), widget(f"w{index}")).ok()
    token = sim_api.call("GET", sim_api.widgets() + "?limit=1").ok()["metadata"]["continue"]
    sim_api.call("POST", "/_sim/expire").ok()
    answer = sim_api.call("GET", sim_api.widgets() + f"?limit=1&continue={token}")
    assert (answer.status, answer.body["reason"]) == (410, "Expired")


def test_many_watchers_see_every_change(sim_api: Api) -> None:
    version = sim_api.call("GET", sim_api.maps()).ok()["metadata"]["resourceVersion"]
    seen: list[int] = []

    def read() -> None:
        seen.append(len(sim_api.watch(sim_api.maps(), seconds=2, resourceVersion=version)))

    readers = [threading.Thread(target=read) for _ in range(5)]
    for reader in readers:
        reader.start()
    for index in range(100):
        sim_api.call("POST", sim_api.maps(), {"metadata": {"name": f"m{index}"}}).ok()
    for reader in readers:
        reader.join(timeout=10)
    until(lambda: len(seen) == 5, "all watches ended")
    assert seen == [100] * 5
