"""Creating, reading, changing and deleting single objects, as the real API server does it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.sim.conftest import JSON_PATCH, MERGE, STRATEGIC, Answer, Api, Obj, pod, until, widget


def test_a_created_object_gets_its_identity(api: Api) -> None:
    answer = api.call("POST", api.widgets(), widget("w"))
    meta = answer.body["metadata"]
    assert answer.status == 201
    assert re.fullmatch(r"[0-9a-f-]{36}", meta["uid"])
    assert int(meta["resourceVersion"]) > 0
    assert meta["generation"] == 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert api.call("GET", api.widgets("w")).body == answer.body


def test_generate_name_makes_distinct_names(api: Api) -> None:
    names = {api.call("POST", api.pods(), pod()).ok()["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(re.fullmatch(r"p-[a-z0-9]{5}", name) for name in names)


@pytest.mark.parametrize(
    ("make", "code", "reason"),
    [
        (lambda api: api.call("GET", api.pods("none")), 404, "NotFound"),
        (lambda api: api.call("DELETE", api.widgets("none")), 404, "NotFound"),
        (lambda api: api.call("PUT", api.widgets("none"), widget("none")), 404, "NotFound"),
        (lambda api: api.call("PATCH", api.pods("none"), {}, content=MERGE), 404, "NotFound"),
        (lambda api: api.call("POST", api.pods(), pod("Bad_Name")), 422, "Invalid"),
        (lambda api: api.call("POST", api.pods(), {"metadata": {"name": "x"}, "spec": {}}), 422, "Invalid"),
        (lambda api: api.call("POST", api.pods(), {"metadata": {}, "spec": pod()["spec"]}), 422, "Invalid"),
        (lambda api: api.call("POST", api.widgets(), "{not json"), 400, "BadRequest"),
        (lambda api: api.call("POST", api.widgets(), {**widget("w"), "kind": "Gadget"}), 422, "Invalid"),
        (lambda api: api.call("POST", api.maps(), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}), 400,
         "BadRequest"),
        (lambda api: api.call("GET", "/apis/none.example/v1/things"), 404, None),
    ],
    ids=["get", "delete", "put", "patch", "name", "containers", "nameless", "syntax", "kind", "core-kind", "path"],
)  # fmt: skip
def test_refusals_carry_code_and_reason(api: Api, make: Callable[[Api], Answer], code: int, reason: str | None) -> None:
    answer = make(api)
    assert answer.status == code
    assert reason is None or answer.body["reason"] == reason


def _pod_with(**container: object) -> Obj:
    made = pod("typed")
    made["spec"]["containers"][0].update(container)
    return made


WRONG_TYPES = {
    "image": _pod_with(image=5),
    "command": _pod_with(command="sh"),
    "args": _pod_with(args=[1]),
    "env": _pod_with(env=[{"name": "A", "value": 1}]),
    "port": _pod_with(ports=[{"containerPort": "http"}]),
    "resources": _pod_with(resources=[]),
    "containers": {**pod("typed"), "spec": {"containers": "no"}},
    "container": {**pod("typed"), "spec": {"containers": ["main"]}},
    "null container": {**pod("typed"), "spec": {"containers": [None]}},
    "spec": {**pod("typed"), "spec": []},
    "grace": {**pod("typed"), "spec": {**pod()["spec"], "terminationGracePeriodSeconds": "30"}},
    "labels": {**pod("typed"), "metadata": {"name": "typed", "labels": {"a": 1}}},
    "metadata": {**pod("typed"), "metadata": ["typed"]},
    "finalizers": {**pod("typed"), "metadata": {"name": "typed", "finalizers": "x"}},
}


@pytest.mark.parametrize("body", WRONG_TYPES.values(), ids=WRONG_TYPES.keys())
def test_a_value_of_another_type_is_a_bad_request_in_words(api: Api, body: Obj) -> None:
    answer = api.call("POST", api.pods(), body)
    assert (answer.status, answer.body["kind"], answer.body["reason"]) == (400, "Status", "BadRequest")
    assert answer.body["message"]


@pytest.mark.parametrize("spec", [None, {"template": None}, {"template": {"metadata": None, "spec": None}}], ids=repr)
def test_null_counts_as_absent(api: Api, spec: Obj | None) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    answer = api.call("POST", api.pods().replace("/api/v1", "/apis/batch/v1").replace("/pods", "/jobs"), job)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")


@pytest.mark.parametrize("content", [MERGE, STRATEGIC])
@pytest.mark.parametrize(
    "patch",
    [{"spec": {"containers": "no"}}, {"spec": {"containers": [5]}}, {"spec": 5}, {"metadata": {"labels": [1]}},
     {"metadata": 5}, {"metadata": {"finalizers": 5}}],
    ids=repr,
)  # fmt: skip
def test_a_patch_of_another_type_is_refused_and_changes_nothing(api: Api, patch: Obj, content: str) -> None:
    before = api.call("POST", api.pods(), pod("typed")).ok()
    answer = api.call("PATCH", api.pods("typed"), patch, content=content)
    assert answer.status in (400, 422) and answer.body["kind"] == "Status"
    assert api.call("GET", api.pods("typed")).body == before


@pytest.mark.parametrize(
    ("body", "field"),
    [({**pod("p"), "spec": {**pod()["spec"], "restartPolicy": "Sometimes"}}, "spec.restartPolicy"),
     ({**pod("p"), "spec": {**pod()["spec"], "dnsPolicy": "Mine"}}, "spec.dnsPolicy"),
     (_pod_with(imagePullPolicy="Rarely"), "spec.containers[0].imagePullPolicy")],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_policy_that_does_not_exist_is_invalid(api: Api, body: Obj, field: str) -> None:
    answer = api.call("POST", api.pods(), body)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    (cause,) = answer.body["details"]["causes"]
    assert (cause["field"], cause["reason"]) == (field, "FieldValueNotSupported")


@pytest.mark.parametrize("missing", ["kind", "apiVersion"])
def test_a_custom_object_must_say_what_it_is_and_a_core_one_need_not(api: Api, missing: str) -> None:
    body = {key: value for key, value in widget("w").items() if key != missing}
    answer = api.call("POST", api.widgets(), body)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert ("'Kind' is missing" if missing == "kind" else "API version in the data ()") in answer.body["message"]
    assert api.call("POST", api.maps(), {"metadata": {"name": "m"}}).status == 201


def test_a_second_object_of_the_same_name_is_refused(api: Api) -> None:
    api.call("POST", api.maps(), {"metadata": {"name": "m"}}).ok()
    answer = api.call("POST", api.maps(), {"metadata": {"name": "m"}})
    assert (answer.status, answer.body["reason"]) == (409, "AlreadyExists")
    assert answer.body["message"] == 'configmaps "m" already exists'
    assert answer.body["details"] == {"name": "m", "kind": "configmaps"}


def test_a_not_found_answer_names_kind_and_group(api: Api) -> None:
    body = api.call("GET", api.widgets("none")).body
    assert body["message"] == 'widgets.sim.test.example "none" not found'
    assert body["details"] == {"name": "none", "group": "sim.test.example", "kind": "widgets"}


def test_put_with_an_old_version_conflicts(api: Api) -> None:
    first = api.call("POST", api.widgets(), widget("w")).ok()
    second = api.call("PUT", api.widgets("w"), {**first, "spec": {"size": 2}}).ok()
    answer = api.call("PUT", api.widgets("w"), {**first, "spec": {"size": 3}})
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert "the object has been modified" in answer.body["message"]
    assert api.call("GET", api.widgets("w")).body == second


def test_a_custom_object_is_not_replaced_without_a_version(api: Api) -> None:
    api.call("POST", api.widgets(), widget("w")).ok()
    answer = api.call("PUT", api.widgets("w"), widget("w", size=2))
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")


def test_a_patch_with_an_old_version_conflicts_and_one_without_does_not(api: Api) -> None:
    first = api.call("POST", api.widgets(), widget("w")).ok()
    api.call("PATCH", api.widgets("w"), {"spec": {"size": 2}}, content=MERGE).ok()
    stale = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "spec": {"size": 3}}
    assert api.call("PATCH", api.widgets("w"), stale, content=MERGE).status == 409
    assert api.call("PATCH", api.widgets("w"), {"spec": {"size": 4}}, content=MERGE).ok()["spec"]["size"] == 4


def test_another_uid_is_refused_as_immutable_by_patch_and_as_conflict_by_put(api: Api) -> None:
    made = api.call("POST", api.widgets(), widget("w")).ok()
    api.call("POST", api.pods(), pod("p")).ok()
    for path in (api.widgets("w"), api.pods("p"), api.pods("p/status")):
        answer = api.call("PATCH", path, {"metadata": {"uid": "other"}}, content=MERGE)
        assert (path, answer.status, answer.body["reason"]) == (path, 422, "Invalid")
    made["metadata"]["uid"] = "other"
    answer = api.call("PUT", api.widgets("w"), made)
    assert (answer.status, answer.body["reason"]) == (409, "Conflict")


def test_a_status_patch_of_a_custom_object_is_guarded_by_version_but_not_by_uid(api: Api) -> None:
    first = api.call("POST", api.widgets(), widget("w")).ok()["metadata"]
    ignored = {"metadata": {"uid": "other"}, "status": {"phase": "Up"}}
    assert api.call("PATCH", api.widgets("w/status"), ignored, content=MERGE).ok()["metadata"]["uid"] == first["uid"]
    stale = {"metadata": {"resourceVersion": first["resourceVersion"]}, "status": {"phase": "Down"}}
    assert api.call("PATCH", api.widgets("w/status"), stale, content=MERGE).status == 409


def test_a_merge_patch_removes_with_null_and_keeps_the_rest(api: Api) -> None:
    api.call("POST", api.maps(), {"metadata": {"name": "m"}, "data": {"a": "1", "b": "2"}}).ok()
    got = api.call("PATCH", api.maps("m"), {"data": {"a": None, "c": "3"}}, content=MERGE).ok()
    assert got["data"] == {"b": "2", "c": "3"}


def test_a_json_patch_tests_before_it_writes(api: Api) -> None:
    api.call("POST", api.maps(), {"metadata": {"name": "m"}, "data": {"a": "1"}}).ok()
    good = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "2"},
    ]
    assert api.call("PATCH", api.maps("m"), good, content=JSON_PATCH).ok()["data"] == {"a": "2"}
    answer = api.call("PATCH", api.maps("m"), good, content=JSON_PATCH)
    assert answer.status == 422
    assert api.call("GET", api.maps("m")).ok()["data"] == {"a": "2"}


@pytest.mark.parametrize(
    "step",
    [{"op": "remove", "path": "/data/none"}, {"op": "add", "path": "/none/a", "value": "1"}],
    ids=["remove", "add"],
)
def test_a_json_patch_of_a_missing_path_is_refused(api: Api, step: Obj) -> None:
    api.call("POST", api.maps(), {"metadata": {"name": "m"}, "data": {"a": "1"}}).ok()
    assert api.call("PATCH", api.maps("m"), [step], content=JSON_PATCH).status == 422


def test_a_json_patch_edits_lists_by_index(api: Api) -> None:
    api.call("POST", api.maps(), {"metadata": {"name": "m", "finalizers": ["x.y/a", "x.y/b"]}}).ok()
    steps = [
        {"op": "remove", "path": "/metadata/finalizers/0"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "x.y/c"},
    ]
    got = api.call("PATCH", api.maps("m"), steps, content=JSON_PATCH).ok()
    assert got["metadata"]["finalizers"] == ["x.y/b", "x.y/c"]
    api.call("PATCH", api.maps("m"), {"metadata": {"finalizers": None}}, content=MERGE).ok()


def test_a_strategic_patch_merges_lists_of_a_core_kind_by_key(api: Api) -> None:
    body = pod("p", containers=[{"name": "a", "image": "r/a:1"}, {"name": "b", "image": "r/b:1"}])
    api.call("POST", api.pods(), body).ok()
    got = api.call(
        "PATCH", api.pods("p"), {"spec": {"containers": [{"name": "b", "image": "r/b:2"}]}}, content=STRATEGIC
    )
    assert [item["image"] for item in got.ok()["spec"]["containers"]] == ["r/a:1", "r/b:2"]
    conditions = [{"type": "Ready", "status": "True"}, {"type": "Extra", "status": "True"}]
    api.call("PATCH", api.pods("p/status"), {"status": {"conditions": conditions}}, content=STRATEGIC).ok()
    change = {"status": {"conditions": [{"type": "Extra", "status": "False"}]}}
    got = api.call("PATCH", api.pods("p/status"), change, content=STRATEGIC)
    assert {c["type"]: c["status"] for c in got.ok()["status"]["conditions"]} == {
        "Ready": "True",
        "Extra": "False",
    }


def test_a_strategic_patch_deletes_elements_on_request(api: Api) -> None:
    meta = {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": n, "uid": n} for n in ("a", "b")]}
    made = api.call("POST", api.maps() + "?dryRun=All", {"metadata": {"name": "m", **meta}})
    assert made.status == 201
    api.call("POST", api.pods(), pod("p", meta={"finalizers": ["x.y/a", "x.y/b"]})).ok()
    change = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.y/a"]}}
    got = api.call("PATCH", api.pods("p"), change, content=STRATEGIC).ok()
    assert got["metadata"]["finalizers"] == ["x.y/b"]
    api.call("PATCH", api.pods("p"), {"metadata": {"finalizers": None}}, content=MERGE).ok()


def test_custom_objects_do_not_take_strategic_patches(api: Api) -> None:
    api.call("POST", api.widgets(), widget("w")).ok()
    answer = api.call("PATCH", api.widgets("w"), {"spec": {"size": 2}}, content=STRATEGIC)
    assert (answer.status, answer.body["reason"]) == (415, "UnsupportedMediaType")


def test_a_pods_containers_cannot_be_changed(api: Api) -> None:
    api.call("POST", api.pods(), pod("p")).ok()
    answer = api.call("PATCH", api.pods("p"), {"spec": {"restartPolicy": "Never"}}, content=MERGE)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")


def test_a_write_that_changes_nothing_is_no_new_version(api: Api) -> None:
    made = api.call("POST", api.widgets(), widget("w")).ok()
    same = api.call("PATCH", api.widgets("w"), {"spec": {"size": 1}}, content=MERGE).ok()
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_the_generation_counts_the_spec_only(api: Api) -> None:
    api.call("POST", api.widgets(), widget("w")).ok()
    labelled = api.call("PATCH", api.widgets("w"), {"metadata": {"labels": {"a": "b"}}}, content=MERGE).ok()
    assert labelled["metadata"]["generation"] == 1
    api.call("PATCH", api.widgets("w/status"), {"status": {"phase": "Up"}}, content=MERGE).ok()
    grown = api.call("PATCH", api.widgets("w"), {"spec": {"size": 5}}, content=MERGE).ok()
    assert (grown["metadata"]["generation"], grown["status"]) == (2, {"phase": "Up"})


def test_the_status_path_changes_only_the_status(api: Api) -> None:
    api.call("POST", api.widgets(), {**widget("w"), "status": {"phase": "Early"}}).ok()
    change = {"metadata": {"labels": {"a": "b"}}, "spec": {"size": 9}, "status": {"phase": "Up"}}
    got = api.call("PATCH", api.widgets("w/status"), change, content=MERGE).ok()
    assert got["status"] == {"phase": "Up"}
    assert got["spec"]["size"] == 1
    assert "labels" not in got["metadata"]
    got = api.call("PATCH", api.widgets("w"), {"status": {"phase": "Down"}}, content=MERGE).ok()
    assert got["status"] == {"phase": "Up"}


def test_a_new_custom_object_has_no_status(api: Api) -> None:
    assert "status" not in api.call("POST", api.widgets(), {**widget("w"), "status": {"phase": "Early"}}).ok()


def test_a_finalizer_holds_a_deleted_object_until_it_is_removed(api: Api) -> None:
    made = widget("w")
    made["metadata"]["finalizers"] = ["x.y/a"]
    api.call("POST", api.widgets(), made).ok()
    gone = api.call("DELETE", api.widgets("w")).ok()
    assert gone["metadata"]["deletionTimestamp"]
    assert gone["metadata"]["deletionGracePeriodSeconds"] == 0
    assert gone["metadata"]["generation"] == 2
    again = api.call("DELETE", api.widgets("w")).ok()
    assert again["metadata"]["resourceVersion"] == gone["metadata"]["resourceVersion"]
    added = {"metadata": {"finalizers": ["x.y/a", "x.y/b"]}}
    assert api.call("PATCH", api.widgets("w"), added, content=MERGE).status == 422
    api.call("PATCH", api.widgets("w"), {"metadata": {"finalizers": None}}, content=MERGE).ok()
    assert api.call("GET", api.widgets("w")).status == 404


def test_deleting_at_once_answers_with_the_uid(api: Api) -> None:
    made = api.call("POST", api.widgets(), widget("w")).ok()
    gone = api.call("DELETE", api.widgets("w")).ok()
    assert (gone["kind"], gone["status"]) == ("Status", "Success")
    assert gone["details"]["uid"] == made["metadata"]["uid"]


def test_an_unscheduled_pod_goes_at_once_and_a_bound_one_gracefully(api: Api) -> None:
    api.call("POST", api.pods(), pod("free")).ok()
    api.call("DELETE", api.pods("free")).ok()
    assert api.call("GET", api.pods("free")).status == 404
    api.call("POST", api.pods(), pod("bound", nodeName="nowhere")).ok()
    leaving = api.call("DELETE", api.pods("bound")).ok()["metadata"]
    assert leaving["deletionGracePeriodSeconds"] == 30
    api.call("DELETE", api.pods("bound"), {"gracePeriodSeconds": 0}).ok()
    assert api.call("GET", api.pods("bound")).status == 404


def test_delete_preconditions_protect_another_incarnation(api: Api) -> None:
    made = api.call("POST", api.pods(), pod("p")).ok()["metadata"]
    wrong = api.call("DELETE", api.pods("p"), {"preconditions": {"uid": "other"}})
    assert (wrong.status, wrong.body["reason"]) == (409, "Conflict")
    assert api.call("DELETE", api.pods("p"), {"preconditions": {"resourceVersion": "1"}}).status == 409
    good = {"preconditions": {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}}
    api.call("DELETE", api.pods("p"), good).ok()


def test_a_dry_run_changes_nothing(api: Api) -> None:
    api.call("POST", api.maps() + "?dryRun=All", {"metadata": {"name": "m"}}).ok()
    assert api.call("GET", api.maps("m")).status == 404
    api.call("POST", api.maps(), {"metadata": {"name": "m"}, "data": {"a": "1"}}).ok()
    patched = api.call("PATCH", api.maps("m") + "?dryRun=All", {"data": {"a": "2"}}, content=MERGE).ok()
    assert patched["data"] == {"a": "2"}
    api.call("DELETE", api.maps("m") + "?dryRun=All").ok()
    assert api.call("GET", api.maps("m")).ok()["data"] == {"a": "1"}


def test_the_namespace_of_body_and_path_must_agree(api: Api) -> None:
    answer = api.call("POST", api.maps(), {"metadata": {"name": "m", "namespace": "other"}})
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


def test_a_collection_is_deleted_by_selector(api: Api) -> None:
    for name, color in (("a", "red"), ("b", "red"), ("c", "blue")):
        api.call("POST", api.maps(), {"metadata": {"name": name, "labels": {"color": color}}}).ok()
    api.call("DELETE", api.maps() + "?labelSelector=color%3Dred").ok()
    left = api.call("GET", api.maps() + "?labelSelector=color").ok()["items"]
    assert [item["metadata"]["name"] for item in left] == ["c"]


def test_binding_sets_the_node_once(api: Api) -> None:
    api.call("POST", api.pods(), pod("p")).ok()
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}  # fmt: skip
    assert api.call("POST", api.pods("p/binding"), body).status == 201
    got = api.call("GET", api.pods("p")).ok()
    assert got["spec"]["nodeName"] == "n1"
    assert [c["status"] for c in got["status"]["conditions"] if c["type"] == "PodScheduled"] == ["True"]
    assert api.call("POST", api.pods("p/binding"), body).status == 409
    api.call("DELETE", api.pods("p"), {"gracePeriodSeconds": 0}).ok()


def test_an_eviction_deletes_the_pod(api: Api) -> None:
    api.call("POST", api.pods(), pod("p")).ok()
    body = {
        "apiVersion": "policy/v1beta1",
        "kind": "Eviction",
        "metadata": {"name": "p", "namespace": api.namespace},
    }
    assert api.call("POST", api.pods("p/eviction"), body).status == 201
    until(lambda: api.call("GET", api.pods("p")).status == 404, "the evicted pod goes")


def test_server_side_apply_creates_and_then_merges(api: Api) -> None:
    path, kind = api.maps("m") + "?fieldManager=test&force=true", "application/apply-patch+yaml"
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}}
    assert api.call("PATCH", path, wanted, content=kind).status == 201
    wanted["data"] = {"a": "2"}
    assert api.call("PATCH", path, wanted, content=kind).ok()["data"] == {"a": "2"}


def test_a_lease_is_taken_by_one_of_two(api: Api) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"
    made = api.call("POST", path, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}).ok()
    one, two = ({**made, "spec": {"holderIdentity": who}} for who in ("b", "c"))
    assert api.call("PUT", f"{path}/l", one).status == 200
    assert api.call("PUT", f"{path}/l", two).status == 409


def test_an_unknown_media_type_is_refused(api: Api) -> None:
    api.call("POST", api.maps(), {"metadata": {"name": "m"}}).ok()
    assert api.call("PATCH", api.maps("m"), {"data": {"a": "1"}}, content="application/json").status == 415
