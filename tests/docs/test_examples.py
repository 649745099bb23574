"""The YAML examples of README and docs are accepted whole by an API server with our definitions, and make pods."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from osb.api import batchsandbox, names, pool
from osb.decide import taskgen
from osb.decide.assign import choose
from osb.decide.assign_profiles import Table, parse_profiles
from osb.decide.podbuild import build
from osb.decide.poolpod import pool_pod
from osb.errors import NotFound
from osb.kube.client import RES, Kube
from osb.kube.install import make_namespace
from osb.reconcile.profiles import KEY, NAME
from osb.sim import SimCluster
from tests.doubles.simulated import client_of

Obj = dict[str, Any]

ROOT = Path(__file__).parents[2]
KINDS = {row.kind: kind for kind, row in RES.items()}


def _examples(page: Path) -> list[Obj]:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [doc for block in blocks for doc in yaml.safe_load_all(block)]


EXAMPLES = {
    f"{page.name}: {doc['kind']} {doc['metadata']['name']}": doc
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for doc in _examples(page)
}


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kube]:
    with SimCluster.start(tmp_path_factory.mktemp("sim"), kubelet=False) as sim, client_of(sim) as client:
        yield client


def _create(kube: Kube, body: Obj) -> Obj:
    """Create it in its namespace, in place of an example of another page that has its name."""
    kind, meta = KINDS[body["kind"]], body["metadata"]
    make_namespace(kube, meta["namespace"])
    try:
        kube.delete(kind, meta["namespace"], meta["name"], grace=0)
    except NotFound:
        pass
    return kube.create(kind, meta["namespace"], body)


def _lost(sent: Any, stored: Any, path: str) -> list[str]:
    """What the server did not keep as it was sent."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        return [lost for key in sent for lost in _lost(sent[key], stored.get(key), f"{path}.{key}")]
    return [] if sent == stored else [path]


def test_the_pages_have_examples() -> None:
    found = {name.partition(":")[0] for name in EXAMPLES}
    assert {"README.md", "using.md"} <= found


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_stored_whole_and_nothing_in_it_is_wrong(example: str, kube: Kube) -> None:
    doc = EXAMPLES[example]
    stored = _create(kube, doc)
    assert _lost({k: v for k, v in doc.items() if k != "metadata"}, stored, "") == []
    assert _lost(doc["metadata"], stored["metadata"], "metadata") == []
    if doc["kind"] == "Pool":
        spec = pool.parse(stored)
        assert spec.problems == ()
        _create(kube, pool_pod(spec, "0123456789abcdef", f"{spec.name}-x"))
    elif doc["kind"] == "BatchSandbox":
        _check_box(kube, batchsandbox.parse(stored))
    else:
        assert (doc["kind"], doc["metadata"]["name"], list(doc["data"])) == ("ConfigMap", NAME, [KEY])
        assert parse_profiles(doc["data"][KEY], Table()).problems == ()


def _check_box(kube: Kube, spec: batchsandbox.BoxSpec) -> None:
    assert spec.problems == ()
    if spec.task_template is not None:
        assert (
            taskgen.problems(spec.name, spec.replicas, template=spec.task_template, patches=spec.shard_task_patches)
            == ()
        )
    if not spec.pool_ref:
        for slot in range(spec.replicas):
            _create(kube, build(spec, slot))
    elif spec.pool_ref != names.ANY_POOL:
        assert any(d["kind"] == "Pool" and d["metadata"]["name"] == spec.pool_ref for d in EXAMPLES.values())


def test_the_profile_of_the_page_chooses_the_pool_of_the_page() -> None:
    docs = {(d["kind"], d["metadata"]["name"]): d for d in _examples(ROOT / "docs" / "using.md")}
    box = batchsandbox.parse(docs["BatchSandbox", "any"])
    table = parse_profiles(docs["ConfigMap", NAME]["data"][KEY], Table())
    wanted = box.annotations[names.ASSIGN_PROFILE]
    pools = [pool.parse(d) for (kind, _), d in docs.items() if kind == "Pool"]
    assert table.problem(wanted) == ""
    assert choose(box, pools, profile=table.find(wanted)).pool == "research-py"
