"""A request's path to what it is about: resource, namespace, name, subresource. Next: `osb.sim.server`."""

from __future__ import annotations

from dataclasses import dataclass

from osb.sim.kinds import NAMESPACE, Registry, Resource


@dataclass(frozen=True, slots=True)
class Target:
    """`namespace` None means all namespaces (lists and watches of a namespaced resource)."""

    res: Resource
    namespace: str | None
    name: str
    sub: str

    @property
    def space(self) -> str:
        return self.namespace or ""


def parse(registry: Registry, path: str) -> Target | None:
    """None when the path is no resource that exists."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace: str | None = None
    if (
        rest[0] == "namespaces"
        and len(rest) >= 3
        and not (group == "" and len(rest) == 3 and rest[2] in NAMESPACE.subresources)
    ):
        namespace, rest = rest[1], rest[2:]
    res = registry.find(group, version, rest[0])
    if res is None or (namespace is not None and not res.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else ""
    sub = rest[2] if len(rest) > 2 else ""
    if len(rest) > 3 or (sub and sub not in res.subresources) or (name and res.namespaced and namespace is None):
        return None
    return Target(res, namespace, name, sub)


def verb(method: str, target: Target, *, watch: bool) -> str:
    """The Kubernetes verb of a request, "" when the method makes no sense there."""
    if target.name:
        return {
            "GET": "get",
            "HEAD": "get",
            "PUT": "update",
            "PATCH": "patch",
            "DELETE": "delete",
            "POST": "create",
        }.get(method, "")
    if method in ("GET", "HEAD"):
        return "watch" if watch else "list"
    return {"POST": "create", "DELETE": "deletecollection"}.get(method, "")
