"""Which resources the simulated API server has: one `Resource` per group, version and plural.

The built-in table is what the controller, kubectl and a rendered chart need; `osb.sim.crd` adds custom
ones. The server (`osb.sim.server`) looks resources up here, storage (`osb.sim.storage`) keeps one
bucket per `Resource.bucket`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Column = dict[str, Any]  # one additionalPrinterColumn: name, type, jsonPath, priority

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One kind as the server serves it. `subresources` names what may follow the object's name in a path."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    columns: tuple[Column, ...] = ()
    schema: dict[str, Any] | None = None
    custom: bool = False
    counts_generation: bool = False
    verbs: tuple[str, ...] = VERBS
    bucket: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bucket", (self.group, self.plural))

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """plural.group, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


def _core(plural: str, kind: str, *short: str, namespaced: bool = True, subs: tuple[str, ...] = ()) -> Resource:
    return _named("", "v1", plural, kind, *short, namespaced=namespaced, subs=subs)


def _named(group: str, version: str, plural: str, kind: str, *short: str, namespaced: bool = True,
           subs: tuple[str, ...] = (), counts: bool = False) -> Resource:  # fmt: skip
    categories = ("all",) if kind in _IN_ALL else ()
    return Resource(
        group, version, plural, kind, namespaced=namespaced, singular="", short=short, categories=categories,
        subresources=frozenset(subs), counts_generation=counts,
    )  # fmt: skip


_IN_ALL = {"Pod", "Service", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"}

_RBAC = "rbac.authorization.k8s.io"

BUILTIN: tuple[Resource, ...] = (
    _core("pods", "Pod", "po", subs=("status", "binding", "eviction", "exec", "log")),
    _core("nodes", "Node", "no", namespaced=False, subs=("status",)),
    _core("events", "Event", "ev"),
    _core("configmaps", "ConfigMap", "cm"),
    _core("secrets", "Secret"),
    _core("namespaces", "Namespace", "ns", namespaced=False, subs=("status", "finalize")),
    _core("services", "Service", "svc", subs=("status",)),
    _core("serviceaccounts", "ServiceAccount", "sa", subs=("token",)),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", subs=("status",)),
    _core("endpoints", "Endpoints", "ep"),
    _core("resourcequotas", "ResourceQuota", "quota", subs=("status",)),
    _core("limitranges", "LimitRange", "limits"),
    _named("coordination.k8s.io", "v1", "leases", "Lease"),
    _named("batch", "v1", "jobs", "Job", subs=("status",)),
    _named("apps", "v1", "deployments", "Deployment", "deploy", subs=("status",), counts=True),
    _named("apps", "v1", "statefulsets", "StatefulSet", "sts", subs=("status",), counts=True),
    _named("apps", "v1", "daemonsets", "DaemonSet", "ds", subs=("status",), counts=True),
    _named("apps", "v1", "replicasets", "ReplicaSet", "rs", subs=("status",), counts=True),
    _named(_RBAC, "v1", "roles", "Role"),
    _named(_RBAC, "v1", "rolebindings", "RoleBinding"),
    _named(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    _named(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _named("policy", "v1beta1", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", subs=("status",),
    counts=True),
    _named("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", subs=("status",),
    counts=True),
    _named("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", "netpol"),
    _named("networking.k8s.io", "v1", "ingresses", "Ingress", "ing", subs=("status",)),
    _named("autoscaling", "v2beta2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa",
    subs=("status",)),
    _named("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa",
    subs=("status",)),
    _named("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", "pc", namespaced=False),
    _named("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
           namespaced=False),
    _named("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", "crd",
    "crds",
           namespaced=False, subs=("status",), counts=True),
)  # fmt: skip

POD, NODE, EVENT, NAMESPACE, LEASE, JOB, CRD, PDB = (
    next(res for res in BUILTIN if res.kind == kind)
    for kind in (
        "Pod",
        "Node",
        "Event",
        "Namespace",
        "Lease",
        "Job",
        "CustomResourceDefinition",
        "PodDisruptionBudget",
    )
)


class Registry:
    """All resources that exist right now. Lookups by (group, version, plural) are what a request needs."""

    def __init__(self) -> None:
        self._table: dict[tuple[str, str, str], Resource] = {}
        for res in BUILTIN:
            self.add(res)

    def add(self, res: Resource) -> None:
        self._table[res.group, res.version, res.plural] = res

    def drop(self, group: str, plural: str) -> None:
        for key in [key for key in self._table if key[0] == group and key[2] == plural]:
            del self._table[key]

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._table.get((group, version, plural))

    def all(self) -> list[Resource]:
        return list(self._table.values())

    def buckets(self) -> dict[tuple[str, str], Resource]:
        """One resource per bucket: kinds served in two versions appear once."""
        return {res.bucket: res for res in reversed(self._table.values())}

    def groups(self) -> dict[str, list[str]]:
        """Named groups and their versions, preferred version first."""
        found: dict[str, list[str]] = {}
        for res in self._table.values():
            versions = found.setdefault(res.group, [])
            if res.version not in versions:
                versions.append(res.version)
        found.pop("", None)
        return found
