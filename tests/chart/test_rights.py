"""Who may do what: each process gets what its code calls; people get roles for all three kinds."""

from __future__ import annotations

import pytest

from osb.cli.access import RULES
from tests.doubles.chart import NAMESPACE, Obj, Values, kinds, objects

Right = tuple[str, str, str]  # group, resource, verb
OURS = ("pools", "batchsandboxes", "sandboxsnapshots")


CLUSTER_WIDE = ("nodes", "namespaces", "customresourcedefinitions")  # kinds without a namespace


def _rights(role: Obj) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _granted(account: str, values: Values | None = None, *, cluster: bool | None = None) -> set[Right]:
    """Everything that is bound to the account; only cluster-wide or only namespaced on demand."""
    found: set[Right] = set()
    made = objects(values)
    roles = {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]): o for o in made}
    for binding in made:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        wide = binding["kind"] == "ClusterRoleBinding"
        named = [s for s in binding["subjects"] if (s["name"], s["namespace"]) == (account, NAMESPACE)]
        if named and cluster in (None, wide):
            ref = binding["roleRef"]
            where = binding["metadata"].get("namespace") if ref["kind"] == "Role" else None
            found |= _rights(roles[ref["kind"], where, ref["name"]])
    return found


WATCHER, WORKER, BEAT = (f"opensandbox-controller-manager{end}" for end in ("", "-worker", "-beat"))


def test_watchers_read_and_beat_keeps_the_lease() -> None:
    lease = {("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")}
    assert _granted(BEAT) == lease
    which = {("", "namespaces", "get")}  # only kube-system, whose UID is the cluster's
    assert which <= _granted(WATCHER, cluster=True)
    assert {verb for _, _, verb in _granted(WATCHER) - lease - which} == {"list", "watch"}
    assert {r for r in _granted(WATCHER, cluster=True) if r[1] == "nodes"} == {
        ("", "nodes", v) for v in ("list", "watch")
    }
    profiles = {("", "configmaps", verb) for verb in ("list", "watch")}  # the one, in our own namespace
    assert _granted(WATCHER, cluster=False) == lease | profiles


def test_workers_never_touch_what_they_do_not_need() -> None:
    rights = _granted(WORKER)
    assert not {r for r in rights if "*" in r}
    assert not {
        r for r in rights if r[1] in ("secrets", "leases", "deployments", "roles", "pods/status", "jobs/status")
    }
    assert ("", "pods", "update") not in rights
    assert {r for r in rights if r[1] == "nodes"} == {("", "nodes", "get")}
    # The one ConfigMap is read in our own namespace only.
    assert ("", "configmaps", "get") not in _granted(WORKER, cluster=True)
    assert ("", "configmaps", "get") in _granted(WORKER, cluster=False)


def test_secrets_are_read_only_by_name_and_only_when_named() -> None:
    named = {"controller": {"snapshot": {"snapshotPushSecret": "push", "resumePullSecret": "pull"}}}
    rules = [rule for o in objects(named) if o["kind"] == "ClusterRole" for rule in o["rules"]]
    (rule,) = [rule for rule in rules if "secrets" in rule["resources"]]
    assert (rule["verbs"], rule["resourceNames"]) == (["get"], ["push", "pull"])


def test_exec_needs_both_verbs_and_can_be_denied() -> None:
    assert {("", "pods/exec", "get"), ("", "pods/exec", "create")} <= _granted(WORKER)
    assert not {r for r in _granted(WORKER, {"recycle": {"restart": {"enabled": False}}}) if r[1] == "pods/exec"}


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.cluster or not rule.optional], ids=lambda rule: rule.shown
)
def test_what_doctor_asks_for_is_granted_to_some_process(rule: object) -> None:
    everyone = _granted(WATCHER) | _granted(WORKER) | _granted(BEAT)
    resource = "/".join(filter(None, (rule.resource, rule.sub)))  # type: ignore[attr-defined]  # a Rule
    assert {(rule.group, resource, verb) for verb in rule.verbs} <= everyone  # type: ignore[attr-defined]  # a Rule


def test_scope_namespace_grants_nothing_cluster_wide_to_processes() -> None:
    values = {"rbac": {"scope": "namespace", "namespaces": ["a", "b"]}}
    assert not kinds(values, "ClusterRoleBinding")
    assert not {name for name in kinds(values, "ClusterRole") if not name.endswith(("-view", "-edit", "-admin"))}
    for account in (WATCHER, WORKER):
        assert {r for r in _granted(account) if r[1] not in CLUSTER_WIDE} == _granted(account, values)
    places = {o["metadata"]["namespace"] for o in objects(values) if o["kind"] == "RoleBinding"}
    assert places == {"a", "b", NAMESPACE}


@pytest.mark.parametrize(("role", "verbs"), [
    ("view", {"get", "list", "watch"}),
    ("edit", {"get", "list", "watch", "create", "update", "patch", "delete"}),
    ("admin", {"*"}),
])  # fmt: skip
def test_people_get_all_three_kinds_with_their_usual_roles(role: str, verbs: set[str]) -> None:
    made = kinds({}, "ClusterRole")[f"opensandbox-{NAMESPACE}-rel-{role}"]
    assert made["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{role}"] == "true"
    rights = _rights(made)
    for kind in OURS:
        assert {verb for _, resource, verb in rights if resource == kind} == verbs
        assert {verb for _, resource, verb in rights if resource == f"{kind}/status"} == {"get"}
    assert not any(name.endswith("-view") for name in kinds({"rbac": {"people": False}}, "ClusterRole"))
