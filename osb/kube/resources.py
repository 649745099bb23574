"""Which API resources we talk to, by the short kind names used everywhere in this project.

`RES["pod"].path("ns", "name", "status")` is the request path. Kinds that a cluster does not serve (our own
before their CRDs are installed) answer 404: `osb.errors.NotFound`.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

OWN_GROUP = "sandbox.opensandbox.io"


@dataclass(frozen=True, slots=True)
class Resource:
    """One row of the table. `kind` is the Kubernetes kind, `group` is "" for the core group."""

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str = "", sub: str = "") -> str:
        """The URL path; no namespace = all. Names are quoted: they may come from annotations."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            root += f"/namespaces/{quote(namespace, safe='')}"
        elif self.namespaced and name:
            raise ValueError(f"{self.kind} {name}: a namespace is needed")
        parts = [root, self.plural]
        if name:
            parts.append(quote(name, safe=""))
        if sub:
            parts.append(sub)
        return "/".join(parts)


RES: dict[str, Resource] = {
    "pool": Resource("Pool", OWN_GROUP, "v1alpha1", "pools"),
    "batchsandbox": Resource("BatchSandbox", OWN_GROUP, "v1alpha1", "batchsandboxes"),
    "snapshot": Resource("SandboxSnapshot", OWN_GROUP, "v1alpha1", "sandboxsnapshots"),
    "pod": Resource("Pod", "", "v1", "pods"),
    "event": Resource("Event", "", "v1", "events"),
    "configmap": Resource("ConfigMap", "", "v1", "configmaps"),
    "secret": Resource("Secret", "", "v1", "secrets"),
    "node": Resource("Node", "", "v1", "nodes", namespaced=False),
    "namespace": Resource("Namespace", "", "v1", "namespaces", namespaced=False),
    "job": Resource("Job", "batch", "v1", "jobs"),
    "deployment": Resource("Deployment", "apps", "v1", "deployments"),
    "lease": Resource("Lease", "coordination.k8s.io", "v1", "leases"),
    "crd": Resource(
        "CustomResourceDefinition",
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        namespaced=False,
    ),
    "selfsubjectaccessreview": Resource(
        "SelfSubjectAccessReview", "authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False
    ),
}


def resource(kind: str) -> Resource:
    """The row of `kind`; KeyError names the kinds there are."""
    try:
        return RES[kind]
    except KeyError:
        raise KeyError(f"no resource {kind!r}; known: {', '.join(sorted(RES))}") from None
