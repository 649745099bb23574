"""CRDs: validation, defaults, pruning, columns, routes that come and go."""

from __future__ import annotations

import copy

import pytest

from tests.sim.conftest import GROUP, MERGE, WIDGET_CRD, Api, Obj, until, widget

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def test_defaults_are_filled_in(api: Api) -> None:
    made = api.call("POST", api.widgets(), widget("w", parts=[{"name": "a"}, {"name": "b", "count": 3}])).ok()
    assert made["spec"]["color"] == "red"
    assert made["spec"]["parts"] == [{"name": "a", "count": 1}, {"name": "b", "count": 3}]


def test_unknown_fields_are_pruned_where_the_schema_does_not_keep_them(api: Api) -> None:
    made = {**widget("w", extra=1, template={"any": {"thing": 1}}), "other": True}
    got = api.call("POST", api.widgets(), made).ok()
    assert "extra" not in got["spec"]
    assert "other" not in got
    assert got["spec"]["template"] == {"any": {"thing": 1}}


def test_nulls_of_fields_that_are_not_nullable_count_as_absent(api: Api) -> None:
    got = api.call("POST", api.widgets(), widget("w", color=None, when=None, note=None)).ok()
    assert got["spec"] == {"size": 1, "color": "red", "note": None}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"size": "large"}, "spec.size"),
        ({"size": -1}, "spec.size"),
        ({"size": 1.5}, "spec.size"),
        ({"color": "green"}, "spec.color"),
        ({"max": True}, "spec.max"),
        ({"when": "tomorrow"}, "spec.when"),
        ({"parts": {}}, "spec.parts"),
        ({"parts": [{"name": 1}]}, "spec.parts"),
        ({"template": "text"}, "spec.template"),
    ],
)
def test_values_against_the_schema_are_refused(api: Api, spec: Obj, field: str) -> None:
    answer = api.call("POST", api.widgets(), widget("w", **spec))
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert field in answer.body["message"]
    assert answer.body["message"].startswith('Widget.sim.test.example "w" is invalid: ')
    assert answer.body["details"]["causes"]


def test_a_missing_required_field_is_refused(api: Api) -> None:
    answer = api.call("POST", api.widgets(), {"metadata": {"name": "w"}, "spec": {}, **_HEAD})
    assert answer.status == 422
    assert "spec.size: Required value" in answer.body["message"]


_HEAD = {"apiVersion": "sim.test.example/v1", "kind": "Widget"}


@pytest.mark.parametrize(
    "when", ["2026-01-31T08:00:00Z", "2026-01-31T08:00:00.123456+00:00", "2026-01-31T08:00:00-03:30"]
)
def test_times_in_every_rfc3339_form_are_taken(api: Api, when: str) -> None:
    assert api.call("POST", api.widgets(), widget("w", when=when)).ok()["spec"]["when"] == when


def test_integers_and_strings_fit_an_int_or_string(api: Api) -> None:
    api.call("POST", api.widgets(), widget("a", max=3)).ok()
    api.call("POST", api.widgets(), widget("b", max="25%")).ok()


def test_the_schema_may_limit_the_name(api: Api) -> None:
    assert api.call("POST", api.widgets(), widget("w" * 41)).status == 422
    api.call("POST", api.widgets(), widget("w" * 40)).ok()


def test_a_bad_status_is_refused(api: Api) -> None:
    api.call("POST", api.widgets(), widget("w")).ok()
    assert api.call("PATCH", api.widgets("w/status"), {"status": {"ready": "x"}}, content=MERGE).status == 422


def test_a_table_has_the_printer_columns(api: Api) -> None:
    api.call("POST", api.widgets(), widget("w", size=7)).ok()
    table = api.call("GET", api.widgets(), accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json").ok()
    assert table["kind"] == "Table"
    names = [(column["name"], column["priority"]) for column in table["columnDefinitions"]]
    assert names == [("Name", 0), ("Size", 0), ("Phase", 0), ("Color", 1), ("Age", 0)]
    (row,) = table["rows"]
    assert row["cells"][:4] == ["w", 7, None, "red"] or row["cells"][:4] == ["w", 7, "", "red"]
    assert row["cells"][4].endswith("s")
    assert row["object"]["metadata"]["name"] == "w"


def test_a_core_table_has_its_columns(api: Api) -> None:
    api.call("POST", api.maps(), {"metadata": {"name": "m"}, "data": {"a": "1"}}).ok()
    accept = "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
    table = api.call("GET", api.maps("m"), accept=accept).ok()
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"][:2] == ["m", 1]


def test_a_definition_is_established_and_its_deletion_ends_the_route(api: Api) -> None:
    crd = copy.deepcopy(WIDGET_CRD)
    crd["metadata"]["name"] = "gizmos.sim.test.example"
    crd["spec"]["names"] = {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo", "listKind": "GizmoList"}
    api.call("POST", CRDS, crd).ok()
    path = f"{CRDS}/gizmos.sim.test.example"

    def established() -> bool:
        conditions = api.call("GET", path).ok().get("status", {}).get("conditions") or []
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    until(established, "Established")
    gizmos = f"{GROUP}/namespaces/{api.namespace}/gizmos"
    made = {
        "apiVersion": "sim.test.example/v1",
        "kind": "Gizmo",
        "metadata": {"name": "g"},
        "spec": {"size": 1},
    }
    until(lambda: api.call("GET", gizmos).status == 200, "the route")
    made["metadata"]["finalizers"] = ["x.y/hold"]
    until(lambda: api.call("POST", gizmos, made).status in (201, 409), "a first object")
    # An object with a finalizer holds the definition
    api.call("DELETE", path).ok()
    until(lambda: "deletionTimestamp" in api.call("GET", f"{gizmos}/g").ok()["metadata"], "the object is deleted")
    assert api.call("GET", path).status == 200
    api.call("PATCH", f"{gizmos}/g", {"metadata": {"finalizers": None}}, content=MERGE).ok()
    until(lambda: api.call("GET", gizmos).status == 404, "the route is gone", seconds=30)
    until(lambda: api.call("GET", path).status == 404, "the definition is gone", seconds=30)


def test_a_definition_must_be_named_after_its_plural_and_group(api: Api) -> None:
    crd = copy.deepcopy(WIDGET_CRD)
    crd["metadata"]["name"] = "other.sim.test.example"
    assert api.call("POST", CRDS, crd).status == 422


def test_a_changed_schema_counts_at_once(sim_api: Api) -> None:
    sim_api.call("POST", sim_api.widgets(), widget("w", color="blue")).ok()
    crd = copy.deepcopy(WIDGET_CRD)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["color"]["enum"].append("green")
    sim_api.call("PATCH", f"{CRDS}/widgets.sim.test.example", {"spec": crd["spec"]}, content=MERGE).ok()
    sim_api.call("PATCH", sim_api.widgets("w"), {"spec": {"color": "green"}}, content=MERGE).ok()


@pytest.mark.parametrize(("size", "status"), [(2**31, 201), (2**63 - 1, 201), (2**63, 422), (1.0, 201), (1.5, 422)])
def test_a_whole_number_has_64_bits_whatever_narrower_format_the_schema_names(
    api: Api, size: float, status: int
) -> None:
    answer = api.call("POST", api.widgets(), widget("w", size=size))
    assert answer.status == status, answer.body
    if status == 422:
        assert 'spec.size in body must be of type integer: "number"' in answer.body["message"]
