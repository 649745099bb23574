"""Black-box HTTP access to a simulated cluster and, when one is offered, to a real control plane.

A test that uses `api` states what the real server does; with OSB_TEST_KUBECONFIG and OSB_TEST_CLUSTER_DISPOSABLE=1
it runs against that too. Tests that use `sim` are about what only the simulation has.
"""

from __future__ import annotations

import itertools
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from osb.sim import SimCluster

Obj = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

REAL = os.environ.get("OSB_TEST_KUBECONFIG") if os.environ.get("OSB_TEST_CLUSTER_DISPOSABLE") == "1" else None

GROUP = "/apis/sim.test.example/v1"
_COUNT = itertools.count(1)

WIDGET_CRD: Obj = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.sim.test.example"},
    "spec": {
        "group": "sim.test.example", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
                  "shortNames": ["wdg"]},
        "versions": [{
            "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
            "schema": {"openAPIV3Schema": {
                "type": "object", "description": "A widget.",
                "properties": {
                    "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}}},
                    "spec": {"type": "object", "required": ["size"], "description": "What is wanted.", "properties": {
                        "size": {"type": "integer", "format": "int32", "minimum": 0, "description": "How large."},
                        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                        "max": {"x-kubernetes-int-or-string": True},
                        "when": {"type": "string", "format": "date-time"},
                        "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        "note": {"type": "string", "nullable": True},
                        "parts": {"type": "array", "items": {"type": "object", "properties": {
                            "name": {"type": "string"}, "count": {"type": "integer", "default": 1}}}},
                    }},
                    "status": {"type": "object", "properties": {
                        "phase": {"type": "string"}, "ready": {"type": "integer"},
                        "conditions": {"type": "array", "x-kubernetes-list-type": "map",
                                       "x-kubernetes-list-map-keys": ["type"],
                                       "items": {"type": "object", "required": ["type"], "properties": {
                                           "type": {"type": "string"}, "status": {"type": "string"}}}},
                    }},
                },
            }},
        }],
    },
}  # fmt: skip


class Answer:
    """Status and decoded body of one call."""

    def __init__(self, status: int, body: Any, headers: Any) -> None:
        self.status, self.body, self.headers = status, body, headers

    def ok(self) -> Obj:
        assert self.status < 300, self.body
        return self.body


class Api:
    """JSON calls to one API server, with a namespace of its own for the test."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.authorization = f"Bearer {token}"
        self.real = url.startswith("https")
        self.namespace = ""
        self._pool = urllib3.PoolManager(
            maxsize=8,
            cert_reqs=ssl.CERT_NONE,
            retries=False,
            timeout=20,
            headers={"Authorization": self.authorization},
        )

    def call(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json", accept: str = ""
    ) -> Answer:
        headers = {**self._pool.headers, "Content-Type": content, **({"Accept": accept} if accept else {})}
        raw = None if body is None else body if isinstance(body, str) else json.dumps(body)
        got = self._pool.request(method, self.url + path, body=raw, headers=headers)
        text = got.data.decode()
        return Answer(got.status, json.loads(text) if text.startswith(("{", "[")) else text, got.headers)

    def pods(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods" + (f"/{name}" if name else "")

    def widgets(self, name: str = "") -> str:
        return f"{GROUP}/namespaces/{self.namespace}/widgets" + (f"/{name}" if name else "")

    def maps(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps" + (f"/{name}" if name else "")

    def watch(self, path: str, *, seconds: int = 2, **query: Any) -> list[Obj]:
        """All events of a watch that the server ends after `seconds`."""
        options = "".join(f"&{key}={value}" for key, value in query.items())
        got = self._pool.request(
            "GET", f"{self.url}{path}?watch=1&timeoutSeconds={seconds}{options}", preload_content=False
        )
        assert got.status == 200, got.data
        return [json.loads(line) for line in got.data.splitlines()]

    def stream(self, path: str) -> urllib3.BaseHTTPResponse:
        return self._pool.request("GET", self.url + path, preload_content=False, timeout=20)

    def close(self) -> None:
        self._pool.clear()


def until(check: Callable[[], Any], what: str, *, seconds: float = 10.0) -> Any:
    """The first true answer of `check`; fails when the deadline passes."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while True:
        if found := check():
            return found
        assert time.monotonic() < end, f"never happened: {what}"
        pause.wait(0.02)


def pod(name: str = "", **more: Any) -> Obj:
    meta: Obj = {"name": name} if name else {"generateName": "p-"}
    meta.update(more.pop("meta", {}))
    return {"metadata": meta, "spec": {"containers": [{"name": "main", "image": "registry/main:1"}], **more}}


def widget(name: str, **spec: Any) -> Obj:
    return {
        "apiVersion": "sim.test.example/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1, **spec}
    }  # fmt: skip


def _opened(url: str, token: str) -> Api:
    api = Api(url, token)
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    if api.call("POST", crds, WIDGET_CRD).status == 409:
        api.call("PATCH", f"{crds}/widgets.sim.test.example", {"spec": WIDGET_CRD["spec"]}, content=MERGE).ok()
    until(lambda: api.call("GET", f"{GROUP}/widgets").status == 200, "the widgets are served")
    return api


_REAL_MARKS = (
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),  # its certificate is its own
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "api" in metafunc.fixturenames:
        kinds = ["sim", *([pytest.param("real", marks=_REAL_MARKS)] if REAL else [])]
        metafunc.parametrize("server", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """An API server without a kubelet: nothing moves by itself."""
    if getattr(request, "param", "sim") == "real":
        config = yaml.safe_load(Path(str(REAL)).read_text())
        api = _opened(config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"])
        yield api
        api.close()
        return
    with SimCluster.start(tmp_path_factory.mktemp("sim"), kubelet=False, bookmark_every=0.3) as cluster:
        api = _opened(cluster.url, "t")
        yield api
        api.close()


def _fresh_namespace(api: Api) -> str:
    name = f"t{os.getpid()}-{next(_COUNT)}"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).ok()
    return name


@pytest.fixture
def api(server: Api) -> Api:
    server.namespace = _fresh_namespace(server)
    return server


@pytest.fixture
def sim(tmp_path: Path) -> Iterator[SimCluster]:
    """A whole simulated cluster of the test's own, pods Ready after 50 ms."""
    with SimCluster.start(tmp_path / "sim", pod_ready=0.05, bookmark_every=0.2) as cluster:
        yield cluster


@pytest.fixture
def sim_api(sim: SimCluster) -> Iterator[Api]:
    api = _opened(sim.url, "t")
    api.namespace = "default"
    yield api
    api.close()
