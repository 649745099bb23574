"""Everything that is no object: version, health, API groups and resources, OpenAPI, access reviews."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from osb.sim import openapi, refusals
from osb.sim.answers import send
from osb.sim.bodies import body_of
from osb.sim.kinds import Resource

if TYPE_CHECKING:
    from osb.sim.server import ApiServer

Obj = dict[str, Any]

VERSION: Obj = {
    "major": "1", "minor": "20", "gitVersion": "v1.20.2", "gitCommit": "osb-sim", "gitTreeState": "clean",
    "buildDate": "2021-01-13T00:00:00Z", "goVersion": "none", "compiler": "none", "platform": "linux/amd64",
}  # fmt: skip

# Subresources that take objects of other kinds: kubectl drain evicts only where it finds `Eviction` with its group.
_OTHER_KINDS: dict[str, Obj] = {
    "eviction": {"kind": "Eviction", "group": "policy", "version": "v1beta1"},
    "token": {"kind": "TokenRequest", "group": "authentication.k8s.io", "version": "v1"},
    "binding": {"kind": "Binding"},
    "exec": {"kind": "PodExecOptions"},
}

_REVIEWS = {
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews": "SelfSubjectRulesReview",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": "SubjectAccessReview",
    "/apis/authentication.k8s.io/v1/tokenreviews": "TokenReview",
}


async def answer(server: ApiServer, request: web.BaseRequest) -> web.StreamResponse:
    """404 for what does not exist."""
    path = request.path.rstrip("/") or "/"
    if path in ("/healthz", "/readyz", "/livez") or path.startswith(("/healthz/", "/readyz/", "/livez/")):
        return web.Response(text="ok")
    if path in _REVIEWS and request.method == "POST":
        return send(orjson.dumps(_review(server, _REVIEWS[path], await body_of(request))), 201)
    if path == "/openapi/v2":
        return openapi.answer(server.registry, request)
    document = _document(server, path)
    if document is None or request.method != "GET":
        raise refusals.no_such_path()
    return send(orjson.dumps(document))


def virtual_create(server: ApiServer, res: Resource, body: Obj) -> Obj | None:
    """Kinds that are asked, not stored: none is a resource of the table today."""
    del server, res, body
    return None


def _document(server: ApiServer, path: str) -> Obj | None:
    parts = [part for part in path.split("/") if part]
    if path == "/version":
        return VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/api/v1":
        return _resources(server, "", "v1")
    if path == "/apis":
        groups = [_group(name, versions) for name, versions in _groups(server).items()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    if path == "/":
        return {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/readyz", "/version"]}
    if len(parts) == 2 and parts[0] == "apis" and parts[1] in _groups(server):
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1], _groups(server)[parts[1]])}
    if len(parts) == 3 and parts[0] == "apis" and parts[2] in _groups(server).get(parts[1], ()):
        return _resources(server, parts[1], parts[2])
    return None


def _groups(server: ApiServer) -> dict[str, list[str]]:
    groups = server.registry.groups()
    groups.setdefault("authorization.k8s.io", ["v1"])
    groups.setdefault("authentication.k8s.io", ["v1"])
    return groups


def _group(name: str, versions: list[str]) -> Obj:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(server: ApiServer, group: str, version: str) -> Obj:
    entries: list[Obj] = []
    for res in server.registry.all():
        if (res.group, res.version) == (group, version):
            entries.append(_entry(res))
            entries += [_sub_entry(res, sub) for sub in sorted(res.subresources)]
    entries += [
        {
            "name": path.rsplit("/", 1)[1],
            "singularName": "",
            "namespaced": False,
            "kind": kind,
            "verbs": ["create"],
        }
        for path, kind in _REVIEWS.items()
        if path.startswith(f"/apis/{group}/{version}/")
    ]
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": entries}


def _entry(res: Resource) -> Obj:
    entry: Obj = {
        "name": res.plural, "singularName": res.singular, "namespaced": res.namespaced, "kind": res.kind,
        "verbs": list(res.verbs),
    }  # fmt: skip
    if res.short:
        entry["shortNames"] = list(res.short)
    if res.categories:
        entry["categories"] = list(res.categories)
    return entry


def _sub_entry(res: Resource, sub: str) -> Obj:
    verbs = {
        "status": ["get", "patch", "update"],
        "log": ["get"],
        "exec": ["create", "get"],
        "finalize": ["update"],
    }
    return {
        "name": f"{res.plural}/{sub}", "singularName": "", "namespaced": res.namespaced, "kind": res.kind,
        "verbs": verbs.get(sub, ["create"]), **_OTHER_KINDS.get(sub, {}),
    }  # fmt: skip


def _review(server: ApiServer, kind: str, body: Obj) -> Obj:
    """Everyone may do everything, unless a fault denies the verb."""
    asked = (body.get("spec") or {}).get("resourceAttributes") or {}
    path = f"/{asked.get('group', '')}/{asked.get('resource', '')}"
    if kind == "TokenReview":
        status: Obj = {"authenticated": True, "user": {"username": "admin", "groups": ["system:masters"]}}
    elif kind == "SelfSubjectRulesReview":
        status = {"resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
        "nonResourceRules": [],
                  "incomplete": False}  # fmt: skip
    elif server.faults.denied(asked.get("verb", ""), path):
        status = {"allowed": False, "denied": True, "reason": "denied by a fault of the simulated cluster"}
    else:
        status = {"allowed": True}
    group = "authentication.k8s.io/v1" if kind == "TokenReview" else "authorization.k8s.io/v1"
    return {"kind": kind, "apiVersion": group, "metadata": {}, "spec": body.get("spec", {}), "status": status}
