"""Commands that look: they read, decide and print, and change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import yaml

from osb.api.key import Key
from osb.cli import look
from osb.cli.context import key_of, reach
from osb.local.demo import box_body, pool_body
from osb.reconcile.poolload import load
from osb.store.client import connect
from osb.store.duty import Duty
from tests.cli.conftest import Called, Installation

Osbctl = Callable[..., Called]


def test_get_lists_what_a_pool_has_and_what_sandboxes_wait_for(osbctl: Osbctl) -> None:
    pools = osbctl("get", "pools")
    assert pools.code == 0
    assert pools.out.split("\n")[0].split() == [
        "NAMESPACE", "NAME", "TOTAL", "ALLOCATED", "AVAILABLE", "PENDING", "WAITING", "BUFFER", "POOL", "STATE", "AGE",
    ]  # fmt: skip
    assert any(line.split()[:2] == ["default", "warm"] and "5-20" in line for line in pools.out.splitlines())
    boxes = osbctl("get", "sandboxes", "-A").out
    assert "PoolCapacityExhausted" in next(line for line in boxes.splitlines() if " third " in line)


def test_get_shows_what_is_wrong_with_a_sandbox_that_waits_for_nothing(
    osbctl: Osbctl, installation: Installation
) -> None:
    body = box_body("wrong", 1)
    body["spec"] |= {"poolRef": "No Name"}
    installation.kube.create("batchsandbox", "default", body)
    try:
        installation.until("it says so", lambda: installation.status("batchsandbox", "wrong").get("conditions"))
        line = next(one for one in osbctl("get", "sandboxes").out.splitlines() if " wrong " in one)
        assert "InvalidPoolRef" in line
    finally:
        installation.kube.delete("batchsandbox", "default", "wrong")


def test_get_one_object_as_json_is_the_object_itself(osbctl: Osbctl) -> None:
    found = json.loads(osbctl("get", "sandbox", "default/pair", "-o", "json").out)
    assert found["kind"] == "BatchSandbox" and found["spec"]["replicas"] == 2


def test_explain_names_the_code_and_the_exact_position_of_a_waiting_sandbox(
    osbctl: Osbctl, installation: Installation
) -> None:
    # Given two waiting sandboxes, ordered by age, then UID
    waiting = [installation.kube.get("batchsandbox", "default", name)["metadata"] for name in ("second", "third")]
    order = sorted(waiting, key=lambda meta: (meta["creationTimestamp"], meta["uid"]))
    # Then each is told its own place
    for place, meta in enumerate(order, 1):
        said = osbctl("explain", "sandbox", f"default/{meta['name']}")
        assert said.code == 0 and "PoolCapacityExhausted" in said.out
        assert any(line.split() == ["position:", str(place), "of", "2"] for line in said.out.splitlines())
        data = json.loads(osbctl("explain", "sandbox", meta["name"], "-o", "json").out)
        assert (data["position"], data["line"]) == (place, 2)
        assert data["waiting"]["code"] == "PoolCapacityExhausted"


def test_explain_of_a_served_sandbox_shows_its_pods_and_how_it_got_them(osbctl: Osbctl) -> None:
    said = osbctl("explain", "sandbox", "pair").out
    assert "2 of 2" in said and "0=warm-" in said and "1=warm-" in said
    assert "change nothing" in said
    assert "allocated: default/warm default/pair" in said


def test_explain_lists_what_is_wrong_in_an_object_and_what_has_no_effect(
    osbctl: Osbctl, installation: Installation
) -> None:
    body = box_body("odd", 1)
    body["spec"] |= {"poolRef": "nowhere", "taskTemplate": {"spec": {"timeoutSeconds": 3}}, "shardPatches": [{}]}
    installation.kube.create("batchsandbox", "default", body)
    said = osbctl("explain", "sandbox", "odd").out
    assert "spec.taskTemplate.spec.process: is missing: there is nothing to run" in said
    assert "spec.shardPatches: apply only to pods made from a template" in said
    data = json.loads(osbctl("explain", "sandbox", "odd", "-o", "json").out)
    assert {"spec.taskTemplate.spec.process", "spec.shardPatches"} <= {one["field"] for one in data["problems"]}
    installation.kube.delete("batchsandbox", "default", "odd")


@pytest.fixture
def misfit(installation: Installation) -> Iterator[str]:
    """A sandbox for any pool whose image no pool has, as its status says."""
    template = {"spec": {"containers": [{"name": "main", "image": "nobody/has:this"}]}}
    body = box_body("misfit", 1)
    body["spec"] |= {"poolRef": "*", "template": template}
    installation.kube.create("batchsandbox", "default", body)
    installation.until("it waits", lambda: "NoPoolFits" in str(installation.status("batchsandbox", "misfit")))
    yield "misfit"
    installation.kube.delete("batchsandbox", "default", "misfit")


@pytest.mark.parametrize("command", ["explain", "plan"])
def test_a_sandbox_that_no_pool_fits_is_told_so_with_a_reason_for_each_pool(
    osbctl: Osbctl, misfit: str, command: str
) -> None:
    said = osbctl(command, "sandbox", misfit).out
    assert "poolRef is *: no pool fits" in said and "a pool is chosen" not in said and "choose a pool" not in said
    for pool in ("warm", "small"):
        assert any(line.strip() == f"pool {pool}: image nobody/has:this is not in its template"
                   for line in said.replace("- ", "").splitlines()), said  # fmt: skip


def test_explain_and_plan_decide_by_the_settings_of_the_installation(
    osbctl: Osbctl, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given workers with a limit of their own, and a command line whose environment has another one
    monkeypatch.setenv("OSB_RESUME_TIMEOUT", "7m")
    with reach() as one:
        installation.until("a worker told its settings", one.store.duty.settings_told)
        assert one.look(key_of("sandbox", "pair")).settings.resume_timeout == 40
    said = osbctl("explain", "sandbox", "pair", "-o", "json")
    assert (json.loads(said.out)["settings"], said.err) == ("installation", "")


@pytest.mark.parametrize("command", ["explain", "plan"])
def test_without_the_installations_settings_those_of_the_command_are_used_and_that_is_said(
    osbctl: Osbctl, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(Duty, "settings_told", lambda self: None)
    monkeypatch.setenv("OSB_RESUME_TIMEOUT", "7m")
    with reach() as one:
        assert one.look(key_of("sandbox", "pair")).settings.resume_timeout == 420
    said = osbctl(command, "sandbox", "pair")
    assert said.code == 0 and "those of this command's own environment" in said.err


def test_explain_of_a_pool_shows_its_ledger_and_its_line_in_order(osbctl: Osbctl) -> None:
    said = osbctl("explain", "pool", "small").out
    assert "ready; held 1" in said
    assert "1. " in said and "2. " in said and "second  misses 1 of 1" in said and "third  misses 1 of 1" in said


def test_explain_of_a_pool_whose_ledger_is_lost_says_that_the_next_pass_rebuilds_it(
    osbctl: Osbctl, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "load", lambda p: replace(load(p), ready=False))
    said = osbctl("explain", "pool", "small")
    assert said.code == 0, said.err
    assert "NOT READY" in said.out and "nobody is served: the ledger is rebuilt by the next pass" in said.out


def test_a_pool_with_an_unusable_template_is_explained_and_planned(osbctl: Osbctl, installation: Installation) -> None:
    body = pool_body()
    body["metadata"]["name"] = "odd"
    body["spec"]["template"]["spec"]["containers"] = "x"
    installation.kube.create("pool", "default", body)
    installation.until("it has a status", lambda: installation.status("pool", "odd").get("conditions"))
    try:
        said = osbctl("explain", "pool", "odd")
        assert said.code == 0 and "spec.template.spec.containers: must be a list of objects" in said.out
        assert osbctl("plan", "pool", "odd").code == 0
    finally:
        installation.kube.delete("pool", "default", "odd")


@pytest.mark.parametrize("kind", ["pool", "sandbox", "snapshot"])
@pytest.mark.parametrize("command", ["explain", "plan"])
def test_looking_at_what_does_not_exist_says_so_and_ends_with_three(osbctl: Osbctl, command: str, kind: str) -> None:
    said = osbctl(command, kind, "default/nix")
    assert said.code == 3
    assert "default/nix" in said.err and "osbctl get" in said.err


def test_plan_is_a_dry_run(osbctl: Osbctl, installation: Installation) -> None:
    # Given a held pool whose buffer was raised, so that nobody carries the plan out
    assert osbctl("hold", "small").code == 0
    before = installation.kube.get("pool", "default", "small")["metadata"]["resourceVersion"]
    said = osbctl("plan", "pool", "small", "-o", "json")
    # Then it says what it would do, and nothing was written by it
    assert said.code == 0 and json.loads(said.out)["key"] == "pool/default/small"
    again = osbctl("plan", "pool", "small")
    assert "because" in again.out or "plan for pool/default/small" in again.out
    assert osbctl("unhold", "small").code == 0
    after = installation.kube.get("pool", "default", "small")
    assert before and after["metadata"]["annotations"].get("sandbox.opensandbox.io/hold") is None


def test_ledger_show_says_who_holds_what(osbctl: Osbctl) -> None:
    data = json.loads(osbctl("ledger", "show", "warm", "-o", "json").out)
    held = [(pod["box"], pod["slot"]) for pod in data["pods"].values() if pod["state"] == "held"]
    assert ("pair", 0) in held and ("pair", 1) in held
    assert "SANDBOX" in osbctl("ledger", "show", "warm").out


def test_ledger_verify_agrees_with_a_quiet_cluster(osbctl: Osbctl) -> None:
    said = osbctl("ledger", "verify", "-A", "--settle", "0.5")
    assert (said.code, said.out.strip()) == (0, "2 ledgers agree with the cluster")


def test_ledger_verify_ends_with_one_when_redis_and_the_cluster_differ(
    osbctl: Osbctl, installation: Installation
) -> None:
    # Given a pool on hold (nobody repairs) whose ledger has forgotten a free pod
    osbctl("hold", "warm")
    osbctl("reconcile", "pool", "warm", "--wait")
    store = connect(installation.everything.redis_url)
    entries = store.ledger("default", "warm").entries()
    pod, entry = next((name, one) for name, one in entries.items() if one.state == "free")
    key = "osb:l:default/warm:pods"
    kept = store.redis.hget(key, pod)
    store.redis.hdel(key, pod)
    try:
        # When it is verified
        said = osbctl("ledger", "verify", "default/warm", "--settle", "0.1")
    finally:
        store.redis.hset(key, pod, kept)
        osbctl("unhold", "warm")
        store.close()
    # Then the pod is named, with the remedy
    assert said.code == 1 and entry.pod_uid
    assert pod in said.out and "does not know it" in said.out and "osbctl reconcile pool" in said.out


def test_queue_shows_every_kind_and_the_beat(osbctl: Osbctl) -> None:
    said = osbctl("queue")
    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines()[1:6]] == [
        "pool", "batchsandbox", "snapshot", "recycle", "tasks"]  # fmt: skip
    assert "beat was last alive: 0" in said.out
    assert osbctl("queue", "pool").code == 0
    assert set(json.loads(osbctl("queue", "-o", "json").out)["kinds"]) == {
        "pool", "batchsandbox", "snapshot", "recycle", "tasks"}  # fmt: skip


def test_journal_filters_by_sandbox(osbctl: Osbctl) -> None:
    entries = json.loads(osbctl("journal", "--box", "default/pair", "-o", "json").out)
    assert entries and all(entry["box"] == "default/pair" for entry in entries)
    assert "allocated: default/warm default/pair" in osbctl("journal", "--pool", "default/warm").out


def test_bare_names_of_the_journal_are_of_the_namespace_and_unknown_ones_are_told(osbctl: Osbctl) -> None:
    assert osbctl("journal", "--box", "pair").out == osbctl("journal", "--box", "default/pair").out != ""
    said = osbctl("journal", "--box", "pair", "-n", "elsewhere")
    assert said.code == 0 and "no decision about elsewhere/pair" in said.err


def test_the_ledger_of_no_pool_ends_with_three(osbctl: Osbctl) -> None:
    said = osbctl("ledger", "show", "nope")
    assert said.code == 3 and "no such pool" in said.err


def test_crds_are_printed_as_yaml_documents(osbctl: Osbctl) -> None:
    said = osbctl("crds")
    kinds = [doc["spec"]["names"]["kind"] for doc in yaml.safe_load_all(said.out)]
    assert (said.code, sorted(kinds)) == (0, ["BatchSandbox", "Pool", "SandboxSnapshot"])
    assert "x-kubernetes-validations" not in said.out
    assert "x-kubernetes-validations" in osbctl("crds", "--cel").out


def test_names_with_and_without_namespace_are_one_key() -> None:
    assert key_of("bsbx", "default/a") == key_of("sandbox", "a") == Key("batchsandbox", "default", "a")
