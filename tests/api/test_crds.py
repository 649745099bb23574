"""The CustomResourceDefinitions: complete, structural, covering whatever we write, with and without CEL."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pytest

from osb.api import batchsandbox, crds, names, pool, status
from osb.api.crd_fields import PRESERVE, VALIDATIONS, Schema
from osb.decide.status import box_status
from osb.facts.boxview import BatchView
from osb.facts.pod import pod_fact
from tests.api import samples
from tests.facts import test_pod as pods

NOW = datetime(2026, 1, 31, 8, tzinfo=UTC)
KINDS = (names.KIND_BOX, names.KIND_POOL, names.KIND_SNAPSHOT)


def version(kind: str) -> Schema:
    found: Schema = crds.crd(kind)["spec"]["versions"][0]
    return found


def part(kind: str, *path: str) -> Schema:
    node = crds.schema(kind)
    for step in path:
        node = node["items"] if step == "[]" else node["properties"][step]
    return node


# -- identity ------------------------------------------------------------------------------------------------


def test_the_three_kinds_have_their_names() -> None:
    by_name = {item["metadata"]["name"]: item["spec"] for item in crds.crds()}
    assert set(by_name) == {
        "batchsandboxes.sandbox.opensandbox.io",
        "pools.sandbox.opensandbox.io",
        "sandboxsnapshots.sandbox.opensandbox.io",
    }
    assert by_name["batchsandboxes.sandbox.opensandbox.io"]["names"] == {
        "kind": "BatchSandbox",
        "listKind": "BatchSandboxList",
        "plural": "batchsandboxes",
        "singular": "batchsandbox",
        "shortNames": ["bsbx"],
    }
    assert by_name["sandboxsnapshots.sandbox.opensandbox.io"]["names"]["shortNames"] == ["sbxsnap"]
    assert "shortNames" not in by_name["pools.sandbox.opensandbox.io"]["names"]
    for spec in by_name.values():
        assert (spec["group"], spec["scope"]) == ("sandbox.opensandbox.io", "Namespaced")
        [only] = spec["versions"]
        assert (only["name"], only["served"], only["storage"]) == ("v1alpha1", True, True)
        assert only["subresources"] == {"status": {}}, "status only, no scale"


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("Pool", "TOTAL ALLOCATED AVAILABLE UPDATED AGE"),
        (
            "BatchSandbox",
            "DESIRED TOTAL ALLOCATED Ready TASK_RUNNING* TASK_SUCCEED* TASK_FAILED* TASK_UNKNOWN* EXPIRE AGE",
        ),
        ("SandboxSnapshot", "PHASE SANDBOX AGE"),
    ],
)
def test_printer_columns_in_their_order_wide_ones_marked(kind: str, columns: str) -> None:
    shown = version(kind)["additionalPrinterColumns"]
    assert " ".join(c["name"] + ("*" if c.get("priority") else "") for c in shown) == columns
    for item in shown:
        path = item["jsonPath"].split(".")[1:]
        assert path == ["metadata", "creationTimestamp"] or part(kind, *path)


# -- the schema as such --------------------------------------------------------------------------------------


def nodes(path: str, node: Schema) -> Iterator[tuple[str, Schema]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(f"{path}.{name}", child)
    for member in ("items", "additionalProperties"):
        if isinstance(node.get(member), dict):
            yield from nodes(f"{path}[]", node[member])


@pytest.mark.parametrize("cel", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_node_is_structural_and_described(kind: str, cel: bool) -> None:
    for path, node in nodes(kind, crds.schema(kind, cel=cel)):
        typed = "type" in node or node.get(PRESERVE) or node.get("x-kubernetes-int-or-string")
        assert typed, f"{path} has no type"
        below = path.startswith((f"{kind}.metadata", f"{kind}.spec.template.spec"))
        assert below or node.get("description"), f"{path} has no description"
        assert set(node.get("required", ())) <= set(node.get("properties", {})), path


@pytest.mark.parametrize("kind", KINDS)
def test_rules_in_cel_are_only_there_when_asked_for(kind: str) -> None:
    assert not any(VALIDATIONS in node for _, node in nodes(kind, crds.schema(kind)))
    with_rules = [path for path, node in nodes(kind, crds.schema(kind, cel=True)) if VALIDATIONS in node]
    assert bool(with_rules) is (kind != names.KIND_SNAPSHOT)


def test_only_the_defaults_of_the_reference_stand_in_the_schema() -> None:
    found = {
        path: node["default"] for kind in KINDS for path, node in nodes(kind, crds.schema(kind)) if "default" in node
    }
    assert found == {
        "BatchSandbox.spec.replicas": 1,
        "BatchSandbox.spec.taskResourcePolicyWhenCompleted": "Retain",
        "Pool.spec.recycleStrategy.type": "Delete",
    }


def test_required_members_are_those_of_the_reference() -> None:
    assert part("BatchSandbox", "spec")["required"] == ["replicas"]
    assert len(part("BatchSandbox", "status")["required"]) == 8
    assert part("Pool", "spec")["required"] == ["capacitySpec"]
    assert len(part("Pool", "spec", "capacitySpec")["required"]) == 4
    assert set(part("Pool", "status")["required"]) == {"allocated", "available", "revision", "total"}
    assert part("SandboxSnapshot", "spec")["required"] == ["sandboxName"]
    assert all("required" not in crds.schema(kind) for kind in KINDS)


@pytest.mark.parametrize(
    ("kind", "member"),
    [
        ("Pool", "template"),
        ("BatchSandbox", "template"),
        ("BatchSandbox", "shardPatches"),
        ("BatchSandbox", "taskTemplate"),
        ("BatchSandbox", "shardTaskPatches"),
    ],
)
def test_templates_and_patches_are_kept_whatever_is_in_them(kind: str, member: str) -> None:
    node = part(kind, "spec", member)
    assert node[PRESERVE] is True and "type" not in node


def test_existing_fields_are_not_tightened() -> None:
    assert "enum" not in part("BatchSandbox", "spec", "taskResourcePolicyWhenCompleted")
    assert "pattern" not in part("Pool", "spec", "scaleStrategy", "maxUnavailable")
    assert crds.schema("Pool")["properties"]["metadata"]["properties"]["name"]["maxLength"] == 63
    assert crds.schema("BatchSandbox")["properties"]["metadata"] == {"type": "object"}


def test_condition_lists_are_maps_by_type_with_every_type_we_write() -> None:
    for kind in KINDS:
        node = part(kind, "status", "conditions")
        assert (node["x-kubernetes-list-type"], node["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    assert part("BatchSandbox", "status", "conditions", "[]", "type")["enum"] == list(names.BOX_CONDITIONS)
    snapshot = part("SandboxSnapshot", "status", "conditions", "[]", "type")["enum"]
    assert snapshot == ["Ready", "Failed", "Progressing"]
    assert "enum" not in part("Pool", "status", "conditions", "[]", "type")
    assert part("Pool", "status", "conditions", "[]", "status")["enum"] == ["True", "False", "Unknown"]


def test_copies_are_fresh() -> None:
    crds.crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].clear()
    assert crds.schema("BatchSandbox")["properties"]["spec"]


# -- what we write is covered --------------------------------------------------------------------------------


def unknown(node: Schema, value: Any, path: str) -> list[str]:
    """Members that the API server would drop, because the schema does not know them."""
    if node.get(PRESERVE) and "properties" not in node:
        return []
    if isinstance(value, dict):
        if isinstance(node.get("additionalProperties"), dict):
            return [x for k, v in value.items() for x in unknown(node["additionalProperties"], v, f"{path}.{k}")]
        known = node.get("properties", {})
        found = [f"{path}.{name}" for name in value if name not in known]
        return found + [x for n, v in value.items() if n in known for x in unknown(known[n], v, f"{path}.{n}")]
    if isinstance(value, list):
        return [x for item in value for x in unknown(node["items"], item, f"{path}[]")]
    return []


def filled(kind: type[Any], **special: Any) -> Any:
    """An instance with every member set to something."""
    values = {f.name: special.get(f.name, 3 if f.type == "int" else "text") for f in dataclass_fields(kind)}
    return kind(**values)


def all_conditions(types: tuple[str, ...], **more: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for kind in types:
        made = status.with_condition(made, kind, reason="R", message="m", now=NOW, **more)
    return made


def box_view(phase: str, **fields: Any) -> BatchView:
    stored = {"phase": phase, "conditions": all_conditions(names.BOX_CONDITIONS)}
    obj = samples.box(record=LOST, status=stored, **fields)
    slots = {0: pod_fact(pods.raw())}
    return BatchView(now=NOW, spec=batchsandbox.parse(obj), slots=slots, quarantine=("RecordForged", "x"))


LOST = {"pods": ["warm-4f2kq", "p1"], "poolRef": "warm", "open": [1], "losses": 1}
ALL_OF_A_SNAPSHOT = {
    "observedGeneration": 1,
    "phase": "Succeed",
    "containers": [
        {"containerName": "main", "imageUri": "reg/x", "imageDigest": "sha256:1"},
        {"containerName": "side", "imageUri": "reg/y"},
    ],
    "sourcePodName": "p",
    "sourcePodUID": "u",
    "sourceNodeName": "n",
    "jobUID": "j",
    "sourceTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}},
    "conditions": all_conditions(names.SNAPSHOT_CONDITIONS),
}

STATUSES: list[tuple[str, dict[str, Any]]] = [
    *(("BatchSandbox", box_status(box_view(phase))) for phase in names.BOX_PHASES),
    ("BatchSandbox", box_status(box_view("Pending", spec={"poolRef": "other", "replicas": 5}))),
    (
        "Pool",
        filled(status.PoolStatus, conditions=all_conditions(names.POOL_CONDITIONS, generation=4)).as_dict(),
    ),
    ("Pool", status.PoolStatus(observed_generation=1, revision="r").as_dict()),
    ("SandboxSnapshot", ALL_OF_A_SNAPSHOT),
]


@pytest.mark.parametrize(("kind", "body"), STATUSES)
def test_the_schema_covers_every_status_that_we_can_write(kind: str, body: dict[str, Any]) -> None:
    node = part(kind, "status")
    assert unknown(node, body, "status") == []
    jsonschema.Draft4Validator(node).validate(body)


@pytest.mark.parametrize("kind", KINDS)
def test_every_status_field_of_the_schema_is_written(kind: str) -> None:
    written = {name for known, body in STATUSES if known == kind for name in body}
    assert written == set(part(kind, "status")["properties"])


def test_every_spec_field_of_the_schema_is_read() -> None:
    """A field that parsing does not know would be a promise without effect."""
    odd: Any = object()
    for path, _ in crds.fields("Pool"):
        if path.startswith("spec.") and "[]" not in path and "weights" not in path:
            obj = samples.pool()
            node = obj["spec"]
            *parents, last = path.split(".")[1:]
            for step in parents:
                node = node.setdefault(step, {})
            node[last] = odd
            if path == "spec.fairness.tenantLabel":
                assert pool.parse(samples.pool(spec={"fairness": {"tenantLabel": "t"}})).fairness is not None
            else:
                assert pool.parse(obj).problems, f"nobody looked at {path}"


# -- served definitions --------------------------------------------------------------------------------------


def test_our_own_definition_lacks_nothing() -> None:
    for kind in KINDS:
        assert crds.lacking(kind, crds.crd(kind)) == crds.Lacking()
        assert crds.lacking(kind, crds.crd(kind, cel=True)) == crds.Lacking()


def test_an_older_definition_names_what_it_lacks() -> None:
    older = copy.deepcopy(crds.crd("BatchSandbox"))
    root = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del root["spec"]["properties"]["priority"]
    types = root["status"]["properties"]["conditions"]["items"]["properties"]["type"]
    types["enum"] = list(names.BOX_CONDITIONS_REFERENCE)
    found = crds.lacking("BatchSandbox", older)
    assert found.fields == ("spec.priority",)
    assert found.conditions == names.BOX_CONDITIONS_ADDED


def test_a_missing_object_names_all_its_fields_and_an_open_one_none() -> None:
    older = copy.deepcopy(crds.crd("Pool"))
    root = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del root["spec"]["properties"]["sizing"]
    assert "spec.sizing.schedules[].start" in crds.lacking("Pool", older).fields
    root["spec"][PRESERVE] = True
    assert crds.lacking("Pool", older).fields == ()


def test_an_unreadable_definition_lacks_everything() -> None:
    found = crds.lacking("Pool", {"spec": {"versions": []}})
    assert "spec.capacitySpec" in found.fields and "status.total" in found.fields


def test_the_field_table_walks_everything_once() -> None:
    paths = [path for path, _ in crds.fields("Pool")]
    assert len(paths) == len(set(paths))
    assert {"spec.sizing.demand.windowSeconds", "status.conditions[].reason"} <= set(paths)
