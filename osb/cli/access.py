"""What our processes are allowed to do, asked of the API server itself (SelfSubjectAccessReview)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from osb.api import names
from osb.config import Settings
from osb.kube.client import Kube
from osb.kube.read import decoded


@dataclass(frozen=True, slots=True)
class Rule:
    """Verbs on a resource. `home`: only in the Lease's namespace. `optional`: what is lost without it."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    sub: str = ""
    home: bool = False
    cluster: bool = False
    optional: str = ""

    @property
    def shown(self) -> str:
        return "/".join(filter(None, (self.resource, self.sub))) + (f".{self.group}" if self.group else "")


_ALL = ("get", "list", "watch", "create", "patch", "delete")
RULES = (
    Rule(names.GROUP, "pools", ("get", "list", "watch", "patch")),
    Rule(names.GROUP, "pools", ("patch",), sub="status"),
    Rule(names.GROUP, "batchsandboxes", ("get", "list", "watch", "patch", "delete")),
    Rule(names.GROUP, "batchsandboxes", ("patch",), sub="status"),
    Rule(names.GROUP, "sandboxsnapshots", _ALL),
    Rule(names.GROUP, "sandboxsnapshots", ("patch",), sub="status"),
    Rule("", "pods", _ALL),
    Rule("", "pods", ("create",), sub="exec", optional="recycling by Restart fails"),
    Rule("", "events", ("create", "patch"), optional="nothing is told by Events"),
    Rule("batch", "jobs", ("get", "list", "watch", "create", "delete")),
    Rule("coordination.k8s.io", "leases", ("get", "create", "update"), home=True),
    Rule("", "configmaps", ("get", "list", "watch"), home=True, optional="assign profiles stay at the default"),
    Rule("", "nodes", ("get", "list", "watch"), cluster=True, optional="cordoned and dead nodes are not noticed"),
)


def denied(kube: Kube, settings: Settings) -> Iterator[tuple[Rule, str, str]]:
    """(rule, verb, the server's words) for everything that is not allowed. Raises ApiError without an answer."""
    for rule in RULES:
        for namespace in _where(rule, settings):
            for verb in rule.verbs:
                words = _ask(kube, rule, verb, namespace)
                if words is not None:
                    place = f"in namespace {namespace}" if namespace else "in all namespaces"
                    yield rule, verb, f"{place}{f': {words}' if words else ''}"


def _where(rule: Rule, settings: Settings) -> tuple[str, ...]:
    if rule.home:
        return (settings.lease_home,)
    return ("",) if rule.cluster or not settings.namespaces else settings.namespaces


def _ask(kube: Kube, rule: Rule, verb: str, namespace: str) -> str | None:
    """None when allowed, else why not."""
    attributes = {"group": rule.group, "resource": rule.resource, "subresource": rule.sub, "verb": verb,
                  "namespace": namespace}  # fmt: skip
    review = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "metadata": {}, "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
    }  # fmt: skip
    answer = kube.create("selfsubjectaccessreview", None, review)
    status = answer.get("status") or {}
    return None if status.get("allowed") else str(status.get("reason") or "")


def version(kube: Kube) -> str:
    """The server's own. Raises ApiError."""
    return str(decoded(kube.raw("/version"), "get /version").get("gitVersion", "?"))
